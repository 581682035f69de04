// Named by TilingParse registrations; there is no compile info without a compiler, so nothing is parsed.
#pragma once
#include "exe_graph/runtime/extended_kernel_context.h"

namespace gert {

class TilingParseContext : public ExtendedKernelContext {
 public:
    using ExtendedKernelContext::ExtendedKernelContext;
    fe::PlatFormInfos* GetPlatformInfo() const { return node_->platform; }
};

}  // namespace gert
