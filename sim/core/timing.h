// Timing replay: prices the Records of a launch and runs them through the pipes, flags and memory of the SoC.
//
// The scalar unit S walks the records in program order and pays an issue cost for each; every other pipe is
// an in-order queue. A call occupies its pipe for its throughput time and shows its result `latency` cycles
// later, which only a flag, a barrier or a dependency guarded by the compiler waits for. GM moves of all
// cores share DDR and L2 by max-min fairness. Nothing depends on host time or host addresses, so two runs
// give one answer.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/op.h"

namespace ascsim {

struct GmRange {
    uint64_t base;  // host address of one kernel argument
    uint64_t bytes;
};

struct ReplayInput {
    const char* soc_config = "";                               // flattened figures, "a.b.c = value" lines
    const std::vector<std::vector<Record>>* blocks = nullptr;  // program order, one list per block
    uint32_t cores_per_block =
        0;  // split cores per AI Core of a mixed launch; 0: the blocks run on cores of one kind
    std::vector<GmRange> gm;  // arguments in launch order: they make GM addresses repeatable for the L2 model
};

// JSON object "timing" of the launch report: cycles, us, per core and pipe busy cycles, bytes, counts, bound,
// stalls; with `timing.trace = 1` in the config also "trace", events for chrome://tracing.
std::string ReplayJson(const ReplayInput& input);

// Repeats of a vector op that lose a cycle to a UB bank conflict (910B bank map; read-write conflicts count
// 3/4).
uint32_t BankConflicts(const Op& op);

}  // namespace ascsim
