// Registration of the functions of an operator apart from its OpDef (IMPL_OP_*), and their types.
#pragma once
#include <cstddef>
#include <cstdint>

#include "exe_graph/runtime/infer_datatype_context.h"
#include "exe_graph/runtime/infer_shape_context.h"
#include "exe_graph/runtime/infer_shape_range_context.h"
#include "exe_graph/runtime/tiling_context.h"
#include "exe_graph/runtime/tiling_parse_context.h"
#include "graph/ge_error_codes.h"
#include "graph/types.h"

using UINT32 = unsigned int;

namespace gert {

class OpImplRegisterV2 {
 public:
    using InferShapeKernelFunc = UINT32 (*)(InferShapeContext*);
    using InferShapeRangeKernelFunc = UINT32 (*)(InferShapeRangeContext*);
    using InferDataTypeKernelFunc = UINT32 (*)(InferDataTypeContext*);
    using TilingKernelFunc = UINT32 (*)(TilingContext*);
    using TilingParseFunc = UINT32 (*)(TilingParseContext*);

    explicit OpImplRegisterV2(const ge::char_t* op_type) : op_type_(op_type) {}
    OpImplRegisterV2& InferShape(InferShapeKernelFunc function);
    OpImplRegisterV2& InferDataType(InferDataTypeKernelFunc function);
    OpImplRegisterV2& Tiling(TilingKernelFunc function, size_t max_tiling_data_size = 2048);
    template <typename T>
    OpImplRegisterV2& TilingParse(TilingParseFunc) {
        return *this;
    }

 private:
    const ge::char_t* op_type_;
};

}  // namespace gert

#define IMPL_OP_INFERSHAPE(op_type)                                                        \
    [[maybe_unused]] static gert::OpImplRegisterV2 op_impl_register_infershape_##op_type = \
        gert::OpImplRegisterV2(#op_type)
#define IMPL_OP_OPTILING(op_type)                                                        \
    [[maybe_unused]] static gert::OpImplRegisterV2 op_impl_register_optiling_##op_type = \
        gert::OpImplRegisterV2(#op_type)
