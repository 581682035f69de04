#include "core/timing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>

#include "core/config.h"
#include "core/json.h"
#include "core/timing_core.h"
#include "core/timing_fabric.h"
#include "core/timing_price.h"

namespace ascsim {

namespace {

const char* const kPipeNames[] = {"S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX"};
constexpr size_t kTopStalls = 10;

using Cores = std::vector<std::unique_ptr<CoreReplay>>;

// The fraction of the slowest core's time below which no pipe is what bounds it.
constexpr double kBusyEnough = 0.5;

const char* BoundClass(const CoreReplay& core) {
    const auto& busy = core.busy();
    const int top = int(std::max_element(busy.begin(), busy.end()) - busy.begin());
    if (core.cycles() <= 0 || busy[top] < kBusyEnough * core.cycles()) return "latency";
    switch (Pipe(top)) {
        case Pipe::S:
            return "scalar";
        case Pipe::V:
            return "vector";
        case Pipe::MTE2:
        case Pipe::MTE3:
            return "memory";
        default:
            return "cube";
    }
}

void WriteBusy(Json& json, const std::array<double, kPipes>& busy, bool all) {
    json.Open('{');
    for (int p = 0; p < kPipes; ++p) {
        const Pipe pipe = Pipe(p);
        const bool usual = pipe == Pipe::S || pipe == Pipe::V || pipe == Pipe::MTE2 || pipe == Pipe::MTE3;
        if (all || usual || busy[p] > 0) json.Key(kPipeNames[p]).Num(std::round(busy[p]));
    }
    json.Close('}');
}

// Lost cycles of the slowest core: those of its busiest pipe first, then of the others.
void WriteStalls(Json& json, const CoreReplay& core) {
    const auto& busy = core.busy();
    const Pipe lead = Pipe(std::max_element(busy.begin() + 1, busy.end()) - busy.begin());
    std::vector<std::pair<StallKey, Stall>> list(core.stalls().begin(), core.stalls().end());
    std::stable_sort(list.begin(), list.end(), [&](const auto& a, const auto& b) {
        const bool lead_a = a.first.pipe == lead, lead_b = b.first.pipe == lead;
        return lead_a != lead_b ? lead_a : a.second.cycles > b.second.cycles;
    });
    // Half of the list is the lead pipe's; the rest goes by cycles.
    const size_t leading = std::min(kTopStalls / 2, list.size());
    std::stable_sort(list.begin() + long(leading), list.end(),
                     [](const auto& a, const auto& b) { return a.second.cycles > b.second.cycles; });
    if (list.size() > kTopStalls) list.resize(kTopStalls);
    json.Open('[');
    for (const auto& [key, stall] : list) {
        json.Open('{');
        json.Key("pipe").Str(kPipeNames[int(key.pipe)]).Key("cause").Str(key.cause);
        json.Key("kernel_file").Str(key.file).Key("line").Int(key.line).Key("api").Str(key.api);
        json.Key("cycles").Num(std::round(stall.cycles)).Key("count").Int(int64_t(stall.count));
        json.Close('}');
    }
    json.Close(']');
}

void WriteTrace(Json& json, std::vector<TraceEvent> events, double mhz) {
    std::stable_sort(events.begin(), events.end(), [](const TraceEvent& a, const TraceEvent& b) {
        return std::tie(a.start, a.core, a.pipe) < std::tie(b.start, b.core, b.pipe);
    });
    json.Open('[');
    for (const TraceEvent& e : events) {
        const Record& r = *e.record;
        json.Open('{').Key("name").Str(CoreReplay::Describe(r)).Key("ph").Str("X");
        json.Key("pid").Int(e.core).Key("tid").Str(kPipeNames[int(e.pipe)]);
        json.Key("ts").Num(e.start / mhz).Key("dur").Num((e.end - e.start) / mhz);
        json.Key("args").Open('{').Key("line").Int(r.loc.line).Key("cycles").Num(e.end - e.start);
        if (r.bytes) json.Key("bytes").Int(int64_t(r.bytes));
        if (r.repeats) json.Key("repeats").Int(r.repeats);
        json.Close('}').Close('}');
    }
    json.Close(']');
}

void RunAll(Cores& cores, Fabric& fabric) {
    for (;;) {
        for (bool moved = true; moved;) {
            moved = false;
            for (auto& core : cores) moved |= core->Advance();
        }
        if (!fabric.Idle()) {
            for (uint64_t tag : fabric.Step()) {
                cores[tag / kPipes]->Complete(Pipe(tag % kPipes), fabric.now());
            }
            continue;
        }
        bool broken = false;
        for (auto& core : cores) {
            if (!core->Finished() && core->BreakDeadlock()) {
                broken = true;
                break;
            }
        }
        if (!broken) return;
    }
}

}  // namespace

std::string ReplayJson(const ReplayInput& input) {
    static const std::vector<std::vector<Record>> kNone;
    const auto& blocks = input.blocks ? *input.blocks : kNone;
    const ConfigText figures(input.soc_config ? input.soc_config : "");
    const double mhz = figures.Number("clock.mhz", 1000);
    const size_t resident = size_t(figures.Number("cores.vector", 1));
    const size_t extra = size_t(figures.Number("cores.extra_vector", 0));
    const size_t cubes = size_t(figures.Number("cores.cube", 1));
    const size_t hosts = input.cores_per_block ? cubes * input.cores_per_block : resident + extra;
    const size_t count = std::max<size_t>(1, std::min(blocks.size(), hosts));
    const double extra_scale = mhz / std::max(1.0, figures.Number("clock.extra_vector_mhz", mhz));

    PriceTable prices(figures);
    Fabric fabric(figures, input.gm);
    Rendezvous rendezvous(count);
    std::vector<TraceEvent> trace;
    const bool tracing = figures.Number("timing.trace", 0) != 0;
    Cores cores;
    for (size_t i = 0; i < count; ++i) {
        const double scale = i < resident || input.cores_per_block ? 1.0 : extra_scale;
        cores.push_back(std::make_unique<CoreReplay>(uint32_t(i), scale,
                                                     uint32_t(figures.Number("cores.queue_depth", 32)),
                                                     prices, fabric, rendezvous, tracing ? &trace : nullptr));
    }
    for (size_t i = 0; i < blocks.size(); ++i) cores[i % count]->AddBlock(&blocks[i]);
    for (auto& core : cores) core->Prepare();
    RunAll(cores, fabric);

    const auto slowest = std::max_element(
        cores.begin(), cores.end(), [](const auto& a, const auto& b) { return a->cycles() < b->cycles(); });
    std::array<double, kPipes> busy{};
    std::map<std::string, CallTotal> calls;
    std::set<std::string> unpriced;
    for (const auto& core : cores) {
        for (int p = 0; p < kPipes; ++p) busy[p] = std::max(busy[p], core->busy()[p]);
        for (const auto& [name, total] : core->calls()) {
            calls[name].count += total.count;
            calls[name].cycles += total.cycles;
        }
        for (const auto& [name, times] : core->unpriced()) unpriced.insert(name);
    }

    const double cycles = (*slowest)->cycles();
    Json json;
    json.Open('{').Key("soc").Str(figures.Text("soc.variant", ""));
    json.Key("cycles").Num(std::round(cycles)).Key("clock_mhz").Num(mhz).Key("us").Num(cycles / mhz);
    json.Key("confidence").Str(figures.Text("soc.calibration", "uncalibrated"));
    json.Key("bound").Str(BoundClass(**slowest)).Key("blocks").Int(int64_t(blocks.size()));
    json.Key("per_core").Open('[');
    for (const auto& core : cores) {
        json.Open('{').Key("cycles").Num(std::round(core->cycles())).Key("busy");
        WriteBusy(json, core->busy(), false);
        json.Close('}');
    }
    json.Close(']').Key("busy");
    WriteBusy(json, busy, false);
    json.Key("gm_read_bytes").Int(int64_t(fabric.read_bytes));
    json.Key("gm_write_bytes").Int(int64_t(fabric.write_bytes));
    json.Key("l2_hit_bytes").Int(int64_t(fabric.l2_hit_bytes));
    json.Key("ddr_bytes").Num(std::round(fabric.ddr_bytes));
    json.Key("instructions").Open('{');
    for (const auto& [name, total] : calls) json.Key(name).Int(int64_t(total.count));
    json.Close('}').Key("ops").Open('{');
    for (const auto& [name, total] : calls) {
        json.Key(name).Open('{').Key("count").Int(int64_t(total.count));
        json.Key("cycles").Num(std::round(total.cycles)).Close('}');
    }
    json.Close('}').Key("stalls");
    WriteStalls(json, **slowest);
    json.Key("unpriced").Open('[');
    for (const std::string& key : unpriced) json.Str(key);
    json.Close(']');
    if (tracing) {
        json.Key("trace");
        WriteTrace(json, std::move(trace), mhz);
    }
    json.Close('}');
    return json.text();
}

}  // namespace ascsim
