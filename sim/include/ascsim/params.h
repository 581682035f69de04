// Parameter structs and enums of the vector API, spelled and ordered as CANN's headers have them.
#pragma once
#include <cstdint>

#include "ascsim/tensor.h"

namespace AscendC {

enum class RoundMode : uint8_t {
    CAST_NONE = 0,
    CAST_RINT,
    CAST_FLOOR,
    CAST_CEIL,
    CAST_ROUND,
    CAST_TRUNC,
    CAST_ODD
};
enum class CMPMODE : uint8_t { LT = 0, GT, EQ, LE, GE, NE };
enum class SELMODE : uint8_t { VSEL_CMPMASK_SPR = 0, VSEL_TENSOR_SCALAR_MODE, VSEL_TENSOR_TENSOR_MODE };
enum class ReduceOrder : uint8_t {
    ORDER_VALUE_INDEX = 0,
    ORDER_INDEX_VALUE,
    ORDER_ONLY_VALUE,
    ORDER_ONLY_INDEX
};
enum class ReduceType { SUM, MAX, MIN };
enum class MaskMode : uint8_t { NORMAL = 0, COUNTER };

constexpr uint64_t MASK_PLACEHOLDER = 0;
constexpr uint64_t MASK_PLACEHOLDER_LIST[2] = {0, 0};
constexpr uint8_t DEFAULT_BLK_NUM = 8;
constexpr uint8_t DEFAULT_BLK_STRIDE = 1;
constexpr uint8_t DEFAULT_REPEAT_STRIDE = 8;

// Integer argument of the width the hardware has; remembers a value that did not fit, so that the call that
// uses the struct can report the truncation.
template <typename Field>
struct Narrowed {
    Field value;
    int64_t given;
    Narrowed(int64_t v) : value(static_cast<Field>(v)), given(v) {}
    bool Lost() const { return static_cast<int64_t>(value) != given; }
};

struct BinaryRepeatParams {
    BinaryRepeatParams() {}
    BinaryRepeatParams(Narrowed<uint8_t> dstBlk, Narrowed<uint8_t> src0Blk, Narrowed<uint8_t> src1Blk,
                       Narrowed<uint8_t> dstRep, Narrowed<uint8_t> src0Rep, Narrowed<uint8_t> src1Rep)
        : dstBlkStride(dstBlk.value),
          src0BlkStride(src0Blk.value),
          src1BlkStride(src1Blk.value),
          dstRepStride(dstRep.value),
          src0RepStride(src0Rep.value),
          src1RepStride(src1Rep.value) {
        for (const auto& field : {dstBlk, src0Blk, src1Blk, dstRep, src0Rep, src1Rep}) {
            if (field.Lost()) truncated = field.given;
        }
    }
    uint32_t blockNumber = DEFAULT_BLK_NUM;
    uint8_t dstBlkStride = DEFAULT_BLK_STRIDE;
    uint8_t src0BlkStride = DEFAULT_BLK_STRIDE;
    uint8_t src1BlkStride = DEFAULT_BLK_STRIDE;
    uint8_t dstRepStride = DEFAULT_REPEAT_STRIDE;
    uint8_t src0RepStride = DEFAULT_REPEAT_STRIDE;
    uint8_t src1RepStride = DEFAULT_REPEAT_STRIDE;
    bool repeatStrideMode = false;
    bool strideSizeMode = false;
    int64_t truncated = 0;  // simulator only
};

struct UnaryRepeatParams {
    UnaryRepeatParams() {}
    UnaryRepeatParams(Narrowed<uint16_t> dstBlk, Narrowed<uint16_t> srcBlk, Narrowed<uint8_t> dstRep,
                      Narrowed<uint8_t> srcRep, bool halfBlockIn = false)
        : dstBlkStride(dstBlk.value),
          srcBlkStride(srcBlk.value),
          dstRepStride(dstRep.value),
          srcRepStride(srcRep.value),
          halfBlock(halfBlockIn) {
        if (dstBlk.Lost()) truncated = dstBlk.given;
        if (srcBlk.Lost()) truncated = srcBlk.given;
        if (dstRep.Lost()) truncated = dstRep.given;
        if (srcRep.Lost()) truncated = srcRep.given;
    }
    uint32_t blockNumber = DEFAULT_BLK_NUM;
    uint16_t dstBlkStride = DEFAULT_BLK_STRIDE;
    uint16_t srcBlkStride = DEFAULT_BLK_STRIDE;
    uint8_t dstRepStride = DEFAULT_REPEAT_STRIDE;
    uint8_t srcRepStride = DEFAULT_REPEAT_STRIDE;
    bool repeatStrideMode = false;
    bool strideSizeMode = false;
    bool halfBlock = false;
    int64_t truncated = 0;  // simulator only
};

struct BrcbRepeatParams {
    BrcbRepeatParams() {}
    BrcbRepeatParams(uint16_t dstBlk, uint16_t dstRep) : dstRepStride(dstRep), dstBlkStride(dstBlk) {}
    uint32_t blockNumber = DEFAULT_BLK_NUM;
    uint16_t dstRepStride = DEFAULT_REPEAT_STRIDE;
    uint16_t dstBlkStride = DEFAULT_BLK_STRIDE;
    uint8_t src0BlkStride = DEFAULT_BLK_STRIDE;
    uint8_t src1BlkStride = DEFAULT_BLK_STRIDE;
    uint8_t src0RepStride = DEFAULT_REPEAT_STRIDE;
    uint8_t src1RepStride = DEFAULT_REPEAT_STRIDE;
    bool repeatStrideMode = false;
    bool strideSizeMode = false;
};

struct GatherRepeatParams {
    GatherRepeatParams() {}
    GatherRepeatParams(uint8_t dstBlk, uint8_t dstRep) : dstRepStride(dstRep), dstBlkStride(dstBlk) {}
    uint32_t blockNumber = DEFAULT_BLK_NUM;
    uint16_t dstRepStride = DEFAULT_REPEAT_STRIDE;
    uint8_t dstBlkStride = DEFAULT_BLK_STRIDE;
    uint8_t src0BlkStride = DEFAULT_BLK_STRIDE;
    uint8_t src1BlkStride = DEFAULT_BLK_STRIDE;
    uint8_t src0RepStride = DEFAULT_REPEAT_STRIDE;
    uint8_t src1RepStride = DEFAULT_REPEAT_STRIDE;
    bool repeatStrideMode = false;
    bool strideSizeMode = false;
};

enum class GatherMaskMode : uint8_t { VERSION_V1 = 0, VERSION_V2 = 1 };
#if defined(ASCSIM_SOC_310P)
constexpr GatherMaskMode defaultGatherMaskMode = GatherMaskMode::VERSION_V1;
#else
constexpr GatherMaskMode defaultGatherMaskMode = GatherMaskMode::VERSION_V2;
#endif

struct GatherMaskParams {
    GatherMaskParams() {}
    GatherMaskParams(uint8_t src0Block, uint16_t repeat, uint16_t src0Repeat, uint8_t src1Repeat)
        : src0BlockStride(src0Block),
          repeatTimes(repeat),
          src0RepeatStride(src0Repeat),
          src1RepeatStride(src1Repeat) {}
    uint8_t src0BlockStride = DEFAULT_BLK_STRIDE;
    uint16_t repeatTimes = 0;
    uint16_t src0RepeatStride = DEFAULT_REPEAT_STRIDE;
    uint8_t src1RepeatStride = DEFAULT_REPEAT_STRIDE;
};

constexpr int32_t NCHW_CONV_ADDR_LIST_SIZE = 16;
struct TransDataTo5HDParams {
    TransDataTo5HDParams() {}
    TransDataTo5HDParams(bool dstHigh, bool srcHigh, uint8_t repeat, uint16_t dstRep, uint16_t srcRep)
        : dstHighHalf(dstHigh),
          srcHighHalf(srcHigh),
          repeatTimes(repeat),
          dstRepStride(dstRep),
          srcRepStride(srcRep) {}
    bool dstHighHalf = false;
    bool srcHighHalf = false;
    uint8_t repeatTimes = 1;
    uint16_t dstRepStride = 0;
    uint16_t srcRepStride = 0;
};

}  // namespace AscendC
