// Pieces of matrix products on the cube core of ascend910b, where cube (AIC) and vector cores (AIV) are
// apart:
//
//   GM rows --LoadMatrix--> L1 columns of fractals --LoadA/LoadB--> L0A, L0B --Mmad--> L0C, fp32
//   L0C --StoreRows--> GM rows, or --StoreMatrix--> L1, where it is an operand again
//
// A fractal is 16 rows of 32 bytes. Sizes in elements need not be multiples of 16: m, n and k are those of
// the product, `height` is what a matrix in L1 was laid out with. Rows and columns beyond a matrix may hold
// anything: no product reads beyond m, n and k, and none of its results there is stored.
//
// Order between the pipes, as events: MTE2_MTE1 (L1 loaded), MTE1_MTE2 (L1 free again), FIX_MTE1 (L1 written
// by StoreMatrix). What CubeUnit hides: MTE1_M, M_MTE1, M_FIX and FIX_M.
#ifndef HYBRID_OPS_KERNEL_CUBE_910B_H_
#define HYBRID_OPS_KERNEL_CUBE_910B_H_

#include "soc.h"

namespace hybrid_ops {

constexpr uint32_t kCubeSide = 16;  // rows of a fractal
template <typename T>
constexpr uint32_t kFractalColumns = 32 / sizeof(T);  // columns of a fractal
template <typename T>
constexpr uint32_t kFractalElements = 512 / sizeof(T);

// A matrix in L1: columns of fractals, `height` rows each, a multiple of 16.
template <typename T>
struct CubeMatrix {
    AscendC::LocalTensor<T> data;
    uint32_t height;
};

// Elements of L1 that a matrix takes.
template <typename T>
__aicore__ inline uint32_t MatrixElements(uint32_t height, uint32_t columns) {
    return height * RoundUp(columns, kFractalColumns<T>);
}

// L1 <- rows x columns, rows `pitch` elements apart in GM. On MTE2; columns are padded with zeros to whole
// fractals, rows are not, but a single row is laid down twice: a product with m = 1 runs with m = 2, as the
// unit would read the left operand of m = 1 as a plain row.
template <typename T>
__aicore__ inline void LoadMatrix(const CubeMatrix<T>& dst, const AscendC::GlobalTensor<T>& src,
                                  uint32_t rows, uint32_t columns, uint32_t pitch) {
    constexpr uint32_t kMostPitch = 65535;  // srcDValue has 16 bits
    if (rows > 1 && pitch <= kMostPitch) {
        AscendC::DataCopy(dst.data, src, AscendC::Nd2NzParams(1, rows, columns, 0, pitch, dst.height, 1, 0));
        return;
    }
    if (rows == 1) {
        AscendC::DataCopy(dst.data[kFractalColumns<T>], src,
                          AscendC::Nd2NzParams(1, 1, columns, 0, columns, dst.height, 1, 0));
    }
    for (uint32_t r = 0; r < rows; ++r) {
        AscendC::DataCopy(dst.data[r * kFractalColumns<T>], src[uint64_t(r) * pitch],
                          AscendC::Nd2NzParams(1, 1, columns, 0, columns, dst.height, 1, 0));
    }
}

namespace cube {

template <typename T>
__aicore__ inline void Fractals(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src,
                                uint32_t count, uint32_t stride, bool transpose) {
    AscendC::LoadData(dst, src,
                      AscendC::LoadData2DParams(0, uint8_t(count), uint16_t(stride), 0, 0, transpose, 0));
}

// L0A <- A[m, k]; `src` holds A, or with kTransposed (16-bit elements) its transpose [k, m].
template <bool kTransposed, typename T>
__aicore__ inline void LoadA(const AscendC::LocalTensor<T>& dst, const CubeMatrix<T>& src, uint32_t m,
                             uint32_t k) {
    static_assert(!kTransposed || sizeof(T) == 2, "transposed operands have 16-bit elements");
    constexpr uint32_t kOne = kFractalElements<T>;
    const uint32_t high = RoundUp(m, kCubeSide) / kCubeSide, column = src.height / kCubeSide;
    const uint32_t deep = RoundUp(k, kFractalColumns<T>) / kFractalColumns<T>;
    for (uint32_t i = 0; i < high; ++i) {
        Fractals(dst[i * deep * kOne], src.data[(kTransposed ? i * column : i) * kOne], deep,
                 kTransposed ? 1 : column, kTransposed);
    }
}

// L0B <- B[k, n]; `src` holds B^T [n, k], or with kTransposed (16-bit elements) B itself [k, n].
template <bool kTransposed, typename T>
__aicore__ inline void LoadB(const AscendC::LocalTensor<T>& dst, const CubeMatrix<T>& src, uint32_t n,
                             uint32_t k) {
    static_assert(!kTransposed || sizeof(T) == 2, "transposed operands have 16-bit elements");
    constexpr uint32_t kOne = kFractalElements<T>, kMostFractals = 255;
    const uint32_t wide = RoundUp(n, kCubeSide) / kCubeSide, column = src.height / kCubeSide;
    const uint32_t deep = RoundUp(k, kFractalColumns<T>) / kFractalColumns<T>;
    if (!kTransposed && column == wide && wide * deep <= kMostFractals) {
        Fractals(dst, src.data, wide * deep, 1, false);
        return;
    }
    for (uint32_t j = 0; j < deep; ++j) {
        Fractals(dst[j * wide * kOne], src.data[(kTransposed ? j : j * column) * kOne], wide,
                 kTransposed ? column : 1, kTransposed);
    }
}

template <typename D>
__aicore__ inline QuantMode_t Rounding() {
    if constexpr (AscendC::IsSameType<D, half>::value) return QuantMode_t::F322F16;
    if constexpr (AscendC::IsSameType<D, bfloat16_t>::value) return QuantMode_t::F322BF16;
    return QuantMode_t::NoQuant;
}

}  // namespace cube

// The matrix unit with L0A and L0B in two halves each: one is loaded while the other is multiplied. Results
// are in L0C, in two halves of 64 KB; a product takes the one that was ended first. A product:
//
//   auto c = unit.Begin();                 // waits until the half is free
//   unit.Add<false, false>(c, A, B, m, n, k, true);   // c = A B
//   unit.Add<false, false>(c, C, D, m, n, k);         // c += C D, any number
//   unit.Ready(c);                         // FIX may read what M wrote
//   unit.StoreRows(gm, c, m, n, pitch);    // and StoreMatrix, Add and Ready again, any number
//   unit.End(c);
//
// Operands of one Add fill at most half of L0A (m * k) and of L0B (n * k): 32 KB.
class CubeUnit {
 public:
    static constexpr uint32_t kOperandBytes = 32768, kResultBytes = 65536;
    struct Result {
        AscendC::LocalTensor<float> data;
        uint32_t half;
    };

