// Products on a combined core (ascend310p), where one program feeds cube and vector unit: fp16 operands from
// global memory or unified buffer to L1 and on to L0A and L0B, products summed in fp32 in L0C, results back
// to unified buffer. Every piece orders itself against the other pieces. What the caller's own vector calls
// and moves do to unified buffer, the caller orders: Fill waits for the vector calls before it, Fetch is a
// vector call itself.
//
// A matrix [rows, columns] lies in L1 and L0C in columns of fractals (NZ): [columns / 16][rows][16]; rows and
// columns are multiples of 16.
#ifndef HYBRID_OPS_KERNEL_CUBE_310P_H_
#define HYBRID_OPS_KERNEL_CUBE_310P_H_

#include "rows.h"

namespace hybrid_ops {

constexpr uint32_t kFractal = 16;  // rows, and fp16 columns, of a fractal
constexpr uint32_t kFractalElements = kFractal * kFractal;
constexpr uint32_t kL0Fractals = 64;  // of one operand: half of L0A or L0B, 32 KB
constexpr uint32_t kL0cElements = 65536;
constexpr uint32_t kMostFractals = 255;  // repeatTimes is 8 bits wide
constexpr uint32_t kNoFlag = ~0u;

// Flags of one kind of event, handed out one by one: each Raise has one Take.
template <AscendC::HardEvent event>
class FlagPool {
 public:
    static constexpr uint32_t kFlags = 5;  // of eight: two are the framework's, one is for Order

    __aicore__ inline void Init(AscendC::TPipe& pipe) {
        for (uint32_t i = 0; i < kFlags; ++i) ids_[i] = pipe.AllocEventID<event>();
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        for (uint32_t i = 0; i < kFlags; ++i) pipe.ReleaseEventID<event>(ids_[i]);
    }
    // Raised once the source pipe has done what was issued so far. With every flag raised, kNoFlag, and what
    // depends on it has to wait at once.
    __aicore__ inline uint32_t Raise() {
        for (uint32_t i = 0; i < kFlags; ++i) {
            if ((raised_ >> i & 1) != 0) continue;
            raised_ |= 1u << i;
            AscendC::SetFlag<event>(static_cast<event_t>(ids_[i]));
            return i;
        }
        Order<event>();
        return kNoFlag;
    }
    // The target pipe waits.
    __aicore__ inline void Take(uint32_t& flag) {
        if (flag == kNoFlag) return;
        AscendC::WaitFlag<event>(static_cast<event_t>(ids_[flag]));
        raised_ &= ~(1u << flag);
        flag = kNoFlag;
    }

 private:
    uint32_t raised_ = 0;
    AscendC::TEventID ids_[kFlags];
};

// A matrix in L1.
struct CubeTile {
    AscendC::LocalTensor<half> data;
    uint32_t rows = 0;    // between two columns of fractals
    uint32_t filled = 0;  // number of its last fill and of its last load; 0: none
    uint32_t loaded = 0;
    uint32_t arrived = 0;  // of its last fill from global memory
};

// A matrix in L0C.
struct CubeSum {
    AscendC::LocalTensor<float> data;
    uint32_t summed = kNoFlag;  // M_V
    uint32_t read = kNoFlag;    // V_M
};

// dst [a, b] <- fractals src[i * aStride + j * bStride], in as few calls as their order allows.
__aicore__ inline void LoadFractals(const AscendC::LocalTensor<half>& dst,
                                    const AscendC::LocalTensor<half>& src, uint32_t a, uint32_t b,
                                    uint32_t aStride, uint32_t bStride, bool transpose) {
    if (aStride == b * bStride || a == 1) {
        for (uint32_t i = 0; i < a * b; i += kMostFractals) {
            const uint32_t n = a * b - i < kMostFractals ? a * b - i : kMostFractals;
            AscendC::LoadData(
                dst[i * kFractalElements], src[i * bStride * kFractalElements],
                AscendC::LoadData2DParams(0, uint8_t(n), uint16_t(bStride), 0, 0, transpose, 0));
        }
    } else if (a <= b) {
        for (uint32_t i = 0; i < a; ++i) {
            AscendC::LoadData(
                dst[i * b * kFractalElements], src[i * aStride * kFractalElements],
                AscendC::LoadData2DParams(0, uint8_t(b), uint16_t(bStride), 0, 0, transpose, 0));
        }
    } else {
        for (uint32_t j = 0; j < b; ++j) {
            AscendC::LoadData(dst[j * kFractalElements], src[j * bStride * kFractalElements],
                              AscendC::LoadData2DParams(0, uint8_t(a), uint16_t(aStride), 0, uint16_t(b - 1),
                                                        transpose, 0));
        }
    }
}

class Cube310p {
 public:
    // A factor as it lies in L1: the matrix itself, or its transpose; from row and column `row`, `column` of
    // what lies there.
    struct Factor {
        CubeTile* tile;
        bool transposed;
        uint32_t row = 0, column = 0;
        __aicore__ inline uint32_t First() const {
            return column / kFractal * (tile->rows / kFractal) + row / kFractal;
        }
    };

