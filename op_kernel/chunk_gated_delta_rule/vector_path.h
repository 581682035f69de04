// The vector path: an item's rows of the state stay in local memory, fp32, over all tokens of a sequence.
#ifndef HYBRID_OPS_CHUNK_GATED_DELTA_RULE_VECTOR_PATH_H_
#define HYBRID_OPS_CHUNK_GATED_DELTA_RULE_VECTOR_PATH_H_

#include "../common/sequence_walk.h"
#include "state.h"
#include "vector_step.h"

namespace hybrid_ops {
namespace cgdr {

template <typename T, typename StateT, bool kTail>
class VectorPath {
 public:
    __aicore__ inline explicit VectorPath(const Data& data)
        : t_(data),
          tokens_(t_, rows_, item_, work_),
          states_(t_, rows_, item_, work_),
          step_(t_, rows_, item_, work_, tokens_) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Arguments& a) {
        out_.SetGlobalBuffer((__gm__ T*)a.out);
        LocalTensor<int32_t> table;
        Workspace::Get(pipe, table, lengthsBuffer_, t_.entries + 8);
        lengths_.Load(a.lengths, table, t_.sequences, t_.entries);
        const event_t loaded = static_cast<event_t>(GetTPipePtr()->FetchEventID(HardEvent::MTE2_S));
        AscendC::SetFlag<HardEvent::MTE2_S>(loaded);
        rows_.Init(t_.keyPitch);
        work_.InitTiles(pipe, t_);
        tokens_.Init(pipe, a);
        states_.Init(pipe, a.initial, a.final);
        pipe.InitBuffer(rowOut_, 2, PadTo(kStepTokens * t_.rowPitch * sizeof(T), kBlockBytes));
        work_.Init(pipe, t_, kTail);
        Workspace::Get(pipe, zeros_, zerosBuffer_, kZeroElements);
        Workspace::Zero(zeros_.template ReinterpretCast<float>());
        Order<HardEvent::V_MTE3>();  // zeros_ is stored without further ado
        work_.Fill(t_, kTail);
        AscendC::WaitFlag<HardEvent::MTE2_S>(loaded);
    }

    __aicore__ inline void Process() {
        if (t_.sequences == 0) return;
        const uint32_t items = t_.spans * t_.spanItems;
        for (uint32_t i = uint32_t(AscendC::GetBlockIdx()); i < items;
             i += uint32_t(AscendC::GetBlockNum())) {
            item_.Set(t_, i);
            step_.SetItem();
            ProcessItem();
        }
    }
    // One sequence, tokens [begin, end), on rows of one value head, counted in the flattened [NV * DV].
    __aicore__ inline void ProcessRows(uint32_t sequence, int64_t begin, int64_t end, uint32_t row,
                                       uint32_t rows) {
        item_.SetRows(t_, row, rows);
        step_.SetItem();
        tokens_.Start(begin);
        states_.Fetch(sequence);
        states_.Widen();
        ProcessTokens(begin, end);
        states_.Store(sequence);
        tokens_.Finish();
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) { tokens_.Release(pipe); }

 private:
    __aicore__ inline void ProcessItem() {
        int64_t begin = 0;
        tokens_.Start(begin);
        states_.Fetch(0);
        for (uint32_t b = 0; b < t_.sequences; ++b) {
            const int64_t length = lengths_.Get(b), left = int64_t(t_.tokens) - begin;
            const int64_t end = begin + (length <= 0 ? 0 : length < left ? length : left);
            states_.Widen();
            if (b + 1 < t_.sequences) states_.Fetch(b + 1);
            ProcessTokens(begin, end);
            begin = end;
            states_.Store(b);
        }
        tokens_.Finish();
        ZeroRows(begin);
    }
    __aicore__ inline void ProcessTokens(int64_t begin, int64_t end) {
        for (int64_t token = begin; token < end;) {
            tokens_.Need(token);
            const int64_t blockEnd = tokens_.EndOf(token), until = end < blockEnd ? end : blockEnd;
            const uint32_t n = StepSize(until - token);
            tokens_.Wait();
            step_.Prepare(token, n);
            step_.Run(token, n, StepSize(until - token - n));
            StoreOut(token, n);
            token += n;
        }
    }

    __aicore__ inline uint32_t StepSize(int64_t left) const {
        return left < int64_t(kStepTokens) ? uint32_t(left) : kStepTokens;
    }

    // Rows of all tokens from `begin` on.
    __aicore__ inline void ZeroRows(int64_t begin) {
        const uint64_t width = uint64_t(t_.valueHeads) * t_.valueDim;
        for (int64_t token = begin; token < t_.tokens; ++token) {
            StoreElements(out_[uint64_t(token) * width + item_.row], zeros_, item_.rows);
        }
    }

    // out rows of n tokens <- work_.readQuery, rounded
    __aicore__ inline void StoreOut(int64_t token, uint32_t n) {
        const uint64_t width = uint64_t(t_.valueHeads) * t_.valueDim;
        const uint32_t whole = LastBlock<T>::Whole(item_.rows);
        if (kTail && !Soc::kPaddedMoves && whole != item_.rows) {
            // The last 16 values once more, behind the whole blocks.
            for (uint32_t i = 0; i < n; ++i) {
                AscendC::Gather(work_.readKey[i * t_.rowPitch], work_.readQuery, work_.line,
                                uint32_t((i * t_.rowPitch + item_.rows - 16) * sizeof(float)), uint32_t(16));
            }
            PipeBarrier<PIPE_V>();
            for (uint32_t i = 0; i < n; ++i) {
                AscendC::Adds(work_.readQuery[i * t_.rowPitch + whole], work_.readKey[i * t_.rowPitch], 0.0f,
                              16);
            }
            PipeBarrier<PIPE_V>();
        }
        LocalTensor<T> row = rowOut_.template AllocTensor<T>();
        Convert(row, work_.readQuery, n * t_.rowPitch);
        rowOut_.EnQue(row);
        row = rowOut_.template DeQue<T>();
        StoreRows(out_[uint64_t(token) * width + item_.row], row, n, item_.rows, width, t_.rowPitch);
        rowOut_.FreeTensor(row);
    }

    const Data t_;
    Rows rows_;
    Item item_;
    Workspace work_;
    Tokens<T, kTail> tokens_;
    States<StateT, kTail> states_;
    VectorStep<T, kTail> step_;
    IntTable lengths_;
    AscendC::GlobalTensor<T> out_;
    AscendC::TQue<AscendC::TPosition::VECOUT, 2> rowOut_;
    Buffer lengthsBuffer_, zerosBuffer_;
    LocalTensor<T> zeros_;
};

}  // namespace cgdr
}  // namespace hybrid_ops

#endif  // HYBRID_OPS_CHUNK_GATED_DELTA_RULE_VECTOR_PATH_H_