    __aicore__ inline void Init(AscendC::TPipe& pipe) {
        pipe.InitBuffer(left_, 2 * kOperandBytes);
        pipe.InitBuffer(right_, 2 * kOperandBytes);
        pipe.InitBuffer(results_, 2 * kResultBytes);
        for (uint32_t i = 0; i < 2; ++i) {
            loaded_[i] = static_cast<event_t>(pipe.AllocEventID<AscendC::HardEvent::MTE1_M>());
            used_[i] = static_cast<event_t>(pipe.AllocEventID<AscendC::HardEvent::M_MTE1>());
            summed_[i] = static_cast<event_t>(pipe.AllocEventID<AscendC::HardEvent::M_FIX>());
            stored_[i] = static_cast<event_t>(pipe.AllocEventID<AscendC::HardEvent::FIX_M>());
            AscendC::SetFlag<AscendC::HardEvent::M_MTE1>(used_[i]);
            AscendC::SetFlag<AscendC::HardEvent::FIX_M>(stored_[i]);
        }
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        for (uint32_t i = 0; i < 2; ++i) {
            AscendC::WaitFlag<AscendC::HardEvent::M_MTE1>(used_[i]);
            AscendC::WaitFlag<AscendC::HardEvent::FIX_M>(stored_[i]);
            pipe.ReleaseEventID<AscendC::HardEvent::MTE1_M>(loaded_[i]);
            pipe.ReleaseEventID<AscendC::HardEvent::M_MTE1>(used_[i]);
            pipe.ReleaseEventID<AscendC::HardEvent::M_FIX>(summed_[i]);
            pipe.ReleaseEventID<AscendC::HardEvent::FIX_M>(stored_[i]);
        }
    }

