// Buffers of TPipe and TBufPool: placement in a local memory, states, event ids.
#pragma once
#include "ascsim/event.h"
#include "core/frame.h"

namespace AscendC {

constexpr int32_t QUE_MAX_EVENT = 8;
constexpr TEventID INVALID_TEVENTID = -1;
constexpr uint32_t ONE_BLK_SIZE = 32;

enum class TBufState : uint8_t { FREE = 0, OCCUPIED, ENQUE, DEQUE };

struct TBufType {
    TBufState state = TBufState::FREE;
    HardEvent freeBufEvt = HardEvent::MAX;
    HardEvent enQueEvt = HardEvent::MAX;
    TEventID enQueEvtID = INVALID_TEVENTID;
    TEventID freeBufEvtID = INVALID_TEVENTID;
    uint32_t address = 0;
    uint32_t dataLen = 0;
    TTagType usertag = -1;
    bool given_back = false;  // by FreeTensor, and not handed out since
    Loc where{"", 0};         // call that put it into its state
};
inline const Loc* GivenBack(TBufHandle buffer) {
    const auto* b = reinterpret_cast<const TBufType*>(buffer);
    return b && b->given_back ? &b->where : nullptr;
}

struct TQueConfig {
    bool nd2nz = false;
    bool nz2nd = false;
    bool scmBlockGroup = false;
    uint32_t bufferLen = 0;
    uint32_t bufferNumber = 0;
    uint32_t consumerSize = 0;
    TPosition consumer[8] = {};
    bool enableStaticEvtId = false;
    bool enableLoopQueue = false;
};
template <typename T>
constexpr TQueConfig GetTQueConfig(const T& mask) {
    if constexpr (std::is_same_v<T, TQueConfig>)
        return mask;
    else if constexpr (std::is_pointer_v<T>)
        return *mask;
    else
        return TQueConfig{.nd2nz = (uint32_t(mask) & 1) != 0, .nz2nd = (uint32_t(mask) & 2) != 0};
}

// Position on the producer's (source) or consumer's side of a queue of this position.
constexpr TPosition GetBufferLogicPos(TPosition pos, bool isSrc) {
    switch (pos) {
        case TPosition::A1:
        case TPosition::B1:
        case TPosition::C1:
        case TPosition::VECIN:
            return isSrc ? TPosition::GM : pos;
        case TPosition::A2:
            return isSrc ? TPosition::A1 : pos;
        case TPosition::B2:
            return isSrc ? TPosition::B1 : pos;
        case TPosition::C2:
            return isSrc ? TPosition::C1 : pos;
        case TPosition::CO1:
            return isSrc ? pos : TPosition::CO2;
        case TPosition::CO2:
            return isSrc ? pos : TPosition::GM;
        case TPosition::VECOUT:
            return isSrc ? pos : TPosition::GM;
        case TPosition::SPM:
            return isSrc ? TPosition::VECOUT : TPosition::GM;
        case TPosition::C2PIPE2GM:
            return isSrc ? TPosition::B1 : pos;
        default:
            return pos;
    }
}
// Where a queue bound from src to dst keeps its buffers.
constexpr TPosition BufferPosition(TPosition src, TPosition dst) {
    if (src == TPosition::GM) return dst;
    if (src == TPosition::A1 || src == TPosition::B1 || src == TPosition::C1) return dst;
    return dst == TPosition::TSCM ? dst : src;
}

// Event a queue raises on EnQue (forward) or FreeTensor (backward); MAX = none.
constexpr HardEvent GetQueEvt(TPosition src_pos, TPosition dst_pos, bool forward, bool nd2nz = false) {
    using ascsim::Mem;
    const Mem src = MemOf(src_pos), dst = MemOf(dst_pos);
    if (src == Mem::GM) {
        if (dst == Mem::UB) return forward ? HardEvent::MTE2_V : HardEvent::V_MTE2;
        if (dst == Mem::L1) {
#if defined(ASCSIM_SOC_310P)
            if (nd2nz)
                return forward ? HardEvent::MTE3_MTE1
                               : HardEvent::MTE1_MTE3;  // nd2nz is emulated through UB there
#endif
            return forward ? HardEvent::MTE2_MTE1 : HardEvent::MTE1_MTE2;
        }
        return forward ? HardEvent::MTE2_M : HardEvent::M_MTE2;
    }
    if (src == Mem::UB) {
        if (dst == Mem::GM) return forward ? HardEvent::V_MTE3 : HardEvent::MTE3_V;
        if (dst == Mem::L1) return forward ? HardEvent::MTE3_MTE1 : HardEvent::MTE1_MTE3;
        if (dst == Mem::L0C) return forward ? HardEvent::V_V : HardEvent::MAX;
        return forward ? HardEvent::MTE2_MTE3 : HardEvent::MTE3_MTE2;
    }
    if (src == Mem::L1) {
        if (dst == Mem::UB) return forward ? HardEvent::MTE1_V : HardEvent::V_MTE1;
        if (dst == Mem::FB) return forward ? HardEvent::MTE1_FIX : HardEvent::FIX_MTE1;
        return forward ? HardEvent::MTE1_M : HardEvent::M_MTE1;
    }
#if !defined(ASCSIM_SOC_310P)
    if (src == Mem::L0C) return forward ? HardEvent::M_FIX : HardEvent::FIX_M;
#endif
    return forward ? HardEvent::M_V : HardEvent::V_M;
}

inline void SetQueueEvent(const char* api, HardEvent e, int32_t id, Loc loc) {
    const EventPipes p = PipesOf(e);
    ascsim::SetEvent(api, p.from, p.to, id, loc);
}
inline void WaitQueueEvent(const char* api, HardEvent e, int32_t id, Loc loc) {
    const EventPipes p = PipesOf(e);
    ascsim::WaitEvent(api, p.from, p.to, id, loc);
}

// A run of buffer descriptors and a bump allocator per memory.
class BufferSpace {
 public:
    static constexpr uint32_t kMax = 64;  // buffers one TPipe manages

