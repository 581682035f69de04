// Depthwise causal convolution of packed sequences, with a pool of lines that hold the rows before them:
//   y[t] = act(bias + sum over j of weight[j] * x[t - (W - 1) + j]), rows before the sequence from its line.
// A line then takes the last W - 1 rows; with accepted tokens it takes all rows behind the W - 2 before them,
// so that the next step can go on behind any of them.
//
// A core owns a range of channels and a range of rows. Of two cores that share a sequence, the one with its
// first row reads and writes the line. Loads run one tile ahead of the arithmetic, stores one behind.
#include "hybrid_causal_conv1d/taps.h"

namespace hybrid_ops {
namespace conv1d {

struct Arguments {
    GM_ADDR x;
    GM_ADDR weight;
    GM_ADDR offsets;
    GM_ADDR bias;
    GM_ADDR indices;
    GM_ADDR mode;
    GM_ADDR accepted;
    GM_ADDR y;
    GM_ADDR lines;
};

// A flag between two pipes that is set only sometimes: waits exactly when it was.
template <HardEvent event>
class Flag {
 public:
    __aicore__ inline void Init(AscendC::TPipe& pipe) {
        id_ = static_cast<event_t>(pipe.AllocEventID<event>());
    }
    __aicore__ inline void Set() {
        Wait();
        AscendC::SetFlag<event>(id_);
        set_ = true;
    }
    __aicore__ inline void Wait() {
        if (set_) AscendC::WaitFlag<event>(id_);
        set_ = false;
    }
    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        Wait();
        pipe.ReleaseEventID<event>(id_);
    }

 private:
    event_t id_;
    bool set_ = false;
};

template <typename T>
class Kernel {
 public:
    __aicore__ inline explicit Kernel(const Data& data)
        : t_(data), parts_(t_), tiles_(t_, parts_), taps_(t_) {}

    __aicore__ inline void Init(AscendC::TPipe& pipe, const Arguments& a) {
        taps_.Init(pipe);  // first: its places count from the start of local memory
        x_.SetGlobalBuffer((__gm__ T*)a.x);
        weight_.SetGlobalBuffer((__gm__ T*)a.weight);
        if (t_.hasBias) bias_.SetGlobalBuffer((__gm__ T*)a.bias);
        lines_.SetGlobalBuffer((__gm__ T*)a.lines);
        y_.SetGlobalBuffer((__gm__ T*)a.y);
        const uint32_t pass = t_.passChannels;
        Get(pipe, stagedTaps_, buffers_[0], (t_.width + 1) * pass);
        Get(pipe, lineRows_, buffers_[1], (t_.width - 1) * pass);
        for (uint32_t i = 0; i < 2; ++i) {
            Get(pipe, staged_[i], buffers_[2 + i], t_.stagedRows * pass);
            Get(pipe, out_[i], buffers_[4 + i], t_.tileRows * pass);
            loaded_[i].Init(pipe);
            widened_[i].Init(pipe);
            lined_[i].Init(pipe);
            kept_[i].Init(pipe);
            ready_[i].Init(pipe);
            stored_[i].Init(pipe);
        }
        tapsLoaded_.Init(pipe);
        tapsRead_.Init(pipe);
        lineLoaded_.Init(pipe);
        lineStored_.Init(pipe);
        SetRange();
        // Small tensors are read by the scalar unit: the taps are on their way before.
        SetPass(firstChannel_);
        LoadTaps();
        parts_.Init(pipe, a.offsets, a.indices, a.mode, a.accepted);
    }

    __aicore__ inline void Process() {
        parts_.Wait();
        ProcessPass();
        for (uint32_t at = firstChannel_ + t_.passChannels; at < endChannel_; at += t_.passChannels) {
            SetPass(at);
            LoadTaps();
            ProcessPass();
        }
    }

    __aicore__ inline void Release(AscendC::TPipe& pipe) {
        for (uint32_t i = 0; i < 2; ++i) {
            loaded_[i].Release(pipe);
            widened_[i].Release(pipe);
            lined_[i].Release(pipe);
            kept_[i].Release(pipe);
            ready_[i].Release(pipe);
            stored_[i].Release(pipe);
        }
        tapsLoaded_.Release(pipe);
        tapsRead_.Release(pipe);
        lineLoaded_.Release(pipe);
        lineStored_.Release(pipe);
    }

 private:
    __aicore__ inline void SetRange() {
        const uint64_t core = AscendC::GetBlockIdx(), units = t_.channels / kUnit;
        const uint64_t column = core % t_.channelRanges, row = core / t_.channelRanges;
        firstChannel_ = uint32_t(column * units / t_.channelRanges) * kUnit;
        endChannel_ = uint32_t((column + 1) * units / t_.channelRanges) * kUnit;
        low_ = int64_t(row * t_.tokens / t_.rowRanges);
        high_ = int64_t((row + 1) * t_.tokens / t_.rowRanges);
    }
    __aicore__ inline void SetPass(uint32_t channel) {
        channel_ = channel;
        const uint32_t left = endChannel_ - channel;
        pitch_ = left < t_.passChannels ? left : t_.passChannels;
    }