    __aicore__ inline Result Begin() {
        const uint32_t half = open_[ended_ ^ 1] ? ended_ : ended_ ^ 1;
        open_[half] = true;
        AscendC::WaitFlag<AscendC::HardEvent::FIX_M>(stored_[half]);
        return {results_.template Get<float>()[half * (kResultBytes / sizeof(float))], half};
    }
    // c = A B with `first`, else c += A B; kLeft, kRight: `a` holds A^T, `b` holds B instead of A and B^T.
    template <bool kLeft, bool kRight, typename T>
    __aicore__ inline void Add(const Result& c, const CubeMatrix<T>& a, const CubeMatrix<T>& b, uint32_t m,
                               uint32_t n, uint32_t k, bool first = false) {
        if (m == 0 || n == 0 || k == 0) return;
        turn_ ^= 1;
        const uint32_t at = turn_ * (kOperandBytes / sizeof(T));
        const AscendC::LocalTensor<T> left = left_.template Get<T>()[at],
                                      right = right_.template Get<T>()[at];
        AscendC::WaitFlag<AscendC::HardEvent::M_MTE1>(used_[turn_]);
        cube::LoadA<kLeft>(left, a, m, k);
        cube::LoadB<kRight>(right, b, n, k);
        AscendC::SetFlag<AscendC::HardEvent::MTE1_M>(loaded_[turn_]);
        AscendC::WaitFlag<AscendC::HardEvent::MTE1_M>(loaded_[turn_]);
        Multiply(c, left, right, m, n, k, first);
        AscendC::SetFlag<AscendC::HardEvent::M_MTE1>(used_[turn_]);
    }
    // c = (A + D) B with `first`, else c += (A + D) B: B is loaded once where both left operands fit into a
    // half.
    template <bool kLeft, bool kRight, typename T>
    __aicore__ inline void AddBoth(const Result& c, const CubeMatrix<T>& a, const CubeMatrix<T>& d,
                                   const CubeMatrix<T>& b, uint32_t m, uint32_t n, uint32_t k,
                                   bool first = false) {
        const uint32_t elements = RoundUp(m, kCubeSide) * RoundUp(k, kFractalColumns<T>);
        if (2 * elements * sizeof(T) > kOperandBytes) {
            Add<kLeft, kRight>(c, a, b, m, n, k, first);
            Add<kLeft, kRight>(c, d, b, m, n, k);
            return;
        }
        if (m == 0 || n == 0 || k == 0) return;
        turn_ ^= 1;
        const uint32_t at = turn_ * (kOperandBytes / sizeof(T));
        const AscendC::LocalTensor<T> left = left_.template Get<T>()[at],
                                      right = right_.template Get<T>()[at];
        AscendC::WaitFlag<AscendC::HardEvent::M_MTE1>(used_[turn_]);
        cube::LoadA<kLeft>(left, a, m, k);
        cube::LoadA<kLeft>(left[elements], d, m, k);
        cube::LoadB<kRight>(right, b, n, k);
        AscendC::SetFlag<AscendC::HardEvent::MTE1_M>(loaded_[turn_]);
        AscendC::WaitFlag<AscendC::HardEvent::MTE1_M>(loaded_[turn_]);
        Multiply(c, left, right, m, n, k, first);
        Multiply(c, left[elements], right, m, n, k, false);
        AscendC::SetFlag<AscendC::HardEvent::M_MTE1>(used_[turn_]);
    }
    // c = A B with `first`, else c += A B, where B is block-diagonal: every 16 columns of A times the one
    // fractal `b`. A multiple of the identity costs an n-th of a product this way.
    template <typename T>
    __aicore__ inline void AddScaled(const Result& c, const CubeMatrix<T>& a,
                                     const AscendC::LocalTensor<T>& b, uint32_t m, uint32_t n,
                                     bool first = false) {
        static_assert(sizeof(T) == 2, "columns of fractals are 16 wide");
        const uint32_t high = RoundUp(m, kCubeSide) / kCubeSide, wide = RoundUp(n, kCubeSide) / kCubeSide;
        turn_ ^= 1;
        const uint32_t at = turn_ * (kOperandBytes / sizeof(T)), step = high * kFractalElements<T>;
        const AscendC::LocalTensor<T> left = left_.template Get<T>()[at],
                                      right = right_.template Get<T>()[at];
        AscendC::WaitFlag<AscendC::HardEvent::M_MTE1>(used_[turn_]);
        if (a.height == high * kCubeSide && high * wide <= 255) {
            cube::Fractals(left, a.data, high * wide, 1, false);
        } else {
            for (uint32_t j = 0; j < wide; ++j) {
                cube::Fractals(left[j * step], a.data[j * a.height * kCubeSide], high, 1, false);
            }
        }
        cube::Fractals(right, b, 1, 1, false);
        AscendC::SetFlag<AscendC::HardEvent::MTE1_M>(loaded_[turn_]);
        AscendC::WaitFlag<AscendC::HardEvent::MTE1_M>(loaded_[turn_]);
        AscendC::PipeBarrier<PIPE_M>();
        const AscendC::MmadParams params(m == 1 ? 2 : m, kCubeSide, kCubeSide, 0, false, first);
        for (uint32_t j = 0; j < wide; ++j) {
            AscendC::Mmad(c.data[j * step], left[j * step], right, params);
        }
        AscendC::PipeBarrier<PIPE_M>();
        AscendC::SetFlag<AscendC::HardEvent::M_MTE1>(used_[turn_]);
    }
    // c[m, n] = A D with `first`, else c += A D, D the sum of `parts` diagonal matrices; `a` holds A^T, `b`
    // for each part the blocks of 16 x 16 on the diagonal, one behind the other. Costs a quarter of a product
    // of 64 x 64 matrices and no matrix of zeros.
    template <typename T>
    __aicore__ inline void AddDiagonal(const Result& c, const CubeMatrix<T>& a, const CubeMatrix<T>* b,
                                       uint32_t parts, uint32_t m, uint32_t n, bool first = false) {
        static_assert(sizeof(T) == 2, "columns of fractals are 16 wide");
        constexpr uint32_t kOne = kFractalElements<T>;
        const uint32_t high = RoundUp(m, kCubeSide) / kCubeSide, wide = RoundUp(n, kCubeSide) / kCubeSide;
        turn_ ^= 1;
        const uint32_t at = turn_ * (kOperandBytes / sizeof(T)), step = high * kOne;
        const AscendC::LocalTensor<T> left = left_.template Get<T>()[at],
                                      right = right_.template Get<T>()[at];
        AscendC::WaitFlag<AscendC::HardEvent::M_MTE1>(used_[turn_]);
        for (uint32_t j = 0; j < wide; ++j) {
            cube::Fractals(left[j * step], a.data[j * kOne], high, a.height / kCubeSide, true);
        }
        for (uint32_t i = 0; i < parts; ++i)
            cube::Fractals(right[i * wide * kOne], b[i].data, wide, 1, false);
        AscendC::SetFlag<AscendC::HardEvent::MTE1_M>(loaded_[turn_]);
        AscendC::WaitFlag<AscendC::HardEvent::MTE1_M>(loaded_[turn_]);
        for (uint32_t i = 0; i < parts; ++i) {
            AscendC::PipeBarrier<PIPE_M>();
            for (uint32_t j = 0; j < wide; ++j) {
                const uint32_t left16 = n - j * kCubeSide, k = left16 < kCubeSide ? left16 : kCubeSide;
                const AscendC::MmadParams params(m == 1 ? 2 : m, kCubeSide, k, 0, false, first && i == 0);
                AscendC::Mmad(c.data[j * step], left[j * step], right[(i * wide + j) * kOne], params);
            }
        }
        AscendC::PipeBarrier<PIPE_M>();
        AscendC::SetFlag<AscendC::HardEvent::M_MTE1>(used_[turn_]);
    }
    __aicore__ inline void Ready(const Result& c) {
        AscendC::SetFlag<AscendC::HardEvent::M_FIX>(summed_[c.half]);
        AscendC::WaitFlag<AscendC::HardEvent::M_FIX>(summed_[c.half]);
    }
    // GM rows <- c[m, n], `pitch` elements apart, rounded to D.
    template <typename D>
    __aicore__ inline void StoreRows(const AscendC::GlobalTensor<D>& dst, const Result& c, uint32_t m,
                                     uint32_t n, uint32_t pitch) {
        AscendC::Fixpipe<D, float, AscendC::CFG_ROW_MAJOR>(
            dst, c.data,
            AscendC::FixpipeParamsV220(n, m, RoundUp(m, kCubeSide), pitch, false, cube::Rounding<D>(), 0, 1,
                                       0, 0, 0));
    }
    // L1 <- c[m, n], rounded to D (half or bfloat16), in whole fractals: columns up to a multiple of 16 must
    // come from the product, so its n is one and its right operand has zeros there.
    template <typename D>
    __aicore__ inline void StoreMatrix(const CubeMatrix<D>& dst, const Result& c, uint32_t m, uint32_t n) {
        AscendC::Fixpipe<D, float, AscendC::CFG_NZ>(
            dst.data, c.data,
            AscendC::FixpipeParamsV220(RoundUp(n, kCubeSide), m == 1 ? 2 : m, RoundUp(m, kCubeSide),
                                       dst.height, false, cube::Rounding<D>(), 0, 1, 0, 0, 0));
    }
    __aicore__ inline void End(const Result& c) {
        open_[c.half] = false;
        ended_ = c.half;
        AscendC::SetFlag<AscendC::HardEvent::FIX_M>(stored_[c.half]);
    }

