// The cube path on split cores: chunks of 64 tokens (Yang et al., arXiv:2412.06464, section 3.3), products on
// the cube core (cube_910b_products.h), gates, inverse and the state in fp32 on two vector cores, one unit
// each.
#ifndef HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_H_
#define HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_H_

#include "cube_910b_prepare.h"
#include "cube_910b_products.h"
#include "vector_path.h"

namespace hybrid_ops {
namespace cgdr {
namespace split {

template <typename T, typename StateT>
class VectorSide {
 public:
    __aicore__ inline VectorSide(const Data& t, const Layout& layout, GM_ADDR workspace, const Arguments& a)
        : t_(t),
          layout_(layout),
          workspace_(workspace),
          unit_(uint32_t(AscendC::GetSubBlockIdx())),
          resident_(Resident(sizeof(StateT), t.keyPitch, t.valueDim)),
          arguments_(a),
          prepare_(t, layout, workspace, local_, a) {
        initial_.SetGlobalBuffer((__gm__ StateT*)a.initial);
        final_.SetGlobalBuffer((__gm__ StateT*)a.final);
        out_.SetGlobalBuffer((__gm__ T*)a.out);
    }
    __aicore__ inline void Init(AscendC::TPipe& pipe) {
        InitLocal(pipe);
        if (unit_ != 0) return;
        AscendC::Cast(local_.scores, local_.identity, AscendC::RoundMode::CAST_NONE, kMatrix);
        PipeBarrier<PIPE_V>();
        AscendC::Muls(local_.scores, local_.scores, -1.0f, int32_t(kMatrix));
        PipeBarrier<PIPE_V>();
        local_.template StoreRounded<T>(Shared<T>(layout_.Identity()), local_.scores, kChunk, kChunk, kChunk,
                                        kChunk);
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        for (uint32_t i = 0; i < kPieces; ++i) pipe.ReleaseEventID<HardEvent::MTE2_V>(fetched_[i]);
        local_.Release(pipe);
    }

    __aicore__ inline void Process(AscendC::TPipe& pipe, Walk& walk) {
        Work work;
        while (walk.Next(work)) {
            if (unit_ < work.units) {
                const Unit unit(t_, work.unit + unit_);
                ProcessUnit(work, unit);
                if (work.chunks != 0 && Spoilt(work, unit)) Repair(pipe, work, unit);
            } else {
                Idle(work);
            }
        }
        AwaitDone();
        ZeroRows(walk);
    }

