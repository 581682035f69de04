// Walk over packed sequences and their slots in a pool of states. Every value comes from the caller's tensors
// and may be wrong: nothing outside the tensors is ever named, and one bad sequence leaves the others alone.
#ifndef HYBRID_OPS_KERNEL_SEQUENCE_WALK_H_
#define HYBRID_OPS_KERNEL_SEQUENCE_WALK_H_

#include "row_copy.h"

namespace hybrid_ops {

// A tensor of int32, read from a local copy if that has room for it, else element by element from global
// memory.
class IntTable {
 public:
    __aicore__ inline void Load(GM_ADDR address, const AscendC::LocalTensor<int32_t>& local, uint64_t n,
                                uint32_t entries) {
        global_.SetGlobalBuffer((__gm__ int32_t*)address);
        cached_ = n != 0 && n <= entries;
        if (!cached_) return;
        local_ = local;
        slice_.Load(local, global_, 0, uint32_t(n), n);
    }
    __aicore__ inline int64_t Get(uint64_t i) const {
        return cached_ ? local_.GetValue(slice_.At(uint32_t(i))) : global_.GetValue(i);
    }

 private:
    AscendC::GlobalTensor<int32_t> global_;
    AscendC::LocalTensor<int32_t> local_;
    Slice<int32_t> slice_;
    bool cached_ = false;
};

struct Sequence {
    int64_t begin;     // first packed row
    int64_t rows;      // rows, clipped to the packed rows there are
    int64_t readSlot;  // state before the first row; negative: padded sequence
    uint32_t index;
};

class SequenceWalk {
 public:
    // tableWidth 0: slots are [T], one per row; else [B, tableWidth], one per sequence and step. Values can
    // be read after Wait; each of three local tables has room for `entries` elements and a block.
    __aicore__ inline void Init(AscendC::TPipe& pipe, GM_ADDR lengths, GM_ADDR slots, GM_ADDR accepted,
                                int64_t rows, uint32_t sequences, int64_t poolSlots, int64_t tableWidth,
                                uint32_t entries) {
        const uint32_t room = RoundUp(entries, 8) + 8;
        pipe.InitBuffer(buffer_, 3 * room * sizeof(int32_t));
        const AscendC::LocalTensor<int32_t> tables = buffer_.Get<int32_t>();
        lengths_.Load(lengths, tables, sequences, entries);
        const uint64_t slotCount = tableWidth == 0 ? uint64_t(rows) : uint64_t(sequences) * tableWidth;
        slots_.Load(slots, tables[room], slotCount, entries);
        hasAccepted_ = accepted != nullptr;
        if (hasAccepted_) accepted_.Load(accepted, tables[2 * room], sequences, entries);
        loaded_ = static_cast<event_t>(GetTPipePtr()->FetchEventID(AscendC::HardEvent::MTE2_S));
        AscendC::SetFlag<AscendC::HardEvent::MTE2_S>(loaded_);
        rows_ = rows;
        sequences_ = sequences;
        poolSlots_ = poolSlots;
        width_ = tableWidth;
        Rewind();
    }
    // Once, before the first value is read.
    __aicore__ inline void Wait() { AscendC::WaitFlag<AscendC::HardEvent::MTE2_S>(loaded_); }
    __aicore__ inline void Rewind() {
        begin_ = 0;
        next_ = 0;
    }
    // The next sequence with rows; false when there is none.
    __aicore__ inline bool Next(Sequence& s) {
        while (next_ < sequences_ && begin_ < rows_) {
            const uint32_t index = next_++;
            const int64_t length = lengths_.Get(index);
            if (length <= 0) continue;
            s.index = index;
            s.begin = begin_;
            s.rows = length < rows_ - begin_ ? length : rows_ - begin_;
            s.readSlot = ReadSlot(s);
            begin_ += s.rows;
            return true;
        }
        return false;
    }
    // Rows from here on belong to no sequence yet.
    __aicore__ inline int64_t Position() const { return begin_; }

    // Slot that row i of the sequence leaves its state in; negative: padded row.
    __aicore__ inline int64_t WriteSlot(const Sequence& s, int64_t i) const {
        if (width_ == 0) return Checked(s.begin + i);
        return i < width_ ? Checked(s.index * width_ + i) : -1;
    }

 private:
    __aicore__ inline int64_t Checked(int64_t at) const {
        const int64_t slot = slots_.Get(uint64_t(at));
        return slot < poolSlots_ ? slot : -1;
    }
    __aicore__ inline int64_t ReadSlot(const Sequence& s) const {
        int64_t step = 1;
        if (hasAccepted_) {
            step = accepted_.Get(s.index);
            if (step <= 0 || step > (width_ == 0 ? s.rows : width_)) return -1;
        }
        return width_ == 0 ? Checked(s.begin + step - 1) : Checked(s.index * width_ + step - 1);
    }

    AscendC::TBuf<AscendC::TPosition::VECCALC> buffer_;
    IntTable lengths_, slots_, accepted_;
    event_t loaded_;
    int64_t rows_, poolSlots_, width_;
    int64_t begin_;
    uint32_t sequences_, next_;
    bool hasAccepted_;
};

}  // namespace hybrid_ops

#endif  // HYBRID_OPS_KERNEL_SEQUENCE_WALK_H_
