// Named by OpDef::SetInferShapeRange; ranges are not modelled, shapes here are always known.
#pragma once
#include "exe_graph/runtime/extended_kernel_context.h"

namespace gert {

class InferShapeRangeContext : public ExtendedKernelContext {
 public:
    using ExtendedKernelContext::ExtendedKernelContext;
};

}  // namespace gert