    // Takes all of L0A and L0B; `sums` elements of L0C are shared out by Sum, `halves` elements of L1 by
    // Tile.
    __aicore__ inline void Init(AscendC::TPipe& pipe, uint32_t sums, uint32_t halves) {
        pipe.InitBuffer(left_, 2 * kL0Fractals * kFractalElements * sizeof(half));
        pipe.InitBuffer(right_, 2 * kL0Fractals * kFractalElements * sizeof(half));
        pipe.InitBuffer(sums_, sums * sizeof(float));
        pipe.InitBuffer(tiles_, halves * sizeof(half));
        left16_ = left_.Get<half>();
        right16_ = right_.Get<half>();
        summed_.Init(pipe);
        read_.Init(pipe);
        used_.Init(pipe);
        arrived_.Init(pipe);
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        used_.Take(usedSlot_[0]);
        used_.Take(usedSlot_[1]);
        summed_.Release(pipe);
        read_.Release(pipe);
        used_.Release(pipe);
        for (; oldest_ != newest_; ++oldest_) arrived_.Take(delivery_[oldest_ % kDeliveries].flag);
        arrived_.Release(pipe);
    }

    // Room in L1 for a matrix [rows, columns].
    __aicore__ inline void Tile(CubeTile& tile, uint32_t rows, uint32_t columns) {
        tile.data = tiles_.Get<half>()[tileEnd_];
        tile.rows = rows;
        tileEnd_ += rows * columns;
    }
    // Room in L0C for a matrix of that many elements.
    __aicore__ inline void Sum(CubeSum& sum, uint32_t elements) {
        sum.data = sums_.Get<float>()[sumEnd_];
        sumEnd_ += elements;
    }
    // After the last use.
    __aicore__ inline void Finish(CubeSum& sum) {
        summed_.Take(sum.summed);
        read_.Take(sum.read);
    }

    // tile <- rows [n, columns] in unified buffer, `pitch` elements apart; n <= tile.rows, the rows beyond
    // are left. One burst of 32 bytes per row and fractal.
    __aicore__ inline void FillRows(CubeTile& tile, const AscendC::LocalTensor<half>& src, uint32_t n,
                                    uint32_t columns, uint32_t pitch) {
        BeginFill(tile);
        for (uint32_t c = 0; c < columns; c += kFractal) {
            AscendC::DataCopy(tile.data[c * tile.rows], src[c],
                              AscendC::DataCopyParams(uint16_t(n), 1, uint16_t(pitch / kFractal - 1), 0));
        }
        EndFill(tile);
    }
    // tile, from element `at` on <- `elements` elements in unified buffer in the order of the tile
    __aicore__ inline void Fill(CubeTile& tile, const AscendC::LocalTensor<half>& src, uint32_t elements,
                                uint32_t at = 0) {
        BeginFill(tile);
        AscendC::DataCopy(tile.data[at], src,
                          AscendC::DataCopyParams(1, uint16_t(elements / kFractal), 0, 0));
        EndFill(tile);
    }
    // Rows [row, row + n) of the tile's columns from `column` on <- [columns / 16][n][16] in unified buffer.
    __aicore__ inline void FillBlock(CubeTile& tile, const AscendC::LocalTensor<half>& src, uint32_t n,
                                     uint32_t row, uint32_t columns, uint32_t column = 0) {
        BeginFill(tile);
        AscendC::DataCopy(
            tile.data[column * tile.rows + row * kFractal], src,
            AscendC::DataCopyParams(uint16_t(columns / kFractal), uint16_t(n), 0, uint16_t(tile.rows - n)));
        EndFill(tile);
    }
    // Diagonal fractals of a tile <- fractals one behind the other in unified buffer
    __aicore__ inline void FillDiagonal(CubeTile& tile, const AscendC::LocalTensor<half>& src) {
        BeginFill(tile);
        AscendC::DataCopy(
            tile.data, src,
            AscendC::DataCopyParams(uint16_t(tile.rows / kFractal), kFractal, 0, uint16_t(tile.rows)));
        EndFill(tile);
    }
    // tile, from row `row` on <- rows [n, columns] in global memory, `pitch` elements apart, pitch and
    // columns multiples of 16; `pad`: all other rows of the tile are zero. Goes past unified buffer; reads 32
    // bytes at a time.
    __aicore__ inline void FillRows(CubeTile& tile, const AscendC::GlobalTensor<half>& src, uint32_t n,
                                    uint32_t columns, uint64_t pitch, bool pad = false, uint32_t row = 0) {
        BeginArrival(tile);
        if (pad && n < tile.rows) {
            // Fills whole fractals.
            AscendC::InitConstValue(tile.data,
                                    AscendC::InitConstValueParams<half>(
                                        uint16_t(tile.rows * columns / kFractalElements), half(0)));
            AscendC::PipeBarrier<PIPE_MTE2>();
        }
        for (uint32_t c = 0; c < columns; c += kFractal) {
            AscendC::DataCopy(tile.data[c * tile.rows + row * kFractal], src[c],
                              AscendC::DataCopyParams(uint16_t(n), 1, uint16_t(pitch / kFractal - 1), 0));
        }
        tile.arrived = ++arrivals_;
    }