    // Places `num` buffers of `len` bytes each; nullptr when they do not fit (reported).
    TBufType* Place(const char* api, TPosition position, uint32_t num, uint32_t len, const char* kind,
                    Loc loc);
    void Limit(uint32_t begin, uint32_t end, ascsim::Mem mem) {
        next_[int(mem)] = begin;
        end_[int(mem)] = end;
    }
    uint32_t Reserve(const char* api, ascsim::Mem mem, uint32_t len, Loc loc);
    // Waits for the events that freed buffers still hold; reports tensors that never came back.
    void Close(const char* api, Loc loc);
    void Reset() {
        count_ = 0;
        for (uint32_t& n : next_) n = 0;
    }
    uint32_t next(ascsim::Mem mem) const { return next_[int(mem)]; }
    uint32_t end(ascsim::Mem mem) const {
        return end_[int(mem)] ? end_[int(mem)] : uint32_t(ascsim::UsableBytes(mem));
    }

 private:
    TBufType buffers_[kMax];
    uint32_t count_ = 0;
    uint32_t next_[int(ascsim::Mem::COUNT)] = {};
    uint32_t end_[int(ascsim::Mem::COUNT)] = {};  // 0 = end of the memory
};

// Event ids in use, per event: what AllocEventID hands out and the queues take.
class EventPool {
 public:
    TEventID Alloc(const char* api, HardEvent e, Loc loc);
    void Release(const char* api, HardEvent e, TEventID id, Loc loc);
    TEventID Fetch(const char* api, HardEvent e, Loc loc);  // lowest free id, not reserved

 private:
    uint32_t used_[int(HardEvent::MAX)] = {};
};

}  // namespace AscendC

#include "ascsim/pool_impl.h"
