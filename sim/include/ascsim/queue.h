// TQue, TQueBind, TBuf, TBufPool. A queue is a ring of buffer handles; EnQue/DeQue and FreeTensor/AllocTensor
// carry the two events that order producer and consumer, with ids from the pipe's pool as on the hardware.
#pragma once
#include "ascsim/tpipe.h"

namespace AscendC {

template <TPosition src, TPosition dst, int32_t depth, auto mask = 0>
class TQueBind {
 public:
    static constexpr TPosition srcPosition = src;
    static constexpr TPosition dstPosition = dst;
    static constexpr TPosition bufferPosition = BufferPosition(src, dst);
    static constexpr TQueConfig config = GetTQueConfig(mask);
    static constexpr HardEvent enQueEvt = GetQueEvt(src, dst, true, config.nd2nz);
    static constexpr HardEvent freeBufEvt = GetQueEvt(src, dst, false, config.nd2nz);
    static constexpr int32_t queDepth = depth;
    static constexpr bool isTQue = true;

    void Attach(TBufType* first, uint32_t num) {
        bufStart_ = first;
        bufNum_ = num;
        usedCount_ = head_ = tail_ = bufUsedCount_ = cursor_ = 0;
    }

    template <typename T>
    LocalTensor<T> AllocTensor(Loc loc = Loc::Here()) {
        return ToTensor<T>(AllocBuffer(loc));
    }
    template <typename T>
    void FreeTensor(LocalTensor<T>& tensor, Loc loc = Loc::Here()) {
        FreeBuffer(tensor.GetBufferHandle(), loc);
    }
    template <typename T>
    bool EnQue(const LocalTensor<T>& tensor, Loc loc = Loc::Here()) {
        return Put(tensor.GetBufferHandle(), enQueEvt, loc);
    }
    bool EnQue(TBufHandle buf, Loc loc = Loc::Here()) { return Put(buf, enQueEvt, loc); }
    template <TPosition srcUserPos, TPosition dstUserPos, typename T>
    bool EnQue(const LocalTensor<T>& tensor, Loc loc = Loc::Here()) {
        return Put(tensor.GetBufferHandle(), UserEvent(srcUserPos, dstUserPos), loc);
    }
    template <typename T>
    LocalTensor<T> DeQue(Loc loc = Loc::Here()) {
        return ToTensor<T>(Get(enQueEvt, loc));
    }
    TBufHandle DeQue(Loc loc = Loc::Here()) { return Get(enQueEvt, loc); }
    template <TPosition srcUserPos, TPosition dstUserPos, typename T>
    LocalTensor<T> DeQue(Loc loc = Loc::Here()) {
        return ToTensor<T>(Get(UserEvent(srcUserPos, dstUserPos), loc));
    }

    bool VacantInQue() const { return usedCount_ < uint32_t(depth); }
    bool HasTensorInQue() const { return usedCount_ > 0; }
    int32_t GetTensorCountInQue() const { return int32_t(usedCount_); }
    bool HasIdleBuffer() const { return bufUsedCount_ < bufNum_; }
    template <typename T>
    TBufState GetState(const LocalTensor<T>& tensor) const {
        const TBufType* b = reinterpret_cast<const TBufType*>(tensor.GetBufferHandle());
        return b ? b->state : TBufState::FREE;
    }
    TBuffAddr GetBufferAddr(TBufHandle handle) const {
        const TBufType* b = reinterpret_cast<const TBufType*>(handle);
        return TBuffAddr{b->dataLen, b->address, handle, uint8_t(bufferPosition)};
    }
    void FreeAllEvent(Loc loc = Loc::Here()) {
        for (uint32_t i = 0; i < bufNum_; ++i) WaitFree("FreeAllEvent", bufStart_[i], loc);
    }
    void FreeBuffer(TBufHandle handle, Loc loc = Loc::Here());