    // What the caller moves from global memory into the first n rows of a tile, in its order, stands between
    // these two; the rows up to the next multiple of 16 become zero.
    __aicore__ inline void BeginColumns(CubeTile& tile, uint32_t n, uint32_t columns) {
        BeginArrival(tile);
        if (n % kFractal == 0) return;
        for (uint32_t c = 0; c < columns; c += kFractal) {
            AscendC::InitConstValue(tile.data[c * tile.rows + n / kFractal * kFractalElements],
                                    AscendC::InitConstValueParams<half>(1, half(0)));
        }
        AscendC::PipeBarrier<PIPE_MTE2>();
    }
    __aicore__ inline void EndColumns(CubeTile& tile) { tile.arrived = ++arrivals_; }

    // tile <- `elements` elements in global memory in the order of the tile
    __aicore__ inline void Fill(CubeTile& tile, const AscendC::GlobalTensor<half>& src, uint32_t elements) {
        BeginArrival(tile);
        AscendC::DataCopy(tile.data, src, AscendC::DataCopyParams(1, uint16_t(elements / kFractal), 0, 0));
        tile.arrived = ++arrivals_;
    }
    // The tiles filled from global memory so far can be waited for apart from those filled later; at most
    // four such deliveries are on their way.
    __aicore__ inline void Deliver() {
        delivery_[newest_ % kDeliveries] = {arrived_.Raise(), arrivals_};
        ++newest_;
    }
    // dst in unified buffer <- the tile's first elements. MTE1 writes dst: the caller orders that.
    __aicore__ inline void Unload(const AscendC::LocalTensor<half>& dst, CubeTile& tile, uint32_t elements) {
        AwaitTiles(tile, tile);
        AscendC::DataCopy(dst, tile.data, AscendC::DataCopyParams(1, uint16_t(elements / kFractal), 0, 0));
        tile.loaded = ++loads_;
    }

    // Tiles whose products have been issued so far can be filled, once those have loaded them, without a wait
    // for later products.
    __aicore__ inline void Vacate() {
        Order<AscendC::HardEvent::MTE1_MTE3>();
        Order<AscendC::HardEvent::MTE1_MTE2>();
        cleared_ = vacated_ = loads_;
    }

    // MTE1 waits for what fills the tile, and so for what the fill waited for.
    __aicore__ inline void Await(const CubeTile& tile) { AwaitTiles(tile, tile); }

