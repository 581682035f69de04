// Parameter structs of the matrix API, fields and order as in CANN.
#pragma once
#include <algorithm>

#include "ascsim/bf16.h"
#include "ascsim/copy_params.h"
#include "ascsim/half.h"

// Fixpipe's conversion; the device compiler declares it outside any namespace.
enum QuantMode_t {
    NoQuant,
    F322F16,
    F322BF16,
    DEQF16,
    VDEQF16,
    QF322B8_PRE,
    VQF322B8_PRE,
    REQ8,
    VREQ8,
};

namespace AscendC {

constexpr uint32_t PAD_SIZE = 4;
constexpr uint16_t BLOCK_CUBE = 16;

struct Nd2NzParams {
    Nd2NzParams() {}
    Nd2NzParams(uint16_t nds, uint16_t n, uint16_t d, uint16_t matrix_gap, uint16_t src_row,
                uint16_t c0_stride, uint16_t n_stride, uint16_t matrix_stride)
        : ndNum(nds),
          nValue(n),
          dValue(d),
          srcNdMatrixStride(matrix_gap),
          srcDValue(src_row),
          dstNzC0Stride(c0_stride),
          dstNzNStride(n_stride),
          dstNzMatrixStride(matrix_stride) {}
    uint16_t ndNum = 0;
    uint16_t nValue = 0;             // rows
    uint16_t dValue = 0;             // columns, elements
    uint16_t srcNdMatrixStride = 0;  // elements
    uint16_t srcDValue = 0;          // elements from row to row
    uint16_t dstNzC0Stride = 0;      // 32-byte units from column of fractals to column
    uint16_t dstNzNStride = 0;       // 32-byte units from row to row
    uint16_t dstNzMatrixStride = 0;  // elements
};

struct Nz2NdParamsFull {
    Nz2NdParamsFull() {}
    Nz2NdParamsFull(uint16_t nds, uint16_t n, uint16_t d, uint16_t src_matrix, uint16_t src_n, uint16_t dst_d,
                    uint16_t dst_matrix)
        : ndNum(nds),
          nValue(n),
          dValue(d),
          srcNdMatrixStride(src_matrix),
          srcNStride(src_n),
          dstDStride(dst_d),
          dstNdMatrixStride(dst_matrix) {}
    uint16_t ndNum = 1;
    uint16_t nValue = 0;
    uint16_t dValue = 0;
    uint16_t srcNdMatrixStride = 1;  // 16 x 16 fractals
    uint16_t srcNStride = 0;         // rows of 16 elements
    uint16_t dstDStride = 0;         // elements
    uint16_t dstNdMatrixStride = 1;  // elements
};

struct LoadData2DParams {
    LoadData2DParams() {}
    LoadData2DParams(uint16_t start, uint8_t repeat, uint16_t stride, uint8_t id, uint16_t gap,
                     bool transpose, uint8_t mode)
        : startIndex(start),
          dstGap(gap),
          srcStride(stride),
          ifTranspose(transpose),
          repeatTimes(repeat),
          sid(id),
          addrMode(mode) {}
    uint16_t startIndex = 0;  // fractals
    uint16_t dstGap = 0;      // fractals between two written ones
    uint16_t srcStride = 0;   // fractals from start to start
    bool ifTranspose = false;
    uint8_t repeatTimes = 0;
    uint8_t sid = 0;
    uint8_t addrMode = 0;  // 1: addresses fall
};
using LoadData2dParams = LoadData2DParams;

struct LoadData2dTransposeParams {
    LoadData2dTransposeParams() {}
    LoadData2dTransposeParams(uint16_t start, uint8_t repeat, uint16_t stride, uint16_t gap,
                              uint16_t fractal_gap, uint8_t mode = 0)
        : startIndex(start),
          repeatTimes(repeat),
          srcStride(stride),
          dstGap(gap),
          dstFracGap(fractal_gap),
          addrMode(mode) {}
    uint16_t startIndex = 0;  // square blocks: 1 (b16), 2 (b8, b32) or 4 (b4) fractals
    uint8_t repeatTimes = 0;
    uint16_t srcStride = 0;   // square blocks
    uint16_t dstGap = 0;      // fractals from the first of a repeat to the first of the next, less one
    uint16_t dstFracGap = 0;  // fractals between those of one repeat
    uint8_t addrMode = 0;
};
struct LoadData2dTransposeParamsV2 {
    LoadData2dTransposeParamsV2() {}
    LoadData2dTransposeParamsV2(uint16_t start, uint8_t repeat, uint16_t stride, uint16_t gap,
                                uint16_t fractal_gap, uint16_t src_fractal_gap, uint8_t mode = 0)
        : startIndex(start),
          repeatTimes(repeat),
          srcStride(stride),
          dstGap(gap),
          dstFracGap(fractal_gap),
          srcFracGap(src_fractal_gap),
          addrMode(mode) {}
    uint16_t startIndex = 0;  // fractals, as all fields here
    uint8_t repeatTimes = 0;
    uint16_t srcStride = 0;
    uint16_t dstGap = 0;
    uint16_t dstFracGap = 0;
    uint16_t srcFracGap = 0;  // between the fractals of one square block
    uint8_t addrMode = 0;
};

template <typename T>
struct LoadData3DParamsV1 {
    LoadData3DParamsV1() {}
    LoadData3DParamsV1(const uint8_t pad[PAD_SIZE], uint16_t h, uint16_t w, uint16_t c1, uint8_t fetch_w,
                       uint8_t fetch_h, int16_t left, int16_t top, uint8_t stride_w, uint8_t stride_h,
                       uint8_t filter_w, uint8_t filter_h, uint8_t dilation_w, uint8_t dilation_h,
                       uint8_t jump, uint8_t mode, uint8_t repeat, uint8_t c_size, T value)
        : strideW(stride_w),
          strideH(stride_h),
          filterW(filter_w),
          filterH(filter_h),
          dilationFilterW(dilation_w),
          dilationFilterH(dilation_h),
          jumpStride(jump),
          repeatMode(mode),
          repeatTime(repeat),
          cSize(c_size),
          padValue(value),
          fetchFilterW(fetch_w),
          fetchFilterH(fetch_h),
          l1H(h),
          l1W(w),
          c1Index(c1),
          leftTopW(left),
          leftTopH(top) {
        std::copy_n(pad, PAD_SIZE, padList);
    }
    uint8_t padList[PAD_SIZE] = {};
    uint8_t strideW = 0, strideH = 0;
    uint8_t filterW = 0, filterH = 0;
    uint8_t dilationFilterW = 0, dilationFilterH = 0;
    uint8_t jumpStride = 0;  // fractals from repeat to repeat
    uint8_t repeatMode = 0;  // 0: along the filter window and channels, 1: along the output pixels
    uint8_t repeatTime = 0;
    uint8_t cSize = 0;
    T padValue = T(0);
    uint8_t fetchFilterW = 0, fetchFilterH = 0;
    uint16_t l1H = 0, l1W = 0;
    uint16_t c1Index = 0;
    int16_t leftTopW = 0, leftTopH = 0;
};

template <typename T>
struct LoadData3DParamsV2 {
    LoadData3DParamsV2() {}
    LoadData3DParamsV2(const uint8_t pad[PAD_SIZE], uint16_t h, uint16_t w, uint16_t channels, uint16_t k_ext,
                       uint16_t m_ext, uint16_t k_start, uint16_t m_start, uint8_t stride_w, uint8_t stride_h,
                       uint8_t filter_w, uint8_t filter_h, uint8_t dilation_w, uint8_t dilation_h,
                       bool transpose, bool small_k, T value, bool wide_w = false, bool wide_h = false,
                       bool right = false)
        : l1H(h),
          l1W(w),
          channelSize(channels),
          kExtension(k_ext),
          mExtension(m_ext),
          kStartPt(k_start),
          mStartPt(m_start),
          strideW(stride_w),
          strideH(stride_h),
          filterW(filter_w),
          filterH(filter_h),
          dilationFilterW(dilation_w),
          dilationFilterH(dilation_h),
          enTranspose(transpose),
          enSmallK(small_k),
          padValue(value),
          filterSizeW(wide_w),
          filterSizeH(wide_h),
          fMatrixCtrl(right) {
        std::copy_n(pad, PAD_SIZE, padList);
    }
    uint8_t padList[PAD_SIZE] = {};
    uint16_t l1H = 0, l1W = 0;
    uint16_t channelSize = 0;
    uint16_t kExtension = 0, mExtension = 0;
    uint16_t kStartPt = 0, mStartPt = 0;
    uint8_t strideW = 1, strideH = 1;
    uint8_t filterW = 1, filterH = 1;
    uint8_t dilationFilterW = 1, dilationFilterH = 1;
    bool enTranspose = false;
    bool enSmallK = false;
    T padValue = T(0);
    bool filterSizeW = false, filterSizeH = false;  // 256 more
    bool fMatrixCtrl = false;                       // take the right FMATRIX
};

struct LoadData3DParamsV2Pro {
    LoadData3DParamsV2Pro() {}
    LoadData3DParamsV2Pro(uint16_t channels, bool transpose, bool small_k, bool wide_w, bool wide_h,
                          bool right, uint64_t extent, uint64_t filter)
        : channelSize(channels),
          enTranspose(transpose),
          enSmallK(small_k),
          filterSizeW(wide_w),
          filterSizeH(wide_h),
          fMatrixCtrl(right),
          extConfig(extent),
          filterConfig(filter) {}
    uint16_t channelSize = 0;
    bool enTranspose = false;
    bool enSmallK = false;
    bool filterSizeW = false, filterSizeH = false;
    bool fMatrixCtrl = false;
    uint64_t extConfig = 0;                 // kExtension, mExtension, kStartPt, mStartPt: 16 bits each
    uint64_t filterConfig = 0x10101010101;  // strides, filter, dilation: w then h, 8 bits each
};

enum class FmatrixMode : uint8_t { FMATRIX_LEFT = 0, FMATRIX_RIGHT = 1 };

struct LoadDataRepeatParam {
    LoadDataRepeatParam() {}
    LoadDataRepeatParam(uint16_t stride, uint8_t time, uint8_t mode)
        : repeatStride(stride), repeatTime(time), repeatMode(mode) {}
    uint16_t repeatStride = 0;
    uint8_t repeatTime = 1;
    uint8_t repeatMode = 0;
    uint8_t reserved = 0;
};

struct IsResetLoad3dConfig {
    bool isSetFMatrix = true;
    bool isSetPadding = true;
};
constexpr IsResetLoad3dConfig IS_RESER_LOAD3D_DEFAULT_CONFIG = {true, true};

struct MmadParams {
    MmadParams() {}
    MmadParams(uint16_t rows, uint16_t columns, uint16_t depth, bool bias, int32_t offset, bool sparse,
               bool winograd_a, bool winograd_b)
        : m(rows),
          n(columns),
          k(depth),
          isBias(bias),
          fmOffset(offset),
          enSsparse(sparse),
          enWinogradA(winograd_a),
          enWinogradB(winograd_b) {}
    MmadParams(uint16_t rows, uint16_t columns, uint16_t depth, uint8_t unit_flag, bool c_from_bias,
               bool c_zero)
        : m(rows),
          n(columns),
          k(depth),
          unitFlag(unit_flag),
          cmatrixSource(c_from_bias),
          cmatrixInitVal(c_zero) {}
    uint16_t m = 0, n = 0, k = 0;
    bool isBias = false;  // older spelling of cmatrixInitVal = false
    int32_t fmOffset = 0;
    bool enSsparse = false;
    bool enWinogradA = false, enWinogradB = false;
    uint8_t unitFlag = 0;
    bool kDirectionAlign = false;  // fp32: K is padded to 16 in L0A and L0B
    bool cmatrixSource = false;    // start values from the bias table
    bool cmatrixInitVal = true;    // start values are zero
};

template <typename U>
struct InitConstValueParams {
    InitConstValueParams() {}
    InitConstValueParams(uint16_t repeat, uint16_t blocks, uint16_t gap, U value)
        : repeatTimes(repeat), blockNum(blocks), dstGap(gap), initValue(value) {}
    InitConstValueParams(uint16_t repeat, U value) : repeatTimes(repeat), initValue(value) {}
    uint16_t repeatTimes = 0;
    uint16_t blockNum = 0;
    uint16_t dstGap = 0;
    U initValue = U(0);
};

enum class CO2Layout : uint8_t { NZ = 0, ROW_MAJOR, COLUMN_MAJOR };
struct FixpipeConfig {
    CO2Layout format;
};
constexpr FixpipeConfig CFG_NZ = {CO2Layout::NZ};
constexpr FixpipeConfig CFG_ROW_MAJOR = {CO2Layout::ROW_MAJOR};
constexpr FixpipeConfig CFG_COLUMN_MAJOR = {CO2Layout::COLUMN_MAJOR};

struct FixpipeParamsV220 {
    FixpipeParamsV220() {}
    FixpipeParamsV220(uint16_t n, uint16_t m, uint16_t src, uint32_t dst, bool relu)
        : nSize(n), mSize(m), srcStride(src), dstStride(dst), reluEn(relu) {}
    FixpipeParamsV220(uint16_t n, uint16_t m, uint16_t src, uint32_t dst, bool relu, QuantMode_t quant,
                      int64_t scalar, uint16_t nds, uint16_t src_nd, uint16_t dst_nd, uint8_t unit_flag,
                      bool split = false)
        : nSize(n),
          mSize(m),
          srcStride(src),
          dstStride(dst),
          quantPre(quant),
          deqScalar(uint64_t(scalar)),
          ndNum(nds),
          srcNdStride(src_nd),
          dstNdStride(dst_nd),
          reluEn(relu),
          unitFlag(unit_flag),
          isChannelSplit(split) {}
    uint16_t nSize = 0, mSize = 0;
    uint16_t srcStride = 0;  // rows of 16 elements from one column of fractals to the next
    uint32_t dstStride = 0;  // ND: elements from row to row; NZ: 32-byte units from column to column
    QuantMode_t quantPre = QuantMode_t::NoQuant;
    uint64_t deqScalar = 0;
    uint16_t ndNum = 1;
    uint16_t srcNdStride = 0;  // 1024-byte fractals
    uint16_t dstNdStride = 0;  // elements
    bool reluEn = false;
    uint8_t unitFlag = 0;
    bool isChannelSplit = false;  // NZ output of fp32 in columns of 8
};

struct DataCopyCO12DstParams {
    DataCopyCO12DstParams() {}
    DataCopyCO12DstParams(uint16_t n, uint16_t m, uint32_t dst, uint16_t src, QuantMode_t quant, uint8_t relu,
                          bool split, bool nd)
        : nSize(n),
          mSize(m),
          dstStride(dst),
          srcStride(src),
          quantPre(quant),
          reluPre(relu),
          channelSplit(split),
          nz2ndEn(nd) {}
    uint8_t sid = 0;
    uint16_t nSize = 0, mSize = 0;
    uint32_t dstStride = 0;
    uint16_t srcStride = 0;
    uint8_t unitFlag = 0;
    uint8_t clipReluPre = 0;
    uint8_t eltWiseOp = 0;
    QuantMode_t quantPre = QuantMode_t::NoQuant;
    uint8_t reluPre = 0;
    bool channelSplit = false;
    bool nz2ndEn = false;
};

}  // namespace AscendC