 private:
    static constexpr uint32_t kFewBlocks = 10;

    template <typename T>
    __aicore__ inline void Multiply(const Result& c, const AscendC::LocalTensor<T>& left,
                                    const AscendC::LocalTensor<T>& right, uint32_t m, uint32_t n, uint32_t k,
                                    bool first) {
        const uint32_t rows = m == 1 ? 2 : m;  // see LoadMatrix
        // Products of few whole fractals can overtake each other on the way to L0C.
        const uint32_t blocks = m / kCubeSide * (n / kCubeSide);
        if (!first && blocks < kFewBlocks) AscendC::PipeBarrier<PIPE_M>();
        AscendC::Mmad(c.data, left, right, AscendC::MmadParams(rows, n, k, 0, false, first));
    }

    AscendC::TBuf<AscendC::TPosition::A2> left_;
    AscendC::TBuf<AscendC::TPosition::B2> right_;
    AscendC::TBuf<AscendC::TPosition::CO1> results_;
    event_t loaded_[2], used_[2], summed_[2], stored_[2];
    uint32_t turn_ = 0, ended_ = 0;
    bool open_[2] = {false, false};
};

// A product with a long k, from GM: L1 holds two steps of `step` columns, one is loaded while the other is
// multiplied. T: half, bfloat16_t or (kRight false) float.
template <typename T, bool kRight>
class LongProduct {
 public:
    // Room for m x step of A and n x step of B, twice.
    __aicore__ inline void Init(AscendC::TPipe& pipe, uint32_t m, uint32_t n, uint32_t step) {
        step_ = step;
        heights_[0] = RoundUp(m, kCubeSide);
        heights_[1] = RoundUp(kRight ? step : n, kCubeSide);
        leftElements_ = MatrixElements<T>(heights_[0], step);
        rightElements_ = MatrixElements<T>(heights_[1], kRight ? n : step);
        pipe.InitBuffer(left_, 2 * leftElements_ * sizeof(T));
        pipe.InitBuffer(right_, 2 * rightElements_ * sizeof(T));
        for (uint32_t i = 0; i < 2; ++i) {
            loaded_[i] = static_cast<event_t>(pipe.AllocEventID<AscendC::HardEvent::MTE2_MTE1>());
            used_[i] = static_cast<event_t>(pipe.AllocEventID<AscendC::HardEvent::MTE1_MTE2>());
            AscendC::SetFlag<AscendC::HardEvent::MTE1_MTE2>(used_[i]);
        }
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        for (uint32_t i = 0; i < 2; ++i) {
            AscendC::WaitFlag<AscendC::HardEvent::MTE1_MTE2>(used_[i]);
            pipe.ReleaseEventID<AscendC::HardEvent::MTE2_MTE1>(loaded_[i]);
            pipe.ReleaseEventID<AscendC::HardEvent::MTE1_MTE2>(used_[i]);
        }
    }
    // c = A[m, k] B; a: rows `pitchA` apart; b: B^T [n, k] or, with kRight, B [k, n], rows `pitchB` apart.
    __aicore__ inline void Run(CubeUnit& unit, const CubeUnit::Result& c, const AscendC::GlobalTensor<T>& a,
                               uint32_t pitchA, const AscendC::GlobalTensor<T>& b, uint32_t pitchB,
                               uint32_t m, uint32_t n, uint32_t k) {
        for (uint32_t at = 0; at < k; at += step_) {
            const uint32_t some = k - at < step_ ? k - at : step_;
            turn_ ^= 1;
            const CubeMatrix<T> left{left_.template Get<T>()[turn_ * leftElements_], heights_[0]};
            const CubeMatrix<T> right{right_.template Get<T>()[turn_ * rightElements_], heights_[1]};
            AscendC::WaitFlag<AscendC::HardEvent::MTE1_MTE2>(used_[turn_]);
            LoadMatrix(left, a[at], m, some, pitchA);
            if constexpr (kRight) {
                LoadMatrix(right, b[uint64_t(at) * pitchB], some, n, pitchB);
            } else {
                LoadMatrix(right, b[at], n, some, pitchB);
            }
            AscendC::SetFlag<AscendC::HardEvent::MTE2_MTE1>(loaded_[turn_]);
            AscendC::WaitFlag<AscendC::HardEvent::MTE2_MTE1>(loaded_[turn_]);
            unit.template Add<false, kRight>(c, left, right, m, n, some, at == 0);
            AscendC::SetFlag<AscendC::HardEvent::MTE1_MTE2>(used_[turn_]);
        }
    }

