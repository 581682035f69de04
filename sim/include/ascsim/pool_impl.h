// Out-of-line parts of pool.h.
#pragma once
#include <bit>
#include <cstdio>

namespace AscendC {

inline uint32_t BufferSpace::Reserve(const char* api, ascsim::Mem mem, uint32_t len, Loc loc) {
    const uint32_t at = next_[int(mem)];
    if (uint64_t(at) + len > end(mem)) {
        const ascsim::Op op = ascsim::CallSite(api, loc);
        const uint64_t whole = ascsim::Soc().bytes[int(mem)];
        if (!end_[int(mem)] && uint64_t(at) + len <= whole)
            ascsim::Report(
                ascsim::Severity::Note, op, "capacity.reserved",
                "%u bytes at %u of %s: the framework keeps the last %llu bytes for messages between cores",
                len, at, ascsim::MemName(mem), (unsigned long long)(whole - end(mem)));
        else
            ascsim::Fail(op, "capacity",
                         "%u bytes do not fit into %s: %u of %u bytes are taken on %s (%llu too many)", len,
                         ascsim::MemName(mem), at, end(mem), ascsim::Soc().name,
                         (unsigned long long)(uint64_t(at) + len - end(mem)));
    }
    next_[int(mem)] = at + len;
    return at;
}

inline TBufType* BufferSpace::Place(const char* api, TPosition position, uint32_t num, uint32_t len,
                                    const char* kind, Loc loc) {
    const ascsim::Op op = ascsim::CallSite(api, loc);
    if (!len || !num) ascsim::Fail(op, "capacity", "%u buffers of %u bytes: both must be positive", num, len);
    len = (len + ONE_BLK_SIZE - 1) / ONE_BLK_SIZE * ONE_BLK_SIZE;
    if (count_ + num > kMax)
        ascsim::Fail(op, "queue.buffers", "%u buffers in one TPipe; allowed %u", count_ + num, kMax);
    const ascsim::Mem mem = MemOf(position);
    uint32_t at = Reserve(api, mem, len * num, loc);
    TBufType* first = buffers_ + count_;
    for (uint32_t i = 0; i < num; ++i, at += len) {
        TBufType& b = buffers_[count_++] = TBufType{};
        b.address = at;
        b.dataLen = len;
        b.where = loc;
        char label[64];
        if (num > 1)
            std::snprintf(label, sizeof label, "%s<%s> buffer %u", kind, PositionName(position), i);
        else
            std::snprintf(label, sizeof label, "%s<%s>", kind, PositionName(position));
        ascsim::RegisterBuffer(mem, at, at + len, label, loc);
    }
    return first;
}

inline void BufferSpace::Close(const char* api, Loc loc) {
    for (uint32_t i = 0; i < count_; ++i) {
        TBufType& b = buffers_[i];
        if (b.state != TBufState::FREE) {
            const char* what = b.state == TBufState::OCCUPIED ? "allocated, never enqueued or freed"
                               : b.state == TBufState::ENQUE  ? "enqueued, never dequeued"
                                                              : "dequeued, never freed";
            const ascsim::Op op = ascsim::CallSite(api, b.where);
            ascsim::Report(b.state == TBufState::ENQUE ? ascsim::Severity::Error : ascsim::Severity::Warning,
                           op, "queue.leak", "tensor at byte %u (%u bytes) is still %s when the TPipe ends",
                           b.address, b.dataLen, what);
            if (b.enQueEvtID != INVALID_TEVENTID) WaitQueueEvent(api, b.enQueEvt, b.enQueEvtID, loc);
        }
        if (b.freeBufEvtID != INVALID_TEVENTID) WaitQueueEvent(api, b.freeBufEvt, b.freeBufEvtID, loc);
        b = TBufType{};
    }
}

inline TEventID EventPool::Fetch(const char* api, HardEvent e, Loc loc) {
    const uint32_t id = std::countr_one(used_[int(e)]);
    if (id >= ascsim::Soc().event_ids) {
        const EventPipes p = PipesOf(e);
        ascsim::Fail(ascsim::CallSite(api, loc), "event.exhausted",
                     "all %u ids of event %s_%s are in use: more tensors in flight "
                     "than events, or AllocEventID without ReleaseEventID",
                     ascsim::Soc().event_ids, ascsim::PipeName(p.from), ascsim::PipeName(p.to));
    }
    return TEventID(id);
}

inline TEventID EventPool::Alloc(const char* api, HardEvent e, Loc loc) {
    const TEventID id = Fetch(api, e, loc);
    used_[int(e)] |= 1u << id;
    return id;
}

inline void EventPool::Release(const char* api, HardEvent e, TEventID id, Loc loc) {
    if (id < 0 || id >= QUE_MAX_EVENT || !(used_[int(e)] >> id & 1)) {
        ascsim::Report(ascsim::Severity::Error, ascsim::CallSite(api, loc), "event.release",
                       "event id %d was not allocated", int(id));
        return;
    }
    used_[int(e)] &= ~(1u << id);
}

}  // namespace AscendC
