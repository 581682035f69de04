// The C entry: one launch from request to JSON report.
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "core/state.h"
#include "core/timing.h"

namespace ascsim {
namespace {

std::mutex g_one_launch;    // the engine's state is per process
uint32_t g_high_epoch = 0;  // no epoch of an earlier launch is above this

void LoadSoc(const AscsimLaunch& r, const ConfigText& c, bool cubes) {
    SocInfo s;
    const std::string name = c.Text("soc.name", "ascend310p");
    std::strncpy(s.name, name.c_str(), sizeof s.name - 1);
    s.is_310p = name.find("310") != std::string::npos;
    auto size = [&](Mem m, const char* key, double fallback) {
        s.bytes[int(m)] = uint64_t(c.Number(key, fallback));
    };
    size(Mem::UB, "sizes.ub", s.is_310p ? 262144 : 196608);
    s.ub_reserved = uint64_t(c.Number("sizes.ub_reserved", 0));
    size(Mem::L1, "sizes.l1", s.is_310p ? 1048576 : 524288);
    size(Mem::L0A, "sizes.l0a", 65536);
    size(Mem::L0B, "sizes.l0b", 65536);
    size(Mem::L0C, "sizes.l0c", s.is_310p ? 262144 : 131072);
    size(Mem::BT, "sizes.bt", s.is_310p ? 0 : 1024);
    size(Mem::FB, "sizes.fb", s.is_310p ? 0 : 7168);
    s.max_block_dim =
        uint32_t(cubes ? c.Number("cores.cube", s.is_310p ? 8 : 20)
                       : c.Number("cores.vector", s.is_310p ? 8 : 40) + c.Number("cores.extra_vector", 0));
    s.event_ids = std::min(16u, uint32_t(c.Number("cores.max_events", 8)));
    s.queue_depth_limit = uint32_t(c.Number("cores.queue_tensors", 8));
    s.fp16_saturate = c.Number("numerics.fp16_saturate", s.is_310p) != 0;
    s.checks = r.checks != 0;
    s.record = r.record != 0;
    s.auto_sync = r.auto_sync != 0;
    g_soc = s;
}

void AddBlock(Launch& launch, CoreKind kind, uint32_t index, uint32_t sub, uint32_t subs, uint32_t group) {
    auto b = std::make_unique<Block>();
    b->core.core_id = uint32_t(launch.blocks.size());
    b->core.kind = kind;
    b->core.block_idx = index;
    b->core.block_num = launch.request->block_dim;
    b->core.sub_block_idx = sub;
    b->core.sub_block_num = subs;
    b->core.group = group;
    b->core.impl = b.get();
    launch.blocks.push_back(std::move(b));
}

void Prepare(Launch& launch) {
    const AscsimLaunch& r = *launch.request;
    launch.base = launch.epoch = g_high_epoch;
    launch.gm.Build(r.args, r.n_args, launch.base);
    const uint32_t vectors = launch.vectors_per_cube;
    for (uint32_t i = 0; i < r.block_dim; ++i) {
        if (!launch.mixed) {
            AddBlock(launch, CoreKind::Combined, i, 0, 1, i);
            continue;
        }
        if (launch.cube_kernel) AddBlock(launch, CoreKind::Cube, i, 0, std::max(1u, vectors), i);
        for (uint32_t v = 0; v < vectors; ++v)
            AddBlock(launch, CoreKind::Vector, i * vectors + v, v, vectors, i);
    }
}

void RunKernel(Launch& launch) {
    std::vector<void*> pointers;
    for (int32_t i = 0; i < launch.request->n_args; ++i) pointers.push_back(launch.request->args[i].data);
    RunBlocks([&] {
        std::vector<void*> mine = pointers;  // the glue may step through its array
        const bool cube = g_core->kind == CoreKind::Cube;
        (cube ? launch.cube_kernel : launch.request->kernel)(mine.data());
        if (g_soc.checks && !launch.stopped) FinishFlags(*g_block);
    });
    g_high_epoch = std::max(g_high_epoch, launch.epoch);
    if (g_soc.checks && !launch.stopped) {
        launch.gm.FinishCaches();
        FinishCrossFlags();
    }
}

std::string ReportJson(Launch& launch) {
    Json out;
    const bool ok = launch.error.empty() && !launch.reporter.HasError();
    out.Open('{').Key("ok").Bool(ok).Key("error");
    if (launch.error.empty())
        out.Null();
    else
        out.Str(launch.error);
    out.Key("hazards");
    launch.reporter.Write(out);
    out.Key("prints").Open('[');
    for (const std::string& line : launch.prints) out.Str(line);
    out.Close(']').Key("timing");
    if (g_soc.record && launch.error.empty()) {
        std::vector<std::vector<Record>> per_core;
        for (auto& b : launch.blocks) per_core.push_back(std::move(b->records));
        ReplayInput replay;
        replay.soc_config = launch.request->soc_config;
        replay.blocks = &per_core;
        replay.cores_per_block =
            launch.mixed ? uint32_t(launch.blocks.size() / launch.request->block_dim) : 0;
        for (int32_t i = 0; i < launch.request->n_args; ++i) {
            const AscsimArg& a = launch.request->args[i];
            replay.gm.push_back({reinterpret_cast<uint64_t>(a.data), a.data ? a.bytes : 0});
        }
        out.Raw(ReplayJson(replay));
    } else {
        out.Null();
    }
    return out.Close('}').text();
}

std::string Refusal(const char* op, const char* text) {
    Json out;
    out.Open('{').Key("ok").Bool(false).Key("error").Str(std::string(op ? op : "launch") + ": " + text);
    return out.Key("hazards").Raw("[]").Key("prints").Raw("[]").Key("timing").Null().Close('}').text();
}

std::string RunLaunch(const AscsimLaunch& request, const AscsimMixed* mixed) {
    Launch launch;
    launch.request = &request;
    if (mixed) {
        launch.mixed = true;
        launch.cube_kernel = mixed->cube_kernel;
        launch.vectors_per_cube = mixed->vectors;
    }
    if ((!request.kernel && (!mixed || mixed->vectors)) || !request.block_dim)
        return Refusal(request.op, "kernel: no entry or block_dim 0");
    if (mixed && !mixed->cube_kernel && !mixed->vectors)
        return Refusal(request.op, "kernel: neither cube nor vector");
    const uint32_t blocks = request.block_dim * (mixed ? (mixed->cube_kernel ? 1 : 0) + mixed->vectors : 1);
    if (blocks > 1023) return Refusal(request.op, "block_dim: above 1023");
    launch.config = ConfigText(request.soc_config ? request.soc_config : "");
    LoadSoc(request, launch.config, mixed && mixed->cube_kernel);
    g_launch = &launch;
    std::string json;
    try {
        Prepare(launch);
        RunKernel(launch);
        json = ReportJson(launch);
    } catch (const std::exception& e) {
        json = Refusal(request.op, e.what());
    }
    g_launch = nullptr;
    return json;
}

}  // namespace

}  // namespace ascsim

extern "C" const char* ascsim_launch(const AscsimLaunch* request) {
    const std::lock_guard<std::mutex> lock(ascsim::g_one_launch);
    return strdup(ascsim::RunLaunch(*request, nullptr).c_str());
}

extern "C" const char* ascsim_launch_mixed(const AscsimLaunch* request, const AscsimMixed* mixed) {
    const std::lock_guard<std::mutex> lock(ascsim::g_one_launch);
    return strdup(ascsim::RunLaunch(*request, mixed).c_str());
}

extern "C" void ascsim_free(const char* json) { free(const_cast<char*>(json)); }
