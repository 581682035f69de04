// CrossCoreSetFlag and CrossCoreWaitFlag: counters of the cores, by flag id.
#include "core/state.h"
#include "core/sync.h"

namespace ascsim {
namespace {

constexpr uint32_t kFlags = 16;       // ids of one core
constexpr size_t kCounterLimit = 15;  // a counter has four bits

// Setters and receivers of a flag that `self` sets.
struct Parties {
    std::vector<uint32_t> setters, receivers;
};

Parties PartiesOf(const Block& self, uint32_t mode) {
    Parties p;
    for (const auto& b : g_launch->blocks) {
        const CoreState& c = b->core;
        const bool same_kind = c.kind == self.core.kind, same_group = c.group == self.core.group;
        if (mode == 0 ? same_kind : same_group && same_kind && (mode == 2 || c.kind == CoreKind::Vector))
            p.setters.push_back(c.core_id);
        if (mode == 2 ? same_group && !same_kind : mode == 0 ? same_kind : same_group && same_kind)
            p.receivers.push_back(c.core_id);
    }
    return p;
}

// Names the flag for the timing replay: all its setters share the number.
int32_t EventNumber(const Block& self, uint32_t mode, uint32_t flag) {
    const uint32_t group = mode == 0 ? 0 : self.core.group + 1;
    return int32_t(flag | mode << 4 | uint32_t(self.core.kind) << 6 | group << 8);
}

Op FlagOp(const char* api, OpKind kind, Pipe pipe, int32_t event, Loc loc) {
    Op op = CallSite(api, loc, pipe);
    op.kind = kind;
    op.peer = Pipe::S;
    op.event = event;
    return op;
}

bool GoodId(const Op& op, uint32_t flag) {
    if (flag >= kFlags)
        Report(Severity::Error, op, "flag.id", "flag id %u; allowed 0 … %u", flag, kFlags - 1);
    return flag < kFlags;
}

}  // namespace

void CrossCoreSet(const char* api, uint32_t mode, Pipe pipe, uint32_t flag, Loc loc) {
    Block& self = *g_block;
    const int32_t event = EventNumber(self, mode, flag);
    const Op op = FlagOp(api, OpKind::CrossSet, pipe, event, loc);
    if (!GoodId(op, flag)) return;
    if (mode != 0 && !g_launch->mixed)
        Fail(op, "flag.mode",
             "mode %u pairs cores of one AI Core, and this kernel runs on one kind of core only", mode);
    if (g_soc.record) KeepRecord(op, false, Pipe::S);
    ++self.progress;
    const Parties parties = PartiesOf(self, mode);
    Arrival& arrival = g_launch->flags[uint64_t(uint32_t(event))];
    arrival.of[self.core.core_id].push_back(Snapshot(self, pipe));
    for (const uint32_t setter : parties.setters)
        if (arrival.of[setter].empty()) return;
    Token token{{}, event};
    for (const uint32_t setter : parties.setters) {
        Merge(token.seen, arrival.of[setter].front());
        arrival.of[setter].pop_front();
    }
    for (const uint32_t receiver : parties.receivers) {
        auto& counter = g_launch->blocks[receiver]->tokens[flag];
        counter.push_back(token);
        if (counter.size() > kCounterLimit)
            Report(Severity::Error, op, "flag.counter",
                   "flag id %u is set %zu times before its wait; the counter ends at %zu", flag,
                   counter.size(), kCounterLimit);
    }
}

void CrossCoreWait(const char* api, uint32_t flag, Loc loc) {
    Block& self = *g_block;
    if (!GoodId(FlagOp(api, OpKind::CrossWait, Pipe::S, 0, loc), flag)) return;
    auto& counter = self.tokens[flag];
    while (counter.empty()) Yield(Wait::Signal, std::string(api) + " for flag " + std::to_string(flag), loc);
    const Token token = std::move(counter.front());
    counter.pop_front();
    Merge(self.seen, token.seen);
    if (g_soc.record) KeepRecord(FlagOp(api, OpKind::CrossWait, Pipe::S, token.event, loc), false, Pipe::S);
}

void FinishCrossFlags() {
    for (const auto& b : g_launch->blocks) {
        g_block = b.get();
        for (uint32_t flag = 0; flag < kFlags; ++flag)
            if (!b->tokens[flag].empty())
                Report(Severity::Warning, CallSite("CrossCoreSetFlag", Loc{"", 0}), "flag.unpaired",
                       "flag id %u of %s is still set at the end of the kernel: the next kernel meets it",
                       flag, CoreName(*b).c_str());
    }
    g_block = nullptr;
}

}  // namespace ascsim
