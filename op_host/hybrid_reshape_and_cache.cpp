// HybridReshapeAndCache: writes the key and value rows of new tokens to their slots of a paged cache.
#include "../op_kernel/hybrid_reshape_and_cache_tiling.h"
#include "contract.h"
#include "tiling.h"

namespace {

using namespace hybrid_ops;

constexpr Arg kInputs[] = {
    {"key", kRequired, "T H D", "float16 | float16 bfloat16 float32", "rows of the new tokens"},
    {"value", kRequired, "T H DV", "float16 | float16 bfloat16 float32", "rows of the new tokens"},
    {"key_cache", kRequired, "P K1 K2 K3", "float16 | float16 bfloat16 float32",
     "updated in place; ND [P, page, H, D] or, with cache_mode 1, NZ [P, H * D / 16, page, 16]"},
    {"value_cache", kRequired, "P V1 V2 V3", "float16 | float16 bfloat16 float32",
     "updated in place; as key_cache, with DV for D"},
    {"slot_mapping", kRequired, "T", "int32",
     "page * page_size + offset in the page; negative or beyond the pool: the row is not written"},
};

constexpr Arg kOutputs[] = {
    {"key_cache", kRequired, "P K1 K2 K3", "float16 | float16 bfloat16 float32",
     "the input of this name, updated"},
    {"value_cache", kRequired, "P V1 V2 V3", "float16 | float16 bfloat16 float32",
     "the input of this name, updated"},
};

constexpr Attr kAttrs[] = {
    {"cache_mode", AttrType::kInt, kOptional, "0", "layout of both caches: 0 ND, 1 NZ"},
};

constexpr LimitRule kLimits[] = {
    {"0 <= cache_mode <= 1", "not a known layout"},
    {"1 <= H <= 1024", "H out of range"},
    {"1 <= D <= 1024", "D out of range"},
    {"1 <= DV <= 1024", "DV out of range"},
    {"K2 == H and K3 == D or cache_mode != 0", "not an ND cache [P, page, H, D]"},
    {"V2 == H and V3 == DV or cache_mode != 0", "not an ND cache [P, page, H, DV]"},
    {"K1 * 16 == H * D and K3 == 16 or cache_mode != 1", "not an NZ cache [P, H * D / 16, page, 16]"},
    {"V1 * 16 == H * DV and V3 == 16 or cache_mode != 1", "not an NZ cache [P, H * DV / 16, page, 16]"},
    {"K1 == V1 or cache_mode != 0", "pages of the two caches differ in size"},
    {"K2 == V2 or cache_mode != 1", "pages of the two caches differ in size"},
    {"K2 % 16 == 0 or cache_mode != 1", "NZ pages hold a multiple of 16 tokens"},
    {"1 <= K1 <= 65536", "axis out of range"},
    {"1 <= K2 <= 32768", "axis out of range"},
    {"P * K1 <= 2147483647 or cache_mode != 0", "more slots than slot_mapping can name"},
    {"P * K2 <= 2147483647 or cache_mode != 1", "more slots than slot_mapping can name"},
};

constexpr Operator kOperator = {
    "HybridReshapeAndCache",
    "Writes key and value rows of new tokens to their slots of a paged cache, ND or NZ.",
    "ascend310p ascend910b",
    kInputs,
    kOutputs,
    kAttrs,
    kLimits,
};

ge::graphStatus Tiling(gert::TilingContext* context) {
    Call call(ContractOf<kOperator>(), context);
    if (call.Check() != ge::GRAPH_SUCCESS) return ge::GRAPH_FAILED;
    HybridReshapeAndCacheShape shape{};
    shape.tokens = call.Size("T");
    shape.pages = call.Size("P");
    shape.nz = call.Int("cache_mode") == 1;
    shape.pageSize = call.Size(shape.nz ? "K2" : "K1");
    shape.keyRow = call.Size("H") * call.Size("D");
    shape.valueRow = call.Size("H") * call.Size("DV");
    shape.elementBytes = static_cast<uint32_t>(ge::GetSizeByDataType(call.Dtype("key")));
    const Chip& chip = call.chip();
    const bool padded = chip.soc != "ascend310p";
    const int64_t row = shape.keyRow < shape.valueRow ? shape.keyRow : shape.valueRow;
    const int64_t pool = shape.pages * shape.pageSize * row * shape.elementBytes;
    if (!padded && pool < 32) {
        return call.Refuse({shape.keyRow == row ? "key_cache" : "value_cache",
                            "smaller than the least move of this chip", std::to_string(pool) + " bytes",
                            "32 bytes or more", ""});
    }
    const HybridReshapeAndCachePlan plan =
        PlanHybridReshapeAndCache(shape, {chip.vector_cores, static_cast<uint32_t>(chip.ub_bytes), padded});
    return call.Launch(plan.data, 0, plan.blockDim, 0);
}

}  // namespace

namespace ops {

class HybridReshapeAndCache : public OpDef {
 public:
    explicit HybridReshapeAndCache(const char* name) : OpDef(name) {
        hybrid_ops::Declare<kOperator>(*this, Tiling);
    }
};

OP_ADD(HybridReshapeAndCache);

}  // namespace ops
