#include "core/timing_fabric.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace ascsim {

namespace {

constexpr double kEpsilon = 1e-3;  // bytes and bytes per cycle: below that a flow has ended

// Max-min fair shares of `capacity` for the given demands.
std::vector<double> FairShares(const std::vector<double>& demand, double capacity) {
    std::vector<size_t> order(demand.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return demand[a] != demand[b] ? demand[a] < demand[b] : a < b; });
    std::vector<double> share(demand.size(), 0);
    size_t left = order.size();
    for (size_t i : order) {
        share[i] = std::min(demand[i], capacity / double(left));
        capacity -= share[i];
        --left;
    }
    return share;
}

}  // namespace

L2Cache::L2Cache(uint64_t capacity_bytes, uint64_t line_bytes)
    : lines_(capacity_bytes / std::max<uint64_t>(1, line_bytes)), line_(std::max<uint64_t>(4, line_bytes)) {}

uint64_t L2Cache::Touch(uint64_t address, uint64_t bytes) {
    if (bytes == 0 || lines_ == 0) return 0;
    const uint64_t sector = line_ / 4;
    uint64_t hits = 0;
    for (uint64_t number = address / line_; number <= (address + bytes - 1) / line_; ++number) {
        auto it = where_.find(number);
        if (it == where_.end()) {
            if (where_.size() >= lines_) {
                where_.erase(order_.back().number);
                order_.pop_back();
            }
            order_.push_front({number, 0});
            it = where_.emplace(number, order_.begin()).first;
        } else {
            order_.splice(order_.begin(), order_, it->second);
        }
        for (uint64_t s = 0; s < 4; ++s) {
            const uint64_t begin = std::max(address, number * line_ + s * sector);
            const uint64_t end = std::min(address + bytes, number * line_ + (s + 1) * sector);
            if (begin >= end) continue;
            if (it->second->sectors >> s & 1) hits += end - begin;
            it->second->sectors |= 1u << s;
        }
    }
    return hits;
}

Fabric::Fabric(const ConfigText& figures, const std::vector<GmRange>& gm)
    : l2_(uint64_t(figures.Number("sizes.l2", 0)), uint64_t(figures.Number("sizes.l2_line", 512))) {
    const double mhz = figures.Number("clock.mhz", 1000);
    const double unlimited = std::numeric_limits<double>::max() / 4;
    ddr_rate_ = figures.Number("rates.ddr_sustained_gbps", 0) * 1e3 / mhz;
    l2_rate_ = figures.Number("rates.l2_total_gbps", 0) * 1e3 / mhz;
    if (ddr_rate_ <= 0) ddr_rate_ = unlimited;
    if (l2_rate_ <= 0) l2_rate_ = unlimited;
    read_port_ = figures.Number("rates.ddr_read", 32);
    write_port_ = figures.Number("rates.ddr_write", 32);
    extra_port_ = figures.Number("rates.extra_vector_ddr", read_port_);
    row_bytes_ = figures.Number("move.row_bytes", 0);
    unaligned_ = figures.Number("move.unaligned", 0);
    l2_enabled_ = figures.Number("l2.enabled", 1) != 0;
    write_back_ = figures.Number("l2.write_back", 0) != 0;
    line_ = uint64_t(figures.Number("sizes.l2_line", 512));

    // Arguments get addresses of their own in launch order, each on a page, so that a run does not depend on
    // malloc.
    uint64_t place = 1ull << 40;
    for (const GmRange& range : gm) {
        ranges_.push_back({range.base, range.bytes, place});
        place += (range.bytes + (1ull << 21)) & ~((1ull << 21) - 1);
    }
    const bool warm = figures.Number("l2.cold", 1) == 0;
    for (const Range& range : ranges_) {
        if (warm && l2_enabled_) l2_.Touch(range.place, range.bytes);
    }
    std::sort(ranges_.begin(), ranges_.end(), [](const Range& a, const Range& b) { return a.host < b.host; });
}

