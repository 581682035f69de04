// LoadData in three dimensions: a feature map [C1][H][W][C0] in L1 unrolled into the matrix of a convolution,
// one row per output pixel, one column per channel and filter point, in fractals in L0A or L0B. With a 1 x 1
// filter it moves a matrix in columns of fractals: H x W rows, C1 x C0 columns. Docs: "LoadData_3D",
// "SetFmatrix", "SetLoadDataBoundary".
#pragma once
#include "ascsim/load_data.h"

namespace ascsim {

struct Convolution {
    FeatureMap map;
    uint32_t channels;
    uint32_t stride_w, stride_h, filter_w, filter_h, dilation_w, dilation_h;
    uint32_t out_w() const {
        const int64_t reach = int64_t(dilation_w) * (filter_w - 1) + 1;
        return uint32_t((map.width + map.pad[0] + map.pad[1] - reach) / stride_w + 1);
    }
};

// Source addresses at or beyond the boundary start again at the beginning of L1.
inline uint64_t Wrapped(uint64_t address, uint64_t boundary) {
    return boundary ? address % boundary : address;
}

// Footprint of a feature map in L1.
template <typename T>
Access MapAccess(const AscendC::LocalTensor<T>& src, uint64_t bytes, uint64_t boundary) {
    Access a = Operand(src, false, "src", Shape{uint32_t(bytes)});
    a.carries = true;
    if (boundary && src.offset() + bytes > boundary) {
        a.base = 0;
        a.block_bytes = uint32_t(boundary);
        a.tensor_bytes = 0;
    }
    return a;
}

// Byte offset in the feature map of (row, column) of the unrolled matrix; false where it is padding.
template <typename T>
bool PixelAt(const Convolution& c, uint64_t row, uint64_t col, uint64_t* offset) {
    constexpr uint32_t c0 = kC0<T>;
    const uint64_t point = col / c0, window = uint64_t(c.filter_w) * c.filter_h;
    const uint64_t c1 = point / window;
    const int64_t fh = int64_t(point % window / c.filter_w), fw = int64_t(point % c.filter_w);
    const uint32_t wide = c.out_w();
    const int64_t h = int64_t(row / wide) * c.stride_h - c.map.pad[2] + fh * c.dilation_h;
    const int64_t w = int64_t(row % wide) * c.stride_w - c.map.pad[0] + fw * c.dilation_w;
    if (h < 0 || w < 0 || h >= c.map.height || w >= c.map.width) return false;
    *offset = ((c1 * c.map.height + uint64_t(h)) * c.map.width + uint64_t(w)) * kRow + col % c0 * sizeof(T);
    return true;
}

// Where element (m, k) of the unrolled window goes in L0, in elements.
enum class Layout3D : uint8_t { L0A, L0ATransposed, L0B };
template <typename T>
uint64_t Place3D(Layout3D layout, uint32_t m, uint32_t k, uint32_t rows, uint32_t cols) {
    constexpr uint32_t c0 = kC0<T>, fractal = 16 * c0;
    switch (layout) {
        case Layout3D::L0A:
            return (uint64_t(m / 16) * CeilTo(cols, c0) + k / c0) * fractal + m % 16 * c0 + k % c0;
        case Layout3D::L0ATransposed:
            return (uint64_t(k / 16) * CeilTo(rows, c0) + m / c0) * fractal + k % 16 * c0 + m % c0;
        case Layout3D::L0B:
            return (uint64_t(m / c0) * CeilTo(cols, 16) + k / 16) * fractal + k % 16 * c0 + m % c0;
    }
    return 0;
}

template <typename T>
void RunLoad3D(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const Convolution& c,
               uint32_t m0, uint32_t rows, uint32_t k0, uint32_t cols, bool transpose, T pad, Loc loc) {
    if constexpr (std::is_same_v<T, AscendC::int4b_t>) {  // two elements of a row are one byte throughout
        Convolution bytes = c;
        bytes.channels /= 2;
        return RunLoad3D(dst.template ReinterpretCast<int8_t>(), src.template ReinterpretCast<int8_t>(),
                         bytes, m0, rows, k0 / 2, cols / 2, transpose, int8_t(0), loc);
    }
    // Repeats make one matrix of windows: below each other (mode 0) or side by side (mode 1).
    const CubeState& cube = Core().cube;
    const uint32_t high = cube.repeat_mode == 0 ? rows : 0, wide = cube.repeat_mode == 1 ? cols : 0;
    const auto row_of = [&](uint32_t m) { return high ? m / high * 16 * cube.repeat_stride + m % high : m; };
    const auto column_of = [&](uint32_t k) {
        return wide ? k / wide * kC0<T> * cube.repeat_stride + k % wide : k;
    };
    (high ? rows : cols) *= cube.repeat_time;
    if (!rows || !cols || !c.channels || !c.map.height || !c.map.width || !c.filter_w || !c.filter_h) return;
    constexpr uint32_t c0 = kC0<T>, size = sizeof(T);
    const Mem to = dst.mem();
    Op op = LoadOp("LoadData", dst, src, CeilTo(rows, 16) * CeilTo(cols, c0), loc);
    if (op.work.from != Mem::L1) Fail(op, "path", "a three-dimensional load starts in L1");
    if (!c.stride_w || !c.stride_h || !c.dilation_w || !c.dilation_h)
        Fail(op, "param.range", "strideW, strideH, dilationFilterW, dilationFilterH: allowed 1 and above");
    CheckRange(op, "kStartPt (multiple of C0), remainder", k0 % c0, 0, 0);
    if (to == Mem::L0B && size == 1)
        Report(Severity::Error, op, "param.range", "8-bit elements to L0B; allowed 16- and 32-bit ones");
    if (transpose && to == Mem::L0A && size == 1)
        Report(Severity::Error, op, "param.range",
               "enTranspose with 8-bit elements; allowed 16- and 32-bit ones");
    const Layout3D layout = to == Mem::L0B ? Layout3D::L0B
                            : transpose    ? Layout3D::L0ATransposed
                                           : Layout3D::L0A;
    const uint64_t map_bytes = uint64_t(CeilTo(c.channels, c0)) * c.map.height * c.map.width * kRow;
    const uint64_t boundary = Core().cube.load_boundary;
    const Access read = MapAccess(src, map_bytes, boundary);
    op.Add(read);
    const uint32_t padded_rows = CeilTo(rows, 16) * 16, padded_cols = CeilTo(cols, c0) * c0;
    const uint64_t last = layout == Layout3D::L0A ? uint64_t(padded_rows) * padded_cols
                          : layout == Layout3D::L0ATransposed
                              ? uint64_t(CeilTo(cols, 16) * 16) * (CeilTo(rows, c0) * c0)
                              : uint64_t(CeilTo(rows, c0) * c0) * (CeilTo(cols, 16) * 16);
    op.Add(Operand(dst, true, "dst", last * size));
    RequireAligned(op, "src", Mem::L1, src.offset(), size);
    RequireAligned(op, "dst", to, dst.offset(), size);
    if (!Issue(op)) return;
    if (cols < padded_cols || rows < padded_rows) {
        std::memset(Local(to, dst.offset()), 0, last * size);
        const uint32_t all_rows = layout == Layout3D::L0A ? padded_rows : CeilTo(rows, c0) * c0;
        for (uint32_t m = rows; m < all_rows; ++m)  // rows beyond the window: whatever was there
            for (uint32_t k = 0; k < cols; ++k)
                MarkUndefined(to, dst.offset() + Place3D<T>(layout, m, k, rows, cols) * size, size);
    }
    const bool defined = AllDefined(Mem::L1, read.base, read.block_bytes);
    for (uint32_t m = 0; m < rows; ++m)
        for (uint32_t k = 0; k < cols; ++k) {
            const uint64_t d = dst.offset() + Place3D<T>(layout, m, k, rows, cols) * size;
            uint64_t s;
            if (PixelAt<T>(c, m0 + row_of(m), k0 + column_of(k), &s)) {
                MoveElement(to, d, Mem::L1, Wrapped(src.offset() + s, boundary), size, defined);
            } else {
                std::memcpy(Local(to, d), &pad, size);
            }
        }
}

inline FeatureMap MapOf(uint16_t h, uint16_t w, const uint8_t pad[4]) {
    FeatureMap m{h, w, {}};
    std::copy_n(pad, 4, m.pad);
    return m;
}

template <typename T>
T PaddingValue() {
    T v;
    std::memcpy(&v, &Core().cube.padding_value, sizeof v);
    return v;
}

}  // namespace ascsim