 private:
    template <typename U>
    __aicore__ inline GlobalTensor<U> Shared(uint64_t bytes) const {
        GlobalTensor<U> tensor;
        tensor.SetGlobalBuffer((__gm__ U*)(workspace_ + bytes));
        return tensor;
    }
    __aicore__ inline void InitLocal(AscendC::TPipe& pipe) {
        local_.Init(pipe, t_, layout_.stateElements, resident_);
        for (uint32_t i = 0; i < kPieces; ++i) {
            fetched_[i] = static_cast<event_t>(pipe.AllocEventID<HardEvent::MTE2_V>());
        }
    }
    // The other vector core has a unit, this one has none: the same flags.
    __aicore__ inline void Idle(const Work& work) {
        if (work.chunks == 0) return;
        for (uint32_t i = 0; i < work.chunks; ++i) {
            if (!resident_) Signal<PIPE_MTE3>(kStateReady);
            Await(kScored);
            Signal<PIPE_MTE3>(kPrepared);
            Await(kUpdated);
        }
        Await(kDone);
    }
    __aicore__ inline void ProcessUnit(const Work& work, const Unit& unit) {
        AscendC::Duplicate(local_.seen, 0.0f, int32_t(kChunk));
        if (resident_ && work.chunks != 0) {
            PrepareChunk(work, unit, 0);
            for (uint32_t i = 0; i < work.chunks; ++i) {
                if (i + 1 < work.chunks) PrepareChunk(work, unit, i + 1);
                Await(kUpdated);
            }
            undone_ = true;
            return;
        }
        LoadState(work, unit);
        if (work.chunks != 0) {
            ShareState(unit);
            PrepareChunk(work, unit, 0);
        }
        for (uint32_t i = 0; i < work.chunks; ++i) {
            if (i + 1 < work.chunks) PrepareChunk(work, unit, i + 1);
            Await(kUpdated);
            Update(unit, i + 1 < work.chunks);
        }
        StoreState(work, unit);
        undone_ = work.chunks != 0;
    }
    // What a unit stores of its last item; a signal that comes before the scores of the next one.
    __aicore__ inline void AwaitDone() {
        if (undone_) Await(kDone);
        undone_ = false;
    }
    // Whether the unit met what is not finite. Products of chunks then spread it over the tokens of a chunk,
    // also to those before it and to those that a gate made forget it: 0 times infinity. From a state, keys
    // or corrected values it gets into every column of its row of the next state, and stays: some columns of
    // the last state tell; queries are told apart.
    __aicore__ inline bool Spoilt(const Work& work, const Unit& unit) {
        const FloatTensor &found = local_.scratch, sums = found[kMatrix];
        uint32_t n = 0;
        if (resident_) {
            constexpr uint32_t kColumns = kBlockBytes / sizeof(T);
            const LocalTensor<StateT> staged = sums.template ReinterpretCast<StateT>();
            AwaitDone();
            n = unit.rows * kColumns;
            Order<HardEvent::V_MTE2>();
            LoadRows(staged, final_[StateAt(work, unit)], unit.rows, kColumns, t_.keyDim, kColumns);
            Order<HardEvent::MTE2_V>();
            Convert(found, staged, n);
            PipeBarrier<PIPE_V>();
            AscendC::Muls(found, found, 0.0f, int32_t(n));
        } else {
            const uint32_t pitch = t_.keyPitch / kFloatBlock;
            for (uint32_t r = 0; r < unit.Padded(); r += kFloatBlock, n += kFloatLanes) {
                AscendC::Muls(found[n], local_.state[r * t_.keyPitch], 0.0f, uint64_t(kFloatLanes), 1,
                              AscendC::UnaryRepeatParams(1, uint16_t(pitch), 8, 8));
            }
        }
        // Zeros, or NaN: one sum for every repeat, one for all.
        AscendC::Adds(found[n], local_.seen, 0.0f, int32_t(kChunk));
        n += kChunk;
        const uint32_t repeats = (n + kFloatLanes - 1) / kFloatLanes;
        PipeBarrier<PIPE_V>();
        if (n % kFloatLanes != 0) {
            AscendC::Muls(found[n], found, 0.0f, int32_t(kFloatLanes - n % kFloatLanes));
            PipeBarrier<PIPE_V>();
        }
        AscendC::WholeReduceSum(sums, found, int32_t(kFloatLanes), int32_t(repeats), 1, 1, 8);
        PipeBarrier<PIPE_V>();
        AscendC::WholeReduceSum(found, sums, int32_t(repeats), 1, 1, 1, 8);
        Order<HardEvent::V_S>();
        const bool spoilt = !(found.GetValue(0) == 0.0f);
        Order<HardEvent::S_V>();
        return spoilt;
    }
    // The unit again from its initial state, token by token, where infinities stay where they belong.
    __aicore__ inline void Repair(AscendC::TPipe& pipe, const Work& work, const Unit& unit) {
        AwaitDone();
        Release(pipe);
        PipeBarrier<PIPE_ALL>();
        pipe.Reset();
        {
            VectorPath<T, StateT, true> path(t_);
            path.Init(pipe, arguments_);
            for (uint32_t r = 0; r < unit.rows; r += t_.rows) {
                path.ProcessRows(work.sequence, work.begin, work.end, unit.head * t_.valueDim + unit.row + r,
                                 unit.rows - r < t_.rows ? unit.rows - r : t_.rows);
            }
            path.Release(pipe);
        }
        PipeBarrier<PIPE_ALL>();
        pipe.Reset();
        InitLocal(pipe);
    }
    __aicore__ inline void PrepareChunk(const Work& work, const Unit& unit, uint32_t index) {
        Await(kScored);
        AwaitDone();
        prepare_.Run(work.At(index), unit.head, prepared_ & 1, unit_, work.SharedKey(t_) ? 0 : unit_);
        ++prepared_;
        Signal<PIPE_MTE3>(kPrepared);
    }

