// Global memory as the cores share it: DDR and L2 bandwidth by max-min fairness, and an LRU model of L2.
#pragma once
#include <cstdint>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/config.h"
#include "core/timing.h"

namespace ascsim {

// One GM move while its bytes are under way. `tag` is the caller's.
struct Flow {
    uint64_t tag = 0;
    uint32_t core = 0;
    double start = 0;       // cycle of the first byte
    double bytes = 0;       // still to move
    double port = 1;        // bytes per cycle the core's port allows
    double ddr_weight = 0;  // DDR bytes charged per byte moved
    double rate = 0;
};

class L2Cache {
 public:
    L2Cache(uint64_t capacity_bytes, uint64_t line_bytes);
    // Touches [address, + bytes) and returns how many of those bytes were resident.
    uint64_t Touch(uint64_t address, uint64_t bytes);

 private:
    uint64_t lines_, line_;
    struct Line {
        uint64_t number;
        uint32_t sectors;  // resident quarters, one bit each
    };
    std::list<Line> order_;  // most recent first
    std::unordered_map<uint64_t, std::list<Line>::iterator> where_;
};

class Fabric {
 public:
    Fabric(const ConfigText& figures, const std::vector<GmRange>& gm);

    // `start`: cycle of the first byte; `rate`: the move's own ceiling; `extra`: the slower vector cores of
    // 310P.
    void Submit(uint64_t tag, uint32_t core, const Record& r, double start, double rate, bool extra);
    bool Idle() const { return active_.empty() && pending_.empty(); }
    // Advances to the next completion and returns the finished flows' tags; `now()` is their end cycle.
    std::vector<uint64_t> Step();
    double now() const { return now_; }
    // Address of the replay's own for a host address.
    uint64_t Place(uint64_t host) const;

    uint64_t read_bytes = 0, write_bytes = 0, l2_hit_bytes = 0;
    double ddr_bytes = 0;  // with row and alignment penalties

 private:
    void ShareBandwidth();

    double ddr_rate_, l2_rate_, read_port_, write_port_, extra_port_, row_bytes_, unaligned_;
    bool l2_enabled_, write_back_;
    uint64_t line_;
    L2Cache l2_;
    struct Range {
        uint64_t host, bytes, place;
    };
    std::vector<Range> ranges_;  // sorted by host address
    std::vector<Flow> active_, pending_;
    double now_ = 0;
};

}  // namespace ascsim