uint64_t Fabric::Place(uint64_t host) const {
    auto it = std::upper_bound(ranges_.begin(), ranges_.end(), host,
                               [](uint64_t h, const Range& r) { return h < r.host; });
    if (it == ranges_.begin()) return host;
    --it;
    return host - it->host < std::max<uint64_t>(1, it->bytes) ? it->place + (host - it->host) : host;
}

void Fabric::Submit(uint64_t tag, uint32_t core, const Record& r, double start, double rate, bool extra) {
    const bool write = r.to == Mem::GM;
    const uint64_t rows = std::max<uint32_t>(1, r.bursts);
    const uint64_t row = r.bytes / rows;
    const uint64_t stride = rows > 1 && r.gm_span > row ? (r.gm_span - row) / (rows - 1) : row;
    uint64_t hits = 0;
    if (l2_enabled_ && r.gm) {
        const uint64_t first = Place(r.gm);
        for (uint64_t i = 0; i < rows; ++i) hits += l2_.Touch(first + i * stride, row);
    }
    if (write && !write_back_) hits = 0;
    if (write && write_back_) hits = r.bytes;
    const uint64_t miss = r.bytes - std::min<uint64_t>(hits, r.bytes);
    const double miss_share = r.bytes ? double(miss) / double(r.bytes) : 0;
    double charged = double(miss) + (rows > 1 ? row_bytes_ * double(rows) * miss_share : 0);
    if (row >= line_ && (Place(r.gm) % line_ || stride % line_ || row % line_)) charged *= 1 + unaligned_;
    ddr_bytes += charged;
    (write ? write_bytes : read_bytes) += r.bytes;
    l2_hit_bytes += hits;

    Flow flow;
    flow.tag = tag;
    flow.core = core;
    flow.start = std::max(start, now_);
    flow.bytes = double(r.bytes);
    flow.ddr_weight = r.bytes ? charged / double(r.bytes) : 0;
    const double port = extra ? extra_port_ : write ? write_port_ : read_port_;
    flow.port = flow.ddr_weight > 0 ? std::min(rate, port / flow.ddr_weight) : rate;
    pending_.push_back(flow);
}

void Fabric::ShareBandwidth() {
    std::vector<double> demand(active_.size());
    for (size_t i = 0; i < active_.size(); ++i) demand[i] = active_[i].port * active_[i].ddr_weight;
    const std::vector<double> ddr = FairShares(demand, ddr_rate_);
    for (size_t i = 0; i < active_.size(); ++i) {
        const double weight = active_[i].ddr_weight;
        demand[i] = weight > 0 ? std::min(active_[i].port, ddr[i] / weight) : active_[i].port;
    }
    const std::vector<double> l2 = FairShares(demand, l2_rate_);
    for (size_t i = 0; i < active_.size(); ++i) active_[i].rate = std::max(l2[i], kEpsilon);
}

std::vector<uint64_t> Fabric::Step() {
    std::vector<uint64_t> done;
    while (done.empty() && !Idle()) {
        ShareBandwidth();
        double next = std::numeric_limits<double>::max();
        for (const Flow& flow : pending_) next = std::min(next, flow.start);
        for (const Flow& flow : active_) next = std::min(next, now_ + flow.bytes / flow.rate);
        const double span = std::max(0.0, next - now_);
        for (Flow& flow : active_) flow.bytes -= flow.rate * span;
        now_ = std::max(now_, next);
        for (size_t i = 0; i < active_.size();) {
            if (active_[i].bytes > kEpsilon) {
                ++i;
                continue;
            }
            done.push_back(active_[i].tag);
            active_.erase(active_.begin() + long(i));
        }
        for (size_t i = 0; i < pending_.size();) {
            if (pending_[i].start > now_) {
                ++i;
                continue;
            }
            active_.push_back(pending_[i]);
            pending_.erase(pending_.begin() + long(i));
        }
    }
    return done;
}

}  // namespace ascsim