    // sum [m, n] <- (add: sum +) A B, A [m, k], B [k, n] as `a` and `b` say. m, n at most 1024; m, k and n
    // multiples of 16. K is cut so that each part fits into half of L0A and half of L0B. `last`: the sum is
    // fetched before another product is added.
    __aicore__ inline void Multiply(CubeSum& sum, const Factor& a, const Factor& b, uint32_t m, uint32_t n,
                                    uint32_t k, bool add, bool last = true) {
        AwaitTiles(*a.tile, *b.tile);
        const uint32_t rows = m / kFractal, columns = n / kFractal, depth = k / kFractal;
        const uint32_t wide = rows > columns ? rows : columns, most = kL0Fractals / wide;
        const uint32_t leftPitch = a.tile->rows / kFractal, rightPitch = b.tile->rows / kFractal;
        for (uint32_t done = 0; done < depth; done += most) {
            const uint32_t part = depth - done < most ? depth - done : most, slot = slot_;
            slot_ ^= 1;
            used_.Take(usedSlot_[slot]);
            const uint32_t half = slot * kL0Fractals * kFractalElements;
            // L0A [m][k] of fractals; L0B [k][n] of fractals whose rows run along n.
            const uint32_t at = done * kFractal;
            if (a.transposed) {
                LoadFractals(left16_[half], a.tile->data[(a.First() + done) * kFractalElements], rows, part,
                             leftPitch, 1, true);
            } else {
                LoadWindow(left16_[half], a, 0, at, m, part * kFractal);
            }
            if (b.transposed) {
                LoadFractals(right16_[half], b.tile->data[(b.First() + done * rightPitch) * kFractalElements],
                             part, columns, rightPitch, 1, false);
            } else {
                LoadWindow(right16_[half], b, at, 0, part * kFractal, n);
            }
            Order<AscendC::HardEvent::MTE1_M>();
            if (done == 0) {
                summed_.Take(sum.summed);
                read_.Take(sum.read);
            }
            AscendC::Mmad(sum.data, left16_[half], right16_[half],
                          AscendC::MmadParams(uint16_t(m), uint16_t(n), uint16_t(part * kFractal), 0, false,
                                              !add && done == 0));
            // Small products overtake each other.
            if (rows * columns < 10) AscendC::PipeBarrier<PIPE_M>();
            usedSlot_[slot] = used_.Raise();
        }
        a.tile->loaded = b.tile->loaded = ++loads_;
        if (last) sum.summed = summed_.Raise();
    }

    // dst [rows, columns] <- rows of a sum of `height` rows from row `row` on; a vector call. `last` as
    // below.
    template <typename T>
    __aicore__ inline void FetchRows(const AscendC::LocalTensor<T>& dst, CubeSum& sum, uint32_t row,
                                     uint32_t rows, uint32_t columns, uint32_t height, bool last) {
        summed_.Take(sum.summed);
        AscendC::DataCopyEnhancedParams matrix;
        matrix.blockMode = AscendC::BlockMode::BLOCK_MODE_MATRIX;
        AscendC::DataCopy(dst, sum.data[row * kFractal],
                          AscendC::DataCopyParams(uint16_t(columns / kFractal), uint16_t(rows / kFractal),
                                                  uint16_t((height - rows) / kFractal), 0),
                          matrix);
        if (last) sum.read = read_.Raise();
    }
    // dst <- `elements` elements of the sum from element `at` on, in their order; a vector call. `last`: the
    // sum is free for another product. Into fp16 it rounds on the way.
    template <typename T>
    __aicore__ inline void Fetch(const AscendC::LocalTensor<T>& dst, CubeSum& sum, uint32_t elements,
                                 uint32_t at = 0, bool last = true) {
        summed_.Take(sum.summed);
        AscendC::DataCopyEnhancedParams matrix;
        matrix.blockMode = AscendC::BlockMode::BLOCK_MODE_MATRIX;
        AscendC::DataCopy(dst, sum.data[at],
                          AscendC::DataCopyParams(1, uint16_t(elements / kFractalElements), 0, 0), matrix);
        if (last) sum.read = read_.Raise();
    }