 protected:
    static constexpr HardEvent UserEvent(TPosition s, TPosition d) {
        // Both sides in UB: the consumer is the vector unit itself.
        return MemOf(s) == ascsim::Mem::UB && MemOf(d) == ascsim::Mem::UB ? HardEvent::V_V
                                                                          : GetQueEvt(s, d, true);
    }
    [[noreturn]] void Broken(const char* api, const char* rule, const char* text, Loc loc) const {
        ascsim::Fail(ascsim::CallSite(api, loc), rule, "queue <%s>: %s", PositionName(bufferPosition), text);
    }
    void Complain(const char* api, const char* rule, const char* text, Loc loc) const {
        ascsim::Report(ascsim::Severity::Error, ascsim::CallSite(api, loc), rule, "queue <%s>: %s",
                       PositionName(bufferPosition), text);
    }
    bool Owns(const TBufType* b) const { return b && b >= bufStart_ && b < bufStart_ + bufNum_; }
    void WaitFree(const char* api, TBufType& b, Loc loc) {
        if (b.freeBufEvtID == INVALID_TEVENTID) return;
        WaitQueueEvent(api, b.freeBufEvt, b.freeBufEvtID, loc);
        PipeOf(api, loc).events().Release(api, b.freeBufEvt, b.freeBufEvtID, loc);
        b.freeBufEvtID = INVALID_TEVENTID;
    }
    template <typename T>
    LocalTensor<T> ToTensor(TBufHandle handle) const {
        LocalTensor<T> t;
        t.SetAddr(GetBufferAddr(handle));
        return t;
    }
    TBufHandle AllocBuffer(Loc loc);
    bool Put(TBufHandle handle, HardEvent event, Loc loc);
    TBufHandle Get(HardEvent event, Loc loc);