 private:
    AscendC::TBuf<AscendC::TPosition::A1> left_;
    AscendC::TBuf<AscendC::TPosition::B1> right_;
    event_t loaded_[2], used_[2];
    uint32_t step_ = 0, heights_[2] = {}, leftElements_ = 0, rightElements_ = 0, turn_ = 0;
};

// Handshake between the cube core and the vector cores of one AI Core. Data goes through GM; the setter names
// the pipe that wrote it (cube: PIPE_FIX; vector: PIPE_MTE3), and everything that this pipe has waited for is
// known to whoever awaits the flag. A flag set by the cube core reaches every vector core; one set by the
// vector cores reaches the cube core when all of them have set it, so vector cores must set the same flags
// equally often, also one without work. Flags count: at most 15 may be pending; each set needs its wait, or
// the next kernel meets it. Overwriting shared GM needs an order as well: the writer must have awaited a flag
// that its readers set afterwards, and begins with a PipeBarrier of the pipe that writes, as moves of one
// pipe overlap.
template <pipe_t kPipe>
__aicore__ inline void Signal(uint16_t flag) {
    AscendC::CrossCoreSetFlag<2, kPipe>(flag);
}
__aicore__ inline void Await(uint16_t flag) { AscendC::CrossCoreWaitFlag(flag); }

}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_CUBE_910B_H_