    __aicore__ inline uint64_t StateAt(const Work& work, const Unit& unit) const {
        return ((uint64_t(work.sequence) * t_.valueHeads + unit.head) * t_.valueDim + unit.row) * t_.keyDim;
    }
    // state <- initial state, rows and columns of padding 0
    __aicore__ inline void LoadState(const Work& work, const Unit& unit) {
        const GlobalTensor<StateT> source = initial_[StateAt(work, unit)];
        const uint32_t elements = unit.Padded() * t_.keyPitch;
        const LocalTensor<StateT> staged = AscendC::IsSameType<StateT, float>::value
                                               ? local_.state.template ReinterpretCast<StateT>()
                                               : local_.scratch.template ReinterpretCast<StateT>();
        if (t_.keyDim != t_.keyPitch || unit.rows != unit.Padded()) {
            AscendC::Duplicate(staged.template ReinterpretCast<float>(), 0.0f,
                               int32_t(elements * sizeof(StateT) / sizeof(float)));
        }
        Order<HardEvent::V_MTE2>();
        Order<HardEvent::MTE3_MTE2>();  // the state is stored from where it is
        LoadRows(staged, source, unit.rows, t_.keyDim, t_.keyDim, t_.keyPitch);
        Order<HardEvent::MTE2_V>();
        if constexpr (!AscendC::IsSameType<StateT, float>::value) {
            AscendC::Cast(local_.state, staged, AscendC::RoundMode::CAST_NONE, elements);
        }
        PipeBarrier<PIPE_V>();
    }
    __aicore__ inline void StoreState(const Work& work, const Unit& unit) {
        const GlobalTensor<StateT> target = final_[StateAt(work, unit)];
        if constexpr (AscendC::IsSameType<StateT, float>::value) {
            Order<HardEvent::V_MTE3>();
            StoreRows(target, local_.state, unit.rows, t_.keyDim, t_.keyDim, t_.keyPitch);
            Order<HardEvent::MTE3_V>();
        } else {
            const uint32_t most = Local<T>::kPiece / t_.keyPitch;
            for (uint32_t r = 0; r < unit.rows; r += most) {
                const uint32_t rows = unit.rows - r < most ? unit.rows - r : most;
                local_.template StoreRounded<StateT>(target[uint64_t(r) * t_.keyDim],
                                                     local_.state[r * t_.keyPitch], rows, t_.keyDim,
                                                     t_.keyDim, t_.keyPitch);
            }
        }
    }
    // The state as two bfloat16 parts, for the cube core.
    __aicore__ inline void ShareState(const Unit& unit) {
        const uint32_t elements = unit.Padded() * t_.keyPitch;
        const GlobalTensor<T> shared = Shared<T>(layout_.State(unit_));
        PipeBarrier<PIPE_MTE3>();  // the state before the last chunk is overwritten
        for (uint32_t at = 0; at < elements; at += Local<T>::kPiece) {
            const uint32_t count = elements - at < Local<T>::kPiece ? elements - at : Local<T>::kPiece;
            local_.StoreSplit(shared[at], elements, local_.state[at],
                              local_.scratch[(at / Local<T>::kPiece & 1) * kMatrix], count);
        }
        Signal<PIPE_MTE3>(kStateReady);
    }
    // state <- exp(G_last) state + update, piece by piece; shared with the cube core unless it was the last.
    __aicore__ inline void Update(const Unit& unit, bool share) {
        constexpr uint32_t kPiece = Local<T>::kPiece;
        const GlobalTensor<float> update = Shared<float>(layout_.Update(unit_));
        const GlobalTensor<T> shared = Shared<T>(layout_.State(unit_));
        const uint32_t given = unit.rows * t_.keyPitch, elements = unit.Padded() * t_.keyPitch;
        Order<HardEvent::V_MTE2>();
        for (uint32_t at = 0, i = 0; at < given; at += kPiece, ++i) {
            AscendC::DataCopy(local_.scratch[at], update[at], given - at < kPiece ? given - at : kPiece);
            AscendC::SetFlag<HardEvent::MTE2_V>(fetched_[i]);
        }
        if (share) PipeBarrier<PIPE_MTE3>();  // the state before the last chunk is overwritten
        for (uint32_t at = 0; at < given; at += kPiece) {
            const uint32_t count = given - at < kPiece ? given - at : kPiece;
            AscendC::Mul(local_.state[at], local_.state[at], local_.last[updated_ & 1], uint64_t(kFloatLanes),
                         uint8_t((count + kFloatLanes - 1) / kFloatLanes),
                         AscendC::BinaryRepeatParams(1, 1, 0, 8, 8, 0));
        }
        PipeBarrier<PIPE_V>();
        for (uint32_t at = 0, i = 0; at < given; at += kPiece, ++i) {
            const uint32_t count = given - at < kPiece ? given - at : kPiece;
            const FloatTensor part = local_.state[at];
            AscendC::WaitFlag<HardEvent::MTE2_V>(fetched_[i]);
            AscendC::Add(part, part, local_.scratch[at], int32_t(count));
            PipeBarrier<PIPE_V>();
            if (share) {
                const uint32_t whole = elements - at < kPiece ? elements - at : kPiece;
                local_.StoreSplit(shared[at], elements, part, local_.scratch[at], whole);
            }
        }
        if (share) Signal<PIPE_MTE3>(kStateReady);
        ++updated_;
    }