    TBufType* bufStart_ = nullptr;
    uint32_t bufNum_ = 0;
    uint32_t usedCount_ = 0, head_ = 0, tail_ = 0, bufUsedCount_ = 0, cursor_ = 0;
    static constexpr uint32_t kRing = depth > 1 ? depth : 1;
    TBufHandle ring_[kRing] = {};
};

template <TPosition src, TPosition dst, int32_t depth, auto mask>
TBufHandle TQueBind<src, dst, depth, mask>::AllocBuffer(Loc loc) {
    if (!bufStart_) Broken("AllocTensor", "queue.uninit", "no InitBuffer was called for it", loc);
    for (uint32_t i = 0; i < bufNum_; ++i) {
        TBufType& b = bufStart_[cursor_];
        cursor_ = cursor_ + 1 == bufNum_ ? 0 : cursor_ + 1;
        if (b.state != TBufState::FREE) continue;
        WaitFree("AllocTensor", b, loc);
        b.state = TBufState::OCCUPIED;
        b.given_back = false;
        b.where = loc;
        ++bufUsedCount_;
        return reinterpret_cast<TBufHandle>(&b);
    }
    char text[160];
    std::snprintf(
        text, sizeof text,
        "all %u buffers are taken (first at line %u): FreeTensor is missing, or InitBuffer gave too few",
        bufNum_, bufStart_[0].where.line);
    Broken("AllocTensor", "queue.no_buffer", text, loc);
}

template <TPosition src, TPosition dst, int32_t depth, auto mask>
bool TQueBind<src, dst, depth, mask>::Put(TBufHandle handle, HardEvent event, Loc loc) {
    TBufType* b = reinterpret_cast<TBufType*>(handle);
    if (!Owns(b)) Broken("EnQue", "queue.foreign", "the tensor was not allocated from this queue", loc);
    if (b->state != TBufState::OCCUPIED && b->state != TBufState::DEQUE)
        Broken("EnQue", "queue.state",
               b->state == TBufState::FREE ? "the tensor is free" : "the tensor is in the queue already",
               loc);
    if (usedCount_ >= uint32_t(depth)) {
        char text[96];
        std::snprintf(text, sizeof text, "%u tensors are enqueued already, depth is %d: DeQue first",
                      usedCount_, depth);
        Broken("EnQue", "queue.depth", text, loc);
    }
    ring_[tail_] = handle;
    tail_ = (tail_ + 1) % kRing;
    ++usedCount_;
    b->state = TBufState::ENQUE;
    b->where = loc;
    b->enQueEvt = event;
    if (event == HardEvent::MAX) return true;
    b->enQueEvtID =
        event == HardEvent::V_V ? TEventID(0) : PipeOf("EnQue", loc).events().Alloc("EnQue", event, loc);
    SetQueueEvent("EnQue", event, b->enQueEvtID, loc);
    return true;
}

template <TPosition src, TPosition dst, int32_t depth, auto mask>
TBufHandle TQueBind<src, dst, depth, mask>::Get(HardEvent event, Loc loc) {
    if (!usedCount_)
        Broken("DeQue", "queue.empty", "nothing is enqueued: EnQue is missing before this DeQue", loc);
    TBufHandle handle = ring_[head_];
    head_ = (head_ + 1) % kRing;
    --usedCount_;
    TBufType* b = reinterpret_cast<TBufType*>(handle);
    if (b->enQueEvt != event)
        Complain("DeQue", "queue.positions", "EnQue and DeQue name different positions", loc);
    b->state = TBufState::DEQUE;
    b->where = loc;
    if (b->enQueEvtID == INVALID_TEVENTID) return handle;
    WaitQueueEvent("DeQue", b->enQueEvt, b->enQueEvtID, loc);
    if (b->enQueEvt != HardEvent::V_V)
        PipeOf("DeQue", loc).events().Release("DeQue", b->enQueEvt, b->enQueEvtID, loc);
    b->enQueEvtID = INVALID_TEVENTID;
    return handle;
}

template <TPosition src, TPosition dst, int32_t depth, auto mask>
void TQueBind<src, dst, depth, mask>::FreeBuffer(TBufHandle handle, Loc loc) {
    TBufType* b = reinterpret_cast<TBufType*>(handle);
    if (!Owns(b)) Broken("FreeTensor", "queue.foreign", "the tensor was not allocated from this queue", loc);
    if (b->state == TBufState::FREE)
        return Complain("FreeTensor", "queue.free_twice", "the tensor is free already", loc);
    if (b->state == TBufState::ENQUE)
        return Complain("FreeTensor", "queue.state", "the tensor is still enqueued: DeQue first", loc);
    if (b->state == TBufState::OCCUPIED && bufferPosition != TPosition::VECCALC)
        ascsim::Report(ascsim::Severity::Warning, ascsim::CallSite("FreeTensor", loc), "queue.unqueued",
                       "queue <%s>: the tensor was never enqueued and dequeued: only other events can order "
                       "its producer and consumer",
                       PositionName(bufferPosition));
    if (freeBufEvt != HardEvent::MAX) {
        b->freeBufEvt = freeBufEvt;
        b->freeBufEvtID = PipeOf("FreeTensor", loc).events().Alloc("FreeTensor", freeBufEvt, loc);
        SetQueueEvent("FreeTensor", freeBufEvt, b->freeBufEvtID, loc);
    }
    b->state = TBufState::FREE;
    b->given_back = true;
    b->where = loc;
    --bufUsedCount_;
}

template <TPosition pos, int32_t depth, auto mask = 0>
class TQue : public TQueBind<GetBufferLogicPos(pos, true), GetBufferLogicPos(pos, false), depth, mask> {
 public:
    static constexpr TPosition bufferPosition = pos;
};
template <TPosition pos, int32_t depth = 1, auto mask = 0>
using TSCM = TQueBind<pos, TPosition::TSCM, depth, mask>;

// Plain buffer: no events, every Get returns the same bytes.
template <TPosition pos = TPosition::LCM>
class TBuf {
 public:
    static constexpr TPosition bufferPosition = pos;
    static constexpr bool isTQue = false;
    void Attach(TBufType* first, uint32_t) { buf_ = first; }
    template <typename T>
    LocalTensor<T> Get(Loc loc = Loc::Here()) {
        return Slice<T>("Get", 0, Buffer("Get", loc).dataLen);
    }
    // `len` in elements.
    template <typename T>
    LocalTensor<T> Get(uint32_t len, Loc loc = Loc::Here()) {
        Buffer("Get", loc);
        return Slice<T>("Get", 0, uint32_t(BytesOf<T>(len)));
    }
    // `size` in elements, `bufOffset` in bytes.
    template <typename T>
    LocalTensor<T> GetWithOffset(uint32_t size, uint32_t bufOffset, Loc loc = Loc::Here()) {
        Buffer("GetWithOffset", loc);
        if (bufOffset % ONE_BLK_SIZE)
            ascsim::Report(ascsim::Severity::Error, ascsim::CallSite("GetWithOffset", loc), "param.align",
                           "offset %u is not a multiple of 32 bytes", bufOffset);
        return Slice<T>("GetWithOffset", bufOffset, uint32_t(BytesOf<T>(size)));
    }
    uint32_t GetBufLen() const { return buf_ ? buf_->dataLen : 0; }
    template <typename T>
    LocalTensor<T> AllocTensor(Loc loc = Loc::Here()) {
        return Get<T>(loc);
    }
    template <typename T>
    void FreeTensor(LocalTensor<T>&) {}
    template <typename T>
    void EnQue(const LocalTensor<T>&) {}
    template <typename T>
    LocalTensor<T> DeQue(Loc loc = Loc::Here()) {
        return Get<T>(loc);
    }

