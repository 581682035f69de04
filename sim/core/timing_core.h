// One core in the replay: the scalar unit's program counter, the pipes' queues, flags, and where cycles were
// lost.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "core/timing_fabric.h"
#include "core/timing_price.h"

namespace ascsim {

inline constexpr int kPipes = int(Pipe::COUNT);

// Why a pipe stood still, by the source line that waited.
struct StallKey {
    Pipe pipe;
    std::string cause;
    std::string file;
    uint32_t line;
    std::string api;
    auto operator<=>(const StallKey&) const = default;
};
struct Stall {
    double cycles = 0;
    uint64_t count = 0;
};

struct TraceEvent {
    uint32_t core;
    Pipe pipe;
    double start, end;
    const Record* record;
};

// Cross-core state: arrival of each core at its n-th SyncAll, and at its n-th CrossCoreSetFlag by event.
struct Rendezvous {
    explicit Rendezvous(size_t cores) : expected(cores, 0), arrived(cores), set_total(cores), set(cores) {}
    std::vector<uint64_t> expected;            // SyncAll calls each core makes in all
    std::vector<std::vector<double>> arrived;  // [core][n]
    std::vector<std::map<int32_t, uint64_t>> set_total;
    std::vector<std::map<int32_t, std::vector<double>>> set;  // [core][event][n]
};

struct CallTotal {
    uint64_t count = 0;
    double cycles = 0;
};

class CoreReplay {
 public:
    CoreReplay(uint32_t index, double scale, uint32_t queue_depth, PriceTable& prices, Fabric& fabric,
               Rendezvous& rendezvous, std::vector<TraceEvent>* trace);
    void AddBlock(const std::vector<Record>* block);
    void Prepare();  // after all blocks are added
    // Moves on as far as known completion times allow; true when anything moved.
    bool Advance();
    void Complete(Pipe pipe, double end);  // the GM move at the head of `pipe` ended
    bool Finished() const;
    // Lets a core go on whose flag or rendezvous never comes (the engine reports the deadlock itself).
    bool BreakDeadlock();

    double cycles() const;
    const std::array<double, kPipes>& busy() const { return busy_; }
    const std::map<StallKey, Stall>& stalls() const { return stalls_; }
    const std::map<std::string, CallTotal>& calls() const { return calls_; }
    const std::map<std::string, uint64_t>& unpriced() const { return unpriced_; }
    static std::string Describe(const Record& r);

 private:
    struct Entry {
        const Record* record;
        double enqueued;
        uint64_t after = 0;       // entries of auto_from that must have ended first
        uint64_t flag_index = 0;  // SetFlag/WaitFlag: which of that flag's signals
    };
    struct Queue {
        std::vector<Entry> entries;
        std::vector<double> started;  // of resolved entries
        std::vector<double> visible;  // running maximum of result times, resolved entries
        size_t head = 0;              // first unresolved entry
        bool in_flight = false;       // its GM move is under way
        double flight_start = 0;
        double flight_min = 0;  // its end when nothing else uses the memory: start-up included
        double free = 0;        // end of the last occupancy
        double floor = 0;       // flags and barriers hold the pipe until here
        const Record* floor_by = nullptr;
        double Visible() const { return visible.empty() ? 0 : visible.back(); }
    };
    using FlagKey = std::tuple<int, int, int32_t>;  // source pipe, waiting pipe, event
    struct Flag {
        uint64_t total_sets = 0;  // in all records of this core
        uint64_t issued_sets = 0, issued_waits = 0;
        std::vector<double> set_at;
    };

    bool StepScalar();
    bool StepPipe(Pipe pipe);
    bool ScalarOwn(const Record& r);
    double ScalarCycles(const Record& r);
    bool Drained(Pipe pipe) const;
    bool FlagTime(const FlagKey& key, uint64_t index, double* at) const;
    bool CrossReady(const Record& r, double* at) const;
    void Resolve(Queue& q, Pipe pipe, double start, double end, double visible, const char* cause,
                 const Record* by);
    void Lose(Pipe pipe, const char* cause, const Record* by, double cycles);
    void Count(const Record& r, double cycles);

    uint32_t index_;
    double scale_;  // cycles of the reference clock per cycle of this core
    uint32_t depth_;
    PriceTable& prices_;
    Fabric& fabric_;
    Rendezvous& rendezvous_;
    std::vector<TraceEvent>* trace_;
    std::vector<const std::vector<Record>*> blocks_;
    size_t block_ = 0, pc_ = 0;
    double time_ = 0;  // of the scalar unit
    std::array<Queue, kPipes> queues_;
    std::map<FlagKey, Flag> flags_;
    std::map<int32_t, uint64_t> cross_waits_;
    size_t syncs_ = 0;
    std::unordered_set<uint64_t> data_cache_;  // lines of GM that scalar loads have brought in
    std::array<double, kPipes> busy_{};
    std::map<StallKey, Stall> stalls_;
    std::map<std::string, CallTotal> calls_;
    std::map<std::string, uint64_t> unpriced_;
    bool forced_ = false;
};

}  // namespace ascsim
