// Cycles of one record from the flattened SoC figures.
#pragma once
#include <string>
#include <unordered_map>

#include "core/config.h"
#include "core/op.h"

namespace ascsim {

struct Price {
    double per_repeat = 0;  // cycles for each 256 bytes of the wider operand
    double min = 0;         // shortest pipe occupancy
    double latency = 0;     // end of occupancy to visible result
    bool known = true;
};

struct MovePrice {
    double occupancy = 0;  // pipe cycles before the first byte
    double rate = 1;       // bytes per cycle through the core's port
    double latency = 0;
    bool known = true;
};

class PriceTable {
 public:
    explicit PriceTable(const ConfigText& figures);
    const Price& Call(const char* cost);
    const MovePrice& Move(Mem from, Mem to);

    double IssueCycles(const Record& r) const;
    // Pipe occupancy of a call, or of a move between local memories.
    double OccupancyCycles(const Record& r);
    double LatencyCycles(const Record& r);
    bool Known(const Record& r);

    double flag, barrier, barrier_all, sync_all, cross_core, block_start, burst;

 private:
    const ConfigText& figures_;
    double issue_vector_, issue_move_, issue_cube_, issue_flag_, issue_barrier_, issue_scalar_;
    double bank_cycles_;
    std::unordered_map<std::string, Price> calls_;
    MovePrice moves_[int(Mem::COUNT)][int(Mem::COUNT)];
    bool moves_set_[int(Mem::COUNT)][int(Mem::COUNT)] = {};
};

}  // namespace ascsim