    __aicore__ inline void ProcessPass() {
        tiles_.Begin(low_, high_);
        uint32_t i = 0;
        bool more = tiles_.Next(tile_[0]);
        if (more) Load(tile_[0], 0);
        tapsLoaded_.Wait();
        taps_.SetWeights(stagedTaps_, pitch_);
        tapsRead_.Set();
        for (; more; i ^= 1) {
            more = tiles_.Next(tile_[i ^ 1]);
            if (more) Load(tile_[i ^ 1], i ^ 1);
            StoreLines(tile_[i], i);
            Compute(tile_[i], i);
            ready_[i].Wait();
            StoreBlock(y_, uint64_t(tile_[i].begin), out_[i], tile_[i].rows);
            stored_[i].Set();
        }
    }

    // `rows` rows of n channels between global memory, D apart, and local memory, one behind the other.
    __aicore__ inline void LoadBlock(const LocalTensor<T>& dst, const AscendC::GlobalTensor<T>& src,
                                     uint64_t row, uint32_t rows) {
        AscendC::DataCopy(dst, src[row * t_.channels + channel_],
                          AscendC::DataCopyParams(uint16_t(rows), uint16_t(pitch_ / kUnit),
                                                  uint16_t((t_.channels - pitch_) / kUnit), 0));
    }
    __aicore__ inline void StoreBlock(const AscendC::GlobalTensor<T>& dst, uint64_t row,
                                      const LocalTensor<T>& src, uint32_t rows) {
        AscendC::DataCopy(dst[row * t_.channels + channel_], src,
                          AscendC::DataCopyParams(uint16_t(rows), uint16_t(pitch_ / kUnit), 0,
                                                  uint16_t((t_.channels - pitch_) / kUnit)));
    }
    __aicore__ inline uint64_t LineRow(int64_t line, int64_t row) const {
        return uint64_t(line) * t_.lineRows + uint64_t(row);
    }
    __aicore__ inline void Zero(const LocalTensor<T>& dst, uint32_t rows) {
        AscendC::Duplicate(dst.template ReinterpretCast<float>(), 0.0f,
                           int32_t(rows * pitch_ * sizeof(T) / sizeof(float)));
    }

    __aicore__ inline void LoadTaps() {
        tapsRead_.Wait();
        LoadBlock(stagedTaps_, weight_, 0, t_.width);
        if (t_.hasBias) LoadBlock(stagedTaps_[t_.width * pitch_], bias_, 0, 1);
        tapsLoaded_.Set();
    }

    // staged_ <- rows of x and of lines
    __aicore__ inline void Load(const Tile& tile, uint32_t i) {
        const uint32_t before = t_.width - 1;
        widened_[i].Wait();
        kept_[i].Wait();
        for (uint32_t k = 0; k < tile.count; ++k) {
            const Segment& s = tile.segments[k];
            if (s.line < 0) continue;
            const LocalTensor<T> to = staged_[i][s.staged * pitch_];
            if (s.history == History::kCarried) {
                LoadBlock(to, x_, uint64_t(s.x), s.rows);
            } else if (s.history == History::kRows) {
                LoadBlock(to, x_, uint64_t(s.x) - before, before + s.rows);
            } else {
                if (s.history == History::kLine) LoadBlock(to, lines_, LineRow(s.line, s.window), before);
                LoadBlock(to[before * pitch_], x_, uint64_t(s.x), s.rows);
            }
            if (s.startsLong) StoreLongLine(s);
        }
        loaded_[i].Set();
        if (tile.storesLines) lined_[i].Set();
    }

    // The line of a sequence longer than a tile, from x; rows before the sequence have been loaded.
    __aicore__ inline void StoreLongLine(const Segment& s) {
        const uint32_t before = t_.width - 1;
        if (!s.keep) {
            MoveToLine(s.line, 0, x_, uint64_t(s.last) - before, before);
            return;
        }
        if (before > 1 && s.window >= 0) {
            MoveToLine(s.line, 0, lines_, LineRow(s.line, s.window + 1), before - 1);
        } else if (before > 1) {
            lineStored_.Wait();
            Order<HardEvent::MTE3_V>();
            Zero(lineRows_, before - 1);
            Order<HardEvent::V_MTE3>();
            StoreBlock(lines_, LineRow(s.line, 0), lineRows_, before - 1);
            lineStored_.Set();
        }
        uint32_t to = before - 1;
        for (int64_t row = s.x; row < s.last; row += before, to += before) {
            const int64_t left = s.last - row;
            MoveToLine(s.line, to, x_, uint64_t(row), left < before ? uint32_t(left) : before);
        }
    }
    __aicore__ inline void MoveToLine(int64_t line, uint32_t to, const AscendC::GlobalTensor<T>& src,
                                      uint64_t row, uint32_t rows) {
        lineStored_.Wait();
        LoadBlock(lineRows_, src, row, rows);
        lineLoaded_.Set();
        lineLoaded_.Wait();
        StoreBlock(lines_, LineRow(line, to), lineRows_, rows);
        lineStored_.Set();
    }

