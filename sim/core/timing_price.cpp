#include "core/timing_price.h"

#include <algorithm>

namespace ascsim {

namespace {

const char* const kMemNames[] = {"GM", "UB", "L1", "L0A", "L0B", "L0C", "BT", "FB"};

}  // namespace

PriceTable::PriceTable(const ConfigText& figures) : figures_(figures) {
    flag = figures.Number("latency.flag", 12);
    barrier = figures.Number("latency.barrier", 17);
    barrier_all = figures.Number("latency.barrier_all", 24);
    sync_all = figures.Number("latency.sync_all", 1500);
    cross_core = figures.Number("latency.cross_core", 500);
    block_start = figures.Number("latency.block_start", 0);
    burst = figures.Number("move.burst", 1);
    issue_vector_ = figures.Number("issue.vector", 16);
    issue_move_ = figures.Number("issue.move", 20);
    issue_cube_ = figures.Number("issue.cube", 16);
    issue_flag_ = figures.Number("issue.flag", 2);
    issue_barrier_ = figures.Number("issue.barrier", 2);
    issue_scalar_ = figures.Number("issue.scalar", 2);
    bank_cycles_ = figures.Number("banks.enabled", 0) != 0 ? figures.Number("banks.read_read", 1) : 0;
}

const Price& PriceTable::Call(const char* cost) {
    auto [it, fresh] = calls_.try_emplace(cost ? cost : "");
    if (!fresh) return it->second;
    const std::string& key = it->first;
    std::string name = key;
    if (!figures_.Has("cost." + name + ".min")) name = key.substr(0, key.find('.'));
    if (name.empty() || !figures_.Has("cost." + name + ".min")) {
        name = "default";
        it->second.known = false;
    }
    const std::string prefix = "cost." + name + ".";
    const bool priced = it->second.known;
    it->second.per_repeat = figures_.Number(prefix + "per_repeat", priced ? 0 : 4);
    it->second.min = figures_.Number(prefix + "min", priced ? 0 : 8);
    it->second.latency = figures_.Number(prefix + "latency", priced ? 0 : 40);
    return it->second;
}

const MovePrice& PriceTable::Move(Mem from, Mem to) {
    const int f = int(from), t = int(to);
    MovePrice& price = moves_[f][t];
    if (moves_set_[f][t]) return price;
    moves_set_[f][t] = true;
    std::string name = std::string(kMemNames[f]) + "2" + kMemNames[t];
    if (!figures_.Has("move." + name + ".rate")) {
        name = "default";
        price.known = false;
    }
    const std::string prefix = "move." + name + ".";
    price.occupancy = figures_.Number(prefix + "occupancy", 18);
    price.rate = std::max(1e-3, figures_.Number(prefix + "rate", 32));
    price.latency = figures_.Number(prefix + "latency", 100);
    return price;
}

double PriceTable::IssueCycles(const Record& r) const {
    switch (r.kind) {
        case OpKind::Compute:
            return r.pipe == Pipe::V ? issue_vector_ : issue_cube_;
        case OpKind::Move:
            return r.pipe == Pipe::V ? issue_vector_ : issue_move_;
        case OpKind::SetFlag:
        case OpKind::WaitFlag:
        case OpKind::CrossSet:
        case OpKind::CrossWait:
            return issue_flag_;
        case OpKind::Barrier:
        case OpKind::SyncAll:
            return issue_barrier_;
        case OpKind::Scalar:
            break;
    }
    return issue_scalar_;
}

double PriceTable::OccupancyCycles(const Record& r) {
    if (r.kind == OpKind::Move) {
        const MovePrice& price = Move(r.from, r.to);
        return price.occupancy + burst * (r.bursts > 1 ? r.bursts - 1 : 0) + double(r.bytes) / price.rate;
    }
    const Price& price = Call(r.cost);
    return std::max(price.min, price.per_repeat * r.repeats) + bank_cycles_ * r.bank_conflicts;
}

double PriceTable::LatencyCycles(const Record& r) {
    return r.kind == OpKind::Move ? Move(r.from, r.to).latency : Call(r.cost).latency;
}

bool PriceTable::Known(const Record& r) {
    return r.kind == OpKind::Move ? Move(r.from, r.to).known : Call(r.cost).known;
}

}  // namespace ascsim