    // Rows that no sequence covers.
    __aicore__ inline void ZeroRows(Walk& walk) {
        const int64_t covered = walk.Covered();
        if (covered >= int64_t(t_.tokens)) return;
        AscendC::Duplicate(local_.scratch, 0.0f, int32_t(kMatrix));
        Order<HardEvent::V_MTE3>();
        const LocalTensor<T> zeros = local_.scratch.template ReinterpretCast<T>();
        const uint64_t width = uint64_t(t_.valueHeads) * t_.valueDim;
        const uint32_t cores = uint32_t(AscendC::GetBlockNum()) * kUnits;
        for (uint32_t u = uint32_t(AscendC::GetBlockIdx()); u < walk.Units(); u += cores) {
            const Unit unit(t_, u);
            const uint64_t at = uint64_t(unit.head) * t_.valueDim + unit.row;
            for (int64_t token = covered; token < int64_t(t_.tokens); ++token) {
                StoreElements(out_[uint64_t(token) * width + at], zeros, unit.rows);
            }
        }
    }

    const Data& t_;
    const Layout layout_;
    GM_ADDR workspace_;
    static constexpr uint32_t kPieces = 4;  // of a state
    const uint32_t unit_;                   // of the item's two
    const bool resident_;
    event_t fetched_[kPieces];
    const Arguments arguments_;
    Local<T> local_;
    Prepare<T> prepare_;
    GlobalTensor<StateT> initial_, final_;
    GlobalTensor<T> out_;
    uint32_t prepared_ = 0, updated_ = 0;  // chunks
    bool undone_ = false;                  // kDone of the last item has not been awaited
};

template <typename T, typename StateT>
__aicore__ inline void RunCube(const Data& data, const Arguments& a, GM_ADDR workspace) {
    AscendC::TPipe pipe;
    const Layout layout(data.valueStep, data.keyPitch);
    if ASCEND_IS_AIC {
        const uint32_t core = uint32_t(AscendC::GetBlockIdx());
        Walk walk(data, a.lengths, core);
        Products<T, StateT> products(data, layout, workspace + core * layout.Bytes(), a);
        products.Init(pipe);
        products.Process(walk);
        products.Release(pipe);
    }
    if ASCEND_IS_AIV {
        const uint32_t core = uint32_t(AscendC::GetBlockIdx()) / kUnits;
        Walk walk(data, a.lengths, core);
        VectorSide<T, StateT> vector(data, layout, workspace + core * layout.Bytes(), a);
        vector.Init(pipe);
        vector.Process(pipe, walk);
        vector.Release(pipe);
    }
}

}  // namespace split
}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_CUBE_910B_H_