    // The lines of sequences that are whole in the tile, before the arithmetic.
    __aicore__ inline void StoreLines(const Tile& tile, uint32_t i) {
        bool zeroed = false;
        loaded_[i].Wait();
        for (uint32_t k = 0; k < tile.count; ++k) {
            const Segment& s = tile.segments[k];
            if (s.line < 0 || s.history != History::kZeros) continue;
            Zero(staged_[i][s.staged * pitch_], t_.width - 1);
            zeroed = true;
        }
        if (!tile.storesLines) return;
        lined_[i].Wait();
        if (zeroed) Order<HardEvent::V_MTE3>();
        for (uint32_t k = 0; k < tile.count; ++k) {
            const Segment& s = tile.segments[k];
            if (s.line < 0 || !s.storesLine) continue;
            const uint32_t skipped = s.keep ? 1 : s.rows;
            StoreBlock(lines_, LineRow(s.line, 0), staged_[i][(s.staged + skipped) * pitch_],
                       t_.width - 1 + s.rows - skipped);
        }
        kept_[i].Set();
    }

    // out_ <- y of the tile
    __aicore__ inline void Compute(const Tile& tile, uint32_t i) {
        PipeBarrier<PIPE_V>();
        if (tile.staged != 0) {
            AscendC::Cast(taps_.wide[(t_.width - 1) * pitch_], staged_[i], AscendC::RoundMode::CAST_NONE,
                          tile.staged * pitch_);
        }
        widened_[i].Set();
        PipeBarrier<PIPE_V>();
        taps_.Run(tile);
        stored_[i].Wait();
        Convert(out_[i], taps_.sum, tile.rows * pitch_);
        if (tile.hasZeros) {
            PipeBarrier<PIPE_V>();
            for (uint32_t k = 0; k < tile.count; ++k) {
                const Segment& s = tile.segments[k];
                if (s.line < 0) Zero(out_[i][s.row * pitch_], s.rows);
            }
        }
        ready_[i].Set();
    }

    const Data t_;
    Parts parts_;
    Tiles tiles_;
    Taps taps_;
    Tile tile_[2];
    AscendC::GlobalTensor<T> x_, weight_, bias_, lines_, y_;
    Buffer buffers_[6];
    LocalTensor<T> stagedTaps_, lineRows_, staged_[2], out_[2];
    Flag<HardEvent::MTE2_V> loaded_[2], tapsLoaded_;
    Flag<HardEvent::V_MTE2> widened_[2], tapsRead_;  // staged rows, staged taps may be overwritten
    Flag<HardEvent::MTE3_MTE2> kept_[2], lineStored_;
    Flag<HardEvent::V_MTE3> ready_[2];
    Flag<HardEvent::MTE3_V> stored_[2];
    Flag<HardEvent::MTE2_MTE3> lined_[2], lineLoaded_;
    uint32_t firstChannel_, endChannel_;  // of the core
    int64_t low_, high_;                  // its rows, before bounds are moved
    uint32_t channel_, pitch_;            // of the pass: first channel, number of channels
};

template <typename T>
__aicore__ inline void Run(const Data& data, const Arguments& arguments) {
    AscendC::TPipe pipe;
    Kernel<T> kernel(data);
    kernel.Init(pipe, arguments);
    kernel.Process();
    kernel.Release(pipe);
}

}  // namespace conv1d
}  // namespace hybrid_ops

extern "C" __global__ __aicore__ void hybrid_causal_conv1d(GM_ADDR x, GM_ADDR weight, GM_ADDR conv_states,
                                                           GM_ADDR query_start_loc, GM_ADDR bias,
                                                           GM_ADDR cache_indices, GM_ADDR initial_state_mode,
                                                           GM_ADDR num_accepted_tokens, GM_ADDR y,
                                                           GM_ADDR conv_states_out, GM_ADDR workspace,
                                                           GM_ADDR tiling) {
    REGISTER_TILING_DEFAULT(HybridCausalConv1dTilingData);
    GET_TILING_DATA(data, tiling);
#if defined(__CCE_AICORE__) && __CCE_AICORE__ == 220
    KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_AIV_ONLY);
#endif
    const hybrid_ops::conv1d::Arguments arguments{
        x, weight,         query_start_loc, bias, cache_indices, initial_state_mode, num_accepted_tokens,
        y, conv_states_out};
    if (TILING_KEY_IS(0)) hybrid_ops::conv1d::Run<DTYPE_X>(data, arguments);
}