 private:
    const TBufType& Buffer(const char* api, Loc loc) const {
        if (!buf_)
            ascsim::Fail(ascsim::CallSite(api, loc), "queue.uninit",
                         "no InitBuffer was called for this TBuf");
        return *buf_;
    }
    template <typename T>
    LocalTensor<T> Slice(const char*, uint32_t offset, uint32_t bytes) const {
        LocalTensor<T> t;
        t.SetAddr(TBuffAddr{bytes, buf_->address + offset, reinterpret_cast<TBufHandle>(buf_), uint8_t(pos)});
        t.BindAllocation(buf_->address, buf_->address + buf_->dataLen);
        return t;
    }
    TBufType* buf_ = nullptr;
};

// A stretch of TPipe's memory that is parcelled out anew for each phase of a kernel.
template <TPosition pos, uint32_t bufIDSize = 4>
class TBufPool {
 public:
    static constexpr TPosition poolPos = pos;
    static constexpr bool isTbufPool = true;
    void Place(uint32_t begin, uint32_t end) {
        begin_ = begin;
        end_ = end;
        space_.Limit(begin, end, MemOf(pos));
    }
    template <class Queue>
    bool InitBuffer(Queue& que, uint8_t num, uint32_t len, Loc loc = Loc::Here()) {
        que.Attach(space_.Place("TBufPool::InitBuffer", Queue::bufferPosition, num, len, "TQue", loc), num);
        return true;
    }
    template <TPosition bufPos>
    bool InitBuffer(TBuf<bufPos>& buf, uint32_t len, Loc loc = Loc::Here()) {
        buf.Attach(space_.Place("TBufPool::InitBuffer", bufPos, 1, len, "TBuf", loc), 1);
        return true;
    }
    template <class Pool>
    bool InitBufPool(Pool& pool, uint32_t len, Loc loc = Loc::Here()) {
        const uint32_t at = space_.Reserve("InitBufPool", MemOf(pos), (len + 31) / 32 * 32, loc);
        pool.Place(at, at + (len + 31) / 32 * 32);
        return true;
    }
    void Reset(Loc loc = Loc::Here()) {
        space_.Close("TBufPool::Reset", loc);
        space_.Reset();
        space_.Limit(begin_, end_, MemOf(pos));
    }
    uint32_t begin() const { return begin_; }
    uint32_t end() const { return end_; }

 private:
    BufferSpace space_;
    uint32_t begin_ = 0, end_ = 0;
};

// Static placement without a TPipe: bump allocation in one memory.
template <Hardware hard = Hardware::UB>
class LocalMemAllocator {
 public:
    template <TPosition pos, typename T>
    LocalTensor<T> Alloc(uint32_t elements, Loc loc = Loc::Here()) {
        return Take<T>(pos, elements, loc);
    }
    template <TPosition pos, typename T, uint32_t elements>
    LocalTensor<T> Alloc(Loc loc = Loc::Here()) {
        return Take<T>(pos, elements, loc);
    }
    template <typename T, uint32_t elements>
    LocalTensor<T> Alloc(Loc loc = Loc::Here()) {
        return Take<T>(kDefault, elements, loc);
    }
    template <typename T>
    LocalTensor<T> Alloc(uint32_t elements, Loc loc = Loc::Here()) {
        return Take<T>(kDefault, elements, loc);
    }
    uint32_t GetCurAddr() const { return next_; }

 private:
    static constexpr TPosition kDefault = hard == Hardware::L1    ? TPosition::A1
                                          : hard == Hardware::L0A ? TPosition::A2
                                          : hard == Hardware::L0B ? TPosition::B2
                                          : hard == Hardware::L0C ? TPosition::CO1
                                                                  : TPosition::VECCALC;
    template <typename T>
    LocalTensor<T> Take(TPosition pos, uint32_t elements, Loc loc) {
        const uint32_t bytes = (uint32_t(BytesOf<T>(elements)) + 31) / 32 * 32;
        const uint64_t size = ascsim::Core().local_bytes[int(MemOf(pos))];
        if (uint64_t(next_) + bytes > size)
            ascsim::Fail(ascsim::CallSite("LocalMemAllocator::Alloc", loc), "capacity",
                         "%u bytes at %u do not fit into %s of %llu bytes", bytes, next_,
                         ascsim::MemName(MemOf(pos)), (unsigned long long)size);
        LocalTensor<T> t(pos, next_, elements);
        ascsim::RegisterBuffer(MemOf(pos), next_, next_ + bytes, "LocalMemAllocator tensor", loc);
        next_ += bytes;
        return t;
    }
    uint32_t next_ = 0;
};

}  // namespace AscendC
