// TPipe: buffers and event ids of one kernel scope.
#pragma once
#include "ascsim/pool.h"
#include "ascsim/tensor.h"

namespace AscendC {

template <TPosition src, TPosition dst, int32_t depth, auto mask>
class TQueBind;
template <TPosition pos>
class TBuf;
template <TPosition pos, uint32_t bufIDSize>
class TBufPool;

class TPipe {
 public:
    explicit TPipe(Loc loc = Loc::Here()) : loc_(loc) { Init(); }
    ~TPipe() noexcept(false) {
        if (!ascsim::Stopping()) Destroy(loc_);
        if (ascsim::Core().user == this) ascsim::Core().user = previous_;
    }
    TPipe(const TPipe&) = delete;
    TPipe& operator=(const TPipe&) = delete;

    void Init() {
        if (ascsim::Core().user != this) previous_ = ascsim::Core().user;
        ascsim::Core().user = this;
        open_ = true;
    }
    // Queue: `num` buffers of `len` bytes each. Lengths are rounded up to 32 bytes.
    template <class Queue>
    bool InitBuffer(Queue& que, uint8_t num, uint32_t len, Loc loc = Loc::Here()) {
        que.Attach(space_.Place("InitBuffer", Queue::bufferPosition, num, len, "TQue", loc), num);
        return true;
    }
    template <TPosition pos>
    bool InitBuffer(TBuf<pos>& buf, uint32_t len, Loc loc = Loc::Here()) {
        buf.Attach(space_.Place("InitBuffer", pos, 1, len, "TBuf", loc), 1);
        return true;
    }
    template <class Pool>
    bool InitBufPool(Pool& pool, uint32_t len, Loc loc = Loc::Here()) {
        len = (len + ONE_BLK_SIZE - 1) / ONE_BLK_SIZE * ONE_BLK_SIZE;
        const uint32_t at = space_.Reserve("InitBufPool", MemOf(Pool::poolPos), len, loc);
        pool.Place(at, at + len);
        return true;
    }
    // Shares the memory of another pool.
    template <class Pool, class Shared>
    bool InitBufPool(Pool& pool, uint32_t len, Shared& shared, Loc loc = Loc::Here()) {
        static_assert(MemOf(Pool::poolPos) == MemOf(Shared::poolPos),
                      "pools that share memory must lie in one memory");
        if (len > shared.end() - shared.begin())
            ascsim::Fail(ascsim::CallSite("InitBufPool", loc), "capacity", "%u bytes in a shared pool of %u",
                         len, shared.end() - shared.begin());
        pool.Place(shared.begin(), shared.begin() + len);
        return true;
    }

    template <HardEvent evt>
    TEventID AllocEventID(Loc loc = Loc::Here()) {
        return events_.Alloc("AllocEventID", evt, loc);
    }
    template <HardEvent evt>
    void ReleaseEventID(TEventID id, Loc loc = Loc::Here()) {
        events_.Release("ReleaseEventID", evt, id, loc);
    }
    template <HardEvent evt>
    TEventID FetchEventID(Loc loc = Loc::Here()) {
        return events_.Fetch("FetchEventID", evt, loc);
    }
    TEventID FetchEventID(HardEvent evt, Loc loc = Loc::Here()) {
        return events_.Fetch("FetchEventID", evt, loc);
    }

    // Absolute placement: byte offset and element count in the memory of `pos`.
    template <TPosition pos, typename T>
    LocalTensor<T> GetAbsAddr(int32_t offset, int32_t size) const {
        return LocalTensor<T>(pos, uint32_t(offset), uint32_t(size));
    }
    void Reset(Loc loc = Loc::Here()) {
        space_.Close("Reset", loc);
        space_.Reset();
        for (int m = 0; m < int(ascsim::Mem::COUNT); ++m) ascsim::ForgetBuffers(ascsim::Mem(m));
    }
    void Destroy(Loc loc = Loc::Here()) {
        if (!open_) return;
        open_ = false;
        space_.Close("TPipe", loc);
        ascsim::PipeBarrierAll("TPipe", loc);
    }

    BufferSpace& space() { return space_; }
    EventPool& events() { return events_; }

 private:
    BufferSpace space_;
    EventPool events_;
    void* previous_ = nullptr;
    bool open_ = false;
    Loc loc_;
};

inline TPipe* GetTPipePtr() { return static_cast<TPipe*>(ascsim::Core().user); }

// The pipe of this scope; a queue without one cannot work.
inline TPipe& PipeOf(const char* api, Loc loc) {
    if (!ascsim::Core().user)
        ascsim::Fail(ascsim::CallSite(api, loc), "tpipe.none", "no TPipe exists in this kernel scope");
    return *GetTPipePtr();
}

// Rest of UB behind the buffers: what APIs without a temporary-buffer argument take for themselves.
template <typename T, TPosition pos>
bool PopStackBuffer(LocalTensor<T>& popLocal) {
    uint32_t begin = 0, end = uint32_t(ascsim::UsableBytes(MemOf(pos)));
    if (TPipe* pipe = GetTPipePtr()) {
        begin = pipe->space().next(MemOf(pos));
        end = std::max(begin, pipe->space().end(MemOf(pos)));
    }
    popLocal = LocalTensor<T>(pos, begin, uint32_t((end - begin) / sizeof(T)));
    return true;
}

}  // namespace AscendC

// CANN declares it outside the namespace.
using AscendC::GetTPipePtr;