 private:
    // dst <- rows [row, row + m), columns [column, column + n) of a factor that is not transposed, in one
    // call: its columns of fractals are the lines of a map of 16 channels (this part takes no further
    // multiple of 16), over which a window as high as the map and one pixel wide moves.
    __aicore__ inline void LoadWindow(const AscendC::LocalTensor<half>& dst, const Factor& f, uint32_t row,
                                      uint32_t column, uint32_t m, uint32_t n) {
        const uint8_t none[4] = {0, 0, 0, 0};
        const uint32_t lines = (f.column + column + n) / kFractal;
        AscendC::LoadData(dst, f.tile->data,
                          AscendC::LoadData3DParamsV2<half>(
                              none, uint16_t(lines), uint16_t(f.tile->rows), kFractal, uint16_t(n),
                              uint16_t(m), uint16_t(f.column + column), uint16_t(f.row + row), 1, 1, 1,
                              uint8_t(lines), 1, 1, false, false, half(0)));
    }
    __aicore__ inline void BeginFill(CubeTile& tile) {
        if (tile.loaded > cleared_) {
            Order<AscendC::HardEvent::MTE1_MTE3>();
            cleared_ = loads_;
        }
        Order<AscendC::HardEvent::V_MTE3>();
    }
    __aicore__ inline void BeginArrival(CubeTile& tile) {
        if (tile.filled != 0) Order<AscendC::HardEvent::MTE3_MTE2>();
        if (tile.loaded > vacated_) {
            Order<AscendC::HardEvent::MTE1_MTE2>();
            vacated_ = loads_;
        }
    }
    // MTE1 waits for what fills the two.
    __aicore__ inline void AwaitTiles(const CubeTile& a, const CubeTile& b) {
        if (a.filled > seen_ || b.filled > seen_) {
            Order<AscendC::HardEvent::MTE3_MTE1>();
            seen_ = fills_;
        }
        const uint32_t wanted = a.arrived > b.arrived ? a.arrived : b.arrived;
        for (; wanted > met_ && oldest_ != newest_; ++oldest_) {
            arrived_.Take(delivery_[oldest_ % kDeliveries].flag);
            met_ = delivery_[oldest_ % kDeliveries].last;
        }
        if (wanted > met_) {
            Order<AscendC::HardEvent::MTE2_MTE1>();
            met_ = arrivals_;
        }
    }
    __aicore__ inline void EndFill(CubeTile& tile) { tile.filled = ++fills_; }

    AscendC::TBuf<AscendC::TPosition::A1> tiles_;
    AscendC::TBuf<AscendC::TPosition::A2> left_;
    AscendC::TBuf<AscendC::TPosition::B2> right_;
    AscendC::TBuf<AscendC::TPosition::CO1> sums_;
    AscendC::LocalTensor<half> left16_, right16_;
    FlagPool<AscendC::HardEvent::M_V> summed_;
    FlagPool<AscendC::HardEvent::V_M> read_;
    FlagPool<AscendC::HardEvent::M_MTE1> used_;
    static constexpr uint32_t kDeliveries = 4;
    struct Delivery {
        uint32_t flag, last;
    };
    FlagPool<AscendC::HardEvent::MTE2_MTE1> arrived_;
    Delivery delivery_[kDeliveries];
    uint32_t oldest_ = 0, newest_ = 0;
    uint32_t usedSlot_[2] = {kNoFlag, kNoFlag};
    uint32_t slot_ = 0, tileEnd_ = 0, sumEnd_ = 0;
    // Issued: fills by MTE3, by MTE2, loads. Of these, waited for: by MTE1, by MTE1, by MTE3 and by MTE2.
    uint32_t fills_ = 0, arrivals_ = 0, loads_ = 0, seen_ = 0, met_ = 0, cleared_ = 0, vacated_ = 0;
};

// dst [m, pitch] in rows <- src [m, n] in columns of fractals
__aicore__ inline void ToRows(const FloatTensor& dst, const FloatTensor& src, uint32_t m, uint32_t n,
                              uint32_t pitch) {
    for (uint32_t c = 0; c < n; c += kFractal) {
        AscendC::DataCopy(dst[c], src[c * m],
                          AscendC::DataCopyParams(uint16_t(m), 2, 0, uint16_t((pitch - kFractal) / 8)));
    }
}

// high + low <- src, |src| < 65504: low holds what rounding to high lost, to 2^-25. rest: as large as src.
__aicore__ inline void SplitHalves(const AscendC::LocalTensor<half>& high,
                                   const AscendC::LocalTensor<half>& low, const FloatTensor& src,
                                   const FloatTensor& rest, uint32_t elements) {
    AscendC::Cast(high, src, AscendC::RoundMode::CAST_NONE, elements);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Cast(rest, high, AscendC::RoundMode::CAST_NONE, elements);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Sub(rest, src, rest, int32_t(elements));
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Cast(low, rest, AscendC::RoundMode::CAST_NONE, elements);
}

}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_CUBE_310P_H_