namespace AscendC {

inline void SetFmatrix(uint16_t l1H, uint16_t l1W, const uint8_t padList[4], const FmatrixMode& mode) {
    ascsim::Core().cube.fmatrix[int(mode)] = ascsim::MapOf(l1H, l1W, padList);
}
inline void SetLoadDataBoundary(uint32_t boundaryValue) { ascsim::Core().cube.load_boundary = boundaryValue; }
template <typename T>
void SetLoadDataPaddingValue(const T padValue) {
    uint64_t bits = 0;
    std::memcpy(&bits, &padValue, sizeof(T));
    ascsim::Core().cube.padding_value = bits;
}
template <typename... None>
void SetLoadDataRepeat(const LoadDataRepeatParam& p, ascsim::Loc loc = ascsim::Loc::Here()) {
    ascsim::support::SetLoadDataRepeat<None...>();
    ascsim::CheckRange(ascsim::CallSite("SetLoadDataRepeat", loc), "repeatMode", p.repeatMode, 0, 1);
    ascsim::CubeState& cube = ascsim::Core().cube;
    cube.repeat_stride = p.repeatStride;
    cube.repeat_time = p.repeatTime;
    cube.repeat_mode = p.repeatMode;
}

template <typename T, const IsResetLoad3dConfig& config = IS_RESER_LOAD3D_DEFAULT_CONFIG>
void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData3DParamsV2<T>& p,
              Loc loc = Loc::Here()) {
    if (config.isSetFMatrix) SetFmatrix(p.l1H, p.l1W, p.padList, FmatrixMode(p.fMatrixCtrl));
    if (config.isSetPadding) SetLoadDataPaddingValue(p.padValue);
    const ascsim::Convolution c{ascsim::Core().cube.fmatrix[p.fMatrixCtrl],
                                p.channelSize,
                                p.strideW,
                                p.strideH,
                                p.filterW + 256u * p.filterSizeW,
                                p.filterH + 256u * p.filterSizeH,
                                p.dilationFilterW,
                                p.dilationFilterH};
    ascsim::RunLoad3D(dst, src, c, p.mStartPt, p.mExtension, p.kStartPt, p.kExtension, p.enTranspose,
                      ascsim::PaddingValue<T>(), loc);
}
template <typename T>
void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData3DParamsV2Pro& p,
              Loc loc = Loc::Here()) {
    const auto filter = [&](int at) { return uint32_t(p.filterConfig >> at & 255); };
    const auto extent = [&](int at) { return uint32_t(p.extConfig >> at & 65535); };
    const ascsim::Convolution c{ascsim::Core().cube.fmatrix[p.fMatrixCtrl],
                                p.channelSize,
                                filter(0),
                                filter(8),
                                filter(16) + 256u * p.filterSizeW,
                                filter(24) + 256u * p.filterSizeH,
                                filter(32),
                                filter(40)};
    ascsim::RunLoad3D(dst, src, c, extent(48), extent(16), extent(32), extent(0), p.enTranspose,
                      ascsim::PaddingValue<T>(), loc);
}

