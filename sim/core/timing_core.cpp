#include "core/timing_core.h"

#include <algorithm>
#include <cmath>

namespace ascsim {

namespace {

constexpr uint64_t kDataCacheLine = 64;  // bytes; AscendC guide, DataCacheCleanAndInvalid

// PipeBarrier<PIPE_ALL> and a barrier named for the scalar unit wait for everything.
bool WaitsForAll(const Record& r) { return r.pipe == Pipe::COUNT || r.pipe == Pipe::S; }
bool IsGmMove(const Record& r) { return r.kind == OpKind::Move && (r.from == Mem::GM || r.to == Mem::GM); }

}  // namespace

CoreReplay::CoreReplay(uint32_t index, double scale, uint32_t queue_depth, PriceTable& prices, Fabric& fabric,
                       Rendezvous& rendezvous, std::vector<TraceEvent>* trace)
    : index_(index),
      scale_(scale),
      depth_(std::max(1u, queue_depth)),
      prices_(prices),
      fabric_(fabric),
      rendezvous_(rendezvous),
      trace_(trace) {}

void CoreReplay::AddBlock(const std::vector<Record>* block) { blocks_.push_back(block); }

void CoreReplay::Prepare() {
    time_ = prices_.block_start * scale_;
    for (const auto* block : blocks_) {
        for (const Record& r : *block) {
            if (r.kind == OpKind::SetFlag) ++flags_[{int(r.pipe), int(r.peer), r.event}].total_sets;
            if (r.kind == OpKind::SyncAll) ++rendezvous_.expected[index_];
            if (r.kind == OpKind::CrossSet) ++rendezvous_.set_total[index_][r.event];
        }
    }
}

std::string CoreReplay::Describe(const Record& r) {
    return r.name && *r.name ? r.name : r.cost ? r.cost : "?";
}

void CoreReplay::Count(const Record& r, double cycles) {
    CallTotal& total = calls_[Describe(r)];
    ++total.count;
    total.cycles += cycles;
    const bool priced = r.kind == OpKind::Compute || r.kind == OpKind::Move || r.kind == OpKind::Scalar;
    if (priced && !prices_.Known(r)) ++unpriced_[r.cost && *r.cost ? r.cost : Describe(r)];
}

void CoreReplay::Lose(Pipe pipe, const char* cause, const Record* by, double cycles) {
    if (cycles <= 0 || !by) return;
    Stall& stall = stalls_[{pipe, cause, by->loc.file ? by->loc.file : "", by->loc.line, Describe(*by)}];
    stall.cycles += cycles;
    ++stall.count;
}

bool CoreReplay::Drained(Pipe pipe) const {
    return queues_[int(pipe)].head == queues_[int(pipe)].entries.size();
}

bool CoreReplay::FlagTime(const FlagKey& key, uint64_t index, double* at) const {
    *at = 0;
    const auto it = flags_.find(key);
    if (it == flags_.end() || index >= it->second.total_sets)
        return true;  // never set: the engine reports it
    if (index >= it->second.set_at.size()) return forced_;
    *at = it->second.set_at[index] + prices_.flag * scale_;
    return true;
}

// The n-th wait on an event returns when every core that sets it at least n times has done so.
bool CoreReplay::CrossReady(const Record& r, double* at) const {
    const auto it = cross_waits_.find(r.event);
    const uint64_t n = it == cross_waits_.end() ? 0 : it->second;
    *at = 0;
    for (size_t core = 0; core < rendezvous_.set.size(); ++core) {
        const auto total = rendezvous_.set_total[core].find(r.event);
        if (total == rendezvous_.set_total[core].end() || total->second <= n) continue;
        const auto done = rendezvous_.set[core].find(r.event);
        if (done == rendezvous_.set[core].end() || done->second.size() <= n) return forced_;
        *at = std::max(*at, done->second[n]);
    }
    *at += prices_.cross_core;
    return true;
}

// Scalar loads from GM go through a data cache: only the first one of a line pays the way to memory.
double CoreReplay::ScalarCycles(const Record& r) {
    const std::string_view key = r.cost ? r.cost : "";
    if (key == "Scalar.dcache_clean") data_cache_.clear();
    if (key == "Scalar.gm_get" && r.gm && !data_cache_.insert(fabric_.Place(r.gm) / kDataCacheLine).second) {
        return prices_.Call("Scalar.gm_hit").min;
    }
    return prices_.OccupancyCycles(r);
}

// Records of the scalar unit itself; false when it must wait for something not yet known.
bool CoreReplay::ScalarOwn(const Record& r) {
    double ready = time_;
    const char* cause = "dependency";
    const double issue = prices_.IssueCycles(r) * scale_;
    if (r.kind == OpKind::Barrier) {
        for (int p = 1; p < kPipes; ++p) {
            if (!Drained(Pipe(p))) return false;
            ready = std::max(ready, std::max(queues_[p].Visible(), queues_[p].free));
        }
        ready = std::max(ready, time_) + prices_.barrier_all * scale_;
        cause = "barrier all";
    } else if (r.kind == OpKind::WaitFlag) {
        const FlagKey key{int(r.peer), int(r.pipe), r.event};
        double at = 0;
        if (!FlagTime(key, flags_[key].issued_waits, &at)) return false;
        ++flags_[key].issued_waits;
        ready = std::max(ready, at);
        cause = "flag";
    } else if (r.kind == OpKind::SyncAll) {
        for (int p = 1; p < kPipes; ++p) {
            if (!Drained(Pipe(p))) return false;
            ready = std::max(ready, queues_[p].Visible());
        }
        const size_t round = syncs_;
        auto& mine = rendezvous_.arrived[index_];
        if (mine.size() == round) mine.push_back(ready);
        for (size_t core = 0; core < rendezvous_.arrived.size(); ++core) {
            if (rendezvous_.expected[core] <= round) continue;
            if (rendezvous_.arrived[core].size() > round) {
                ready = std::max(ready, rendezvous_.arrived[core][round]);
            } else if (!forced_) {
                return false;
            }
        }
        ++syncs_;
        ready += prices_.sync_all;
        cause = "SyncAll";
    } else if (r.kind == OpKind::CrossWait) {
        double at = 0;
        if (!CrossReady(r, &at)) return false;
        ++cross_waits_[r.event];
        ready = std::max(ready, at);
        cause = "cross-core flag";
    } else if (r.auto_barrier && r.auto_from != Pipe::S && r.auto_from != Pipe::COUNT) {
        if (!Drained(r.auto_from)) return false;
        const Queue& q = queues_[int(r.auto_from)];
        if (!q.entries.empty()) ready = std::max(ready, q.Visible() + prices_.flag * scale_);
    }
    double own = issue;
    if (r.kind == OpKind::Scalar || r.kind == OpKind::Compute) {
        own = std::max(issue, ScalarCycles(r) * scale_);
    }
    Lose(Pipe::S, cause, &r, ready - time_);
    if (trace_) trace_->push_back({index_, Pipe::S, ready, ready + own, &r});
    time_ = ready + own;
    busy_[0] += own;
    if (r.kind == OpKind::SetFlag) flags_[{int(r.pipe), int(r.peer), r.event}].set_at.push_back(time_);
    if (r.kind == OpKind::CrossSet) rendezvous_.set[index_][r.event].push_back(time_);
    Count(r, own);
    return true;
}

bool CoreReplay::StepScalar() {
    if (block_ >= blocks_.size()) return false;
    if (pc_ >= blocks_[block_]->size()) {
        for (int p = 1; p < kPipes; ++p) {
            if (!Drained(Pipe(p))) return false;
        }
        time_ = cycles() + (block_ + 1 < blocks_.size() ? prices_.block_start * scale_ : 0);
        ++block_;
        pc_ = 0;
        return true;
    }
    const Record& r = (*blocks_[block_])[pc_];
    if (r.pipe == Pipe::S || r.pipe == Pipe::COUNT || (r.kind == OpKind::Barrier && WaitsForAll(r)) ||
        r.kind == OpKind::SyncAll) {
        if (!ScalarOwn(r)) return false;
        ++pc_;
        return true;
    }
    Queue& q = queues_[int(r.pipe)];
    const size_t n = q.entries.size();
    double ready = time_;
    if (n >= depth_) {
        if (q.started.size() <= n - depth_) return false;
        ready = std::max(ready, q.started[n - depth_]);
    }
    Lose(Pipe::S, "queue full", &r, ready - time_);
    const double issue = prices_.IssueCycles(r) * scale_;
    if (trace_) trace_->push_back({index_, Pipe::S, ready, ready + issue, &r});
    time_ = ready + issue;
    busy_[0] += issue;
    Entry entry{&r, time_};
    if (r.auto_barrier && r.auto_from != Pipe::COUNT) entry.after = queues_[int(r.auto_from)].entries.size();
    if (r.kind == OpKind::WaitFlag) {
        entry.flag_index = flags_[{int(r.peer), int(r.pipe), r.event}].issued_waits++;
    }
    q.entries.push_back(entry);
    ++pc_;
    return true;
}

void CoreReplay::Resolve(Queue& q, Pipe pipe, double start, double end, double visible, const char* cause,
                         const Record* by) {
    const Record& r = *q.entries[q.head].record;
    const bool works = r.kind == OpKind::Compute || r.kind == OpKind::Move;
    q.started.push_back(start);
    q.visible.push_back(std::max(q.Visible(), visible));
    if (works) {
        Lose(pipe, cause, by, start - q.free);
        busy_[int(pipe)] += end - start;
        if (trace_) trace_->push_back({index_, pipe, start, end, &r});
        q.free = end;
    }
    Count(r, works ? end - start : 0);
    ++q.head;
    q.in_flight = false;
}

bool CoreReplay::StepPipe(Pipe pipe) {
    Queue& q = queues_[int(pipe)];
    if (q.in_flight || q.head >= q.entries.size()) return false;
    const Entry& entry = q.entries[q.head];
    const Record& r = *entry.record;
    double start = std::max({entry.enqueued, q.free, q.floor});
    const bool floored = q.floor > std::max(entry.enqueued, q.free);
    const char* cause = floored ? (q.floor_by->kind == OpKind::WaitFlag ? "flag" : "barrier") : "issue";
    const Record* by = floored ? q.floor_by : &r;

    if (r.kind == OpKind::SetFlag) {
        flags_[{int(r.pipe), int(r.peer), r.event}].set_at.push_back(std::max(start, q.Visible()));
        Resolve(q, pipe, start, start, 0, cause, by);
        return true;
    }
    if (r.kind == OpKind::WaitFlag) {
        double at = 0;
        if (!FlagTime({int(r.peer), int(r.pipe), r.event}, entry.flag_index, &at)) return false;
        if (at > q.floor) {
            q.floor = at;
            q.floor_by = &r;
        }
        Resolve(q, pipe, std::max(start, at), start, 0, cause, by);
        return true;
    }
    if (r.kind == OpKind::CrossSet) {
        rendezvous_.set[index_][r.event].push_back(std::max(start, q.Visible()));
        Resolve(q, pipe, start, start, 0, cause, by);
        return true;
    }
    if (r.kind == OpKind::CrossWait) {
        double at = 0;
        if (!CrossReady(r, &at)) return false;
        ++cross_waits_[r.event];
        q.floor = std::max(q.floor, at);
        q.floor_by = &r;
        Resolve(q, pipe, std::max(start, at), start, 0, cause, by);
        return true;
    }
    const double own_barrier = q.head ? std::max(q.Visible(), q.free + prices_.barrier * scale_) : 0;
    if (r.kind == OpKind::Barrier) {
        if (own_barrier > q.floor) {
            q.floor = own_barrier;
            q.floor_by = &r;
        }
        Resolve(q, pipe, start, start, 0, cause, by);
        return true;
    }
    if (r.auto_barrier && r.auto_from != Pipe::COUNT) {
        double ready = own_barrier;
        if (r.auto_from == Pipe::S) {
            ready = entry.enqueued + prices_.flag * scale_;
        } else if (r.auto_from != pipe) {
            const Queue& from = queues_[int(r.auto_from)];
            if (from.head < entry.after) return false;
            ready = entry.after ? from.visible[entry.after - 1] + prices_.flag * scale_ : 0;
        }
        if (ready > start) {
            start = ready;
            cause = "dependency";
            by = &r;
        }
    }
    if (IsGmMove(r)) {
        const MovePrice& price = prices_.Move(r.from, r.to);
        const double setup = price.occupancy + prices_.burst * (r.bursts > 1 ? r.bursts - 1 : 0);
        Lose(pipe, cause, by, start - q.free);
        q.free = start;
        q.in_flight = true;
        q.flight_start = start;
        q.flight_min = start + (setup + double(r.bytes) / price.rate) * scale_;
        fabric_.Submit(uint64_t(index_) * kPipes + uint64_t(pipe), index_, r, start, price.rate / scale_,
                       scale_ != 1);
        return true;
    }
    const double end = start + prices_.OccupancyCycles(r) * scale_;
    Resolve(q, pipe, start, end, end + prices_.LatencyCycles(r) * scale_, cause, by);
    return true;
}

void CoreReplay::Complete(Pipe pipe, double end) {
    Queue& q = queues_[int(pipe)];
    const Record& r = *q.entries[q.head].record;
    end = std::max(end, q.flight_min);
    Resolve(q, pipe, q.flight_start, end, end + prices_.LatencyCycles(r) * scale_, "", nullptr);
}

bool CoreReplay::Advance() {
    bool any = false;
    for (bool moved = true; moved;) {
        moved = false;
        while (StepScalar()) moved = true;
        for (int p = 1; p < kPipes; ++p) {
            while (StepPipe(Pipe(p))) moved = true;
        }
        any |= moved;
    }
    return any;
}

bool CoreReplay::Finished() const { return block_ >= blocks_.size(); }

bool CoreReplay::BreakDeadlock() {
    forced_ = true;
    const bool moved = Advance();
    forced_ = false;
    return moved;
}

double CoreReplay::cycles() const {
    double end = time_;
    for (int p = 1; p < kPipes; ++p) end = std::max({end, queues_[p].free, queues_[p].Visible()});
    return end;
}

}  // namespace ascsim
