// C entries that feed the replay without a kernel, for its tests and for pricing a sequence written by hand.
#include <cstdlib>
#include <cstring>

#include "core/timing.h"

using ascsim::Access;
using ascsim::Record;

extern "C" {

// `records` holds the blocks one after another, `counts` their lengths; free the JSON with
// ascsim_replay_free.
const char* ascsim_replay_test(const char* soc_config, const Record* records, const uint64_t* counts,
                               uint32_t blocks, const ascsim::GmRange* gm, uint32_t gm_count) {
    std::vector<std::vector<Record>> lists(blocks);
    for (uint32_t b = 0; b < blocks; ++b) {
        lists[b].assign(records, records + counts[b]);
        records += counts[b];
    }
    ascsim::ReplayInput input;
    input.soc_config = soc_config;
    input.blocks = &lists;
    if (gm_count) input.gm.assign(gm, gm + gm_count);
    const std::string json = ascsim::ReplayJson(input);
    char* copy = static_cast<char*>(std::malloc(json.size() + 1));
    std::memcpy(copy, json.c_str(), json.size() + 1);
    return copy;
}

void ascsim_replay_free(const char* json) { std::free(const_cast<char*>(json)); }

uint32_t ascsim_bank_conflicts_test(const Access* accesses, uint32_t count, uint32_t repeats) {
    ascsim::Op op;
    op.work.repeats = repeats;
    for (uint32_t i = 0; i < count; ++i) op.Add(accesses[i]);
    return ascsim::BankConflicts(op);
}

uint64_t ascsim_record_size() { return sizeof(Record); }
uint64_t ascsim_access_size() { return sizeof(Access); }

}  // extern "C"