#if defined(ASCSIM_SOC_310P)
// Version 1: one fractal a repeat, 16 output pixels from (leftTopH, leftTopW), one point of the filter
// window.
template <typename T, const IsResetLoad3dConfig& config = IS_RESER_LOAD3D_DEFAULT_CONFIG>
void LoadData(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LoadData3DParamsV1<T>& p,
              Loc loc = Loc::Here()) {
    using namespace ascsim;
    if (config.isSetFMatrix) SetFmatrix(p.l1H, p.l1W, p.padList, FmatrixMode::FMATRIX_LEFT);
    if (config.isSetPadding) SetLoadDataPaddingValue(p.padValue);
    Op op = LoadOp("LoadData", dst, src, p.repeatTime, loc);
    CheckRange(op, "repeatMode", p.repeatMode, 0, 1);
    CheckRange(op, "jumpStride", p.jumpStride, 1, 127);
    if (p.cSize) Fail(op, "unsupported", "cSize 1 (four-channel feature maps) is not modelled");
    constexpr uint32_t c0 = kC0<T>;
    Convolution c{Core().cube.fmatrix[0], c0, p.strideW, p.strideH, p.filterW, p.filterH, p.dilationFilterW,
                  p.dilationFilterH};
    if (!p.repeatTime || !c.map.height || !c.map.width || !c.filter_w || !c.filter_h) return;
    if (!c.stride_w || !c.stride_h || !c.dilation_w || !c.dilation_h)
        Fail(op, "param.range", "strideW, strideH, dilationFilterW, dilationFilterH: allowed 1 and above");
    const uint32_t window = c.filter_w * c.filter_h, wide = c.out_w();
    const uint32_t first_point = p.c1Index * window + p.fetchFilterH * c.filter_w + p.fetchFilterW;
    const int64_t first_pixel = int64_t(p.leftTopH + c.map.pad[2]) / c.stride_h * wide +
                                int64_t(p.leftTopW + c.map.pad[0]) / c.stride_w;
    const uint32_t points = p.repeatMode == 0 ? first_point + p.repeatTime : first_point + 1;
    const uint64_t boundary = Core().cube.load_boundary * 32ull;  // units of version 1
    const uint64_t map_bytes = uint64_t(CeilTo(points, window)) * c.map.height * c.map.width * kRow;
    const Access read = MapAccess(src, map_bytes, boundary);
    op.Add(read);
    op.Add(Operand(dst, true, "dst",
                   Shape{uint32_t(kFractalBytes), p.repeatTime, p.jumpStride * kFractalBytes}));
    RequireAligned(op, "dst", op.work.to, dst.offset(), sizeof(T));
    if (!Issue(op)) return;
    const bool defined = AllDefined(Mem::L1, read.base, read.block_bytes);
    const T pad = PaddingValue<T>();
    for (uint32_t r = 0; r < p.repeatTime; ++r)
        for (uint32_t m = 0; m < 16; ++m)
            for (uint32_t k = 0; k < c0; ++k) {
                const uint64_t pixel = uint64_t(first_pixel) + m + (p.repeatMode ? 16 * r : 0);
                const uint64_t col = uint64_t(first_point + (p.repeatMode ? 0 : r)) * c0 + k;
                const uint64_t d = dst.offset() + r * p.jumpStride * kFractalBytes + (m * c0 + k) * sizeof(T);
                uint64_t s;
                if (PixelAt<T>(c, pixel, col, &s))
                    MoveElement(op.work.to, d, Mem::L1, Wrapped(src.offset() + s, boundary), sizeof(T),
                                defined);
                else
                    std::memcpy(Local(op.work.to, d), &pad, sizeof(T));
            }
}
#endif

}  // namespace AscendC
