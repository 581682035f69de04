// Events and barriers: SetFlag/WaitFlag, PipeBarrier and the legacy spellings.
#pragma once
#include "ascsim/types.h"
#include "core/sync.h"

enum pipe_t {
    PIPE_S = 0,
    PIPE_V,
    PIPE_M,
    PIPE_MTE1,
    PIPE_MTE2,
    PIPE_MTE3,
    PIPE_ALL,
    PIPE_MTE4 = 7,
    PIPE_MTE5 = 8,
    PIPE_V2 = 9,
    PIPE_FIX = 10,
};
enum event_t { EVENT_ID0 = 0, EVENT_ID1, EVENT_ID2, EVENT_ID3, EVENT_ID4, EVENT_ID5, EVENT_ID6, EVENT_ID7 };

namespace ascsim {

constexpr Pipe ToPipe(pipe_t p) {
    switch (p) {
        case PIPE_V:
            return Pipe::V;
        case PIPE_M:
            return Pipe::M;
        case PIPE_MTE1:
            return Pipe::MTE1;
        case PIPE_MTE2:
            return Pipe::MTE2;
        case PIPE_MTE3:
            return Pipe::MTE3;
            // dav-m200 has no FIX pipe: catlass names it there and means MTE3.
#if defined(ASCSIM_SOC_310P)
        case PIPE_FIX:
            return Pipe::MTE3;
#else
        case PIPE_FIX:
            return Pipe::FIX;
#endif
        default:
            return Pipe::S;
    }
}

}  // namespace ascsim

namespace AscendC {

using ascsim::Loc;

template <HardEvent event>
void SetFlag(int32_t eventID, Loc loc = Loc::Here()) {
    constexpr EventPipes pipes = PipesOf(event);
    if (eventID == 6 || eventID == 7)
        ascsim::Report(ascsim::Severity::Note, ascsim::CallSite("SetFlag", loc), "flag.reserved",
                       "event id %d: the framework reserves 6 and 7 for itself", eventID);
    ascsim::SetEvent("SetFlag", pipes.from, pipes.to, eventID, loc);
}
template <HardEvent event>
void WaitFlag(int32_t eventID, Loc loc = Loc::Here()) {
    constexpr EventPipes pipes = PipesOf(event);
    ascsim::WaitEvent("WaitFlag", pipes.from, pipes.to, eventID, loc);
}

template <pipe_t pipe>
void PipeBarrier(Loc loc = Loc::Here()) {
    static_assert(pipe != PIPE_S, "PipeBarrier<PIPE_S> does not exist: the scalar unit runs in order");
    if constexpr (pipe == PIPE_ALL)
        ascsim::PipeBarrierAll("PipeBarrier", loc);
    else
        ascsim::PipeBarrierOf("PipeBarrier", ascsim::ToPipe(pipe), loc);
}

template <pipe_t src, pipe_t dst>
class TQueSync {
 public:
    void SetFlag(TEventID id, Loc loc = Loc::Here()) {
        ascsim::SetEvent("TQueSync::SetFlag", ascsim::ToPipe(src), ascsim::ToPipe(dst), id, loc);
    }
    void WaitFlag(TEventID id, Loc loc = Loc::Here()) {
        ascsim::WaitEvent("TQueSync::WaitFlag", ascsim::ToPipe(src), ascsim::ToPipe(dst), id, loc);
    }
};

enum class MemDsbT { ALL = 0, DDR, UB, SEQ };

}  // namespace AscendC

inline void set_flag(pipe_t src, pipe_t dst, int32_t id, ascsim::Loc loc = ascsim::Loc::Here()) {
    ascsim::SetEvent("set_flag", ascsim::ToPipe(src), ascsim::ToPipe(dst), id, loc);
}
inline void wait_flag(pipe_t src, pipe_t dst, int32_t id, ascsim::Loc loc = ascsim::Loc::Here()) {
    ascsim::WaitEvent("wait_flag", ascsim::ToPipe(src), ascsim::ToPipe(dst), id, loc);
}
inline void pipe_barrier(pipe_t pipe, ascsim::Loc loc = ascsim::Loc::Here()) {
    if (pipe == PIPE_ALL)
        ascsim::PipeBarrierAll("pipe_barrier", loc);
    else
        ascsim::PipeBarrierOf("pipe_barrier", ascsim::ToPipe(pipe), loc);
}
