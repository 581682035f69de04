// Synchronisation services for the frame headers that are more than one operation: cross-core barriers and
// signals.
#pragma once
#include <cstdint>

#include "core/engine.h"

namespace ascsim {

// SetFlag/WaitFlag/PipeBarrier, see Op. Barrier: pipe S with peer COUNT means PIPE_ALL.
void SetEvent(const char* api, Pipe from, Pipe to, int32_t id, Loc loc);
void WaitEvent(const char* api, Pipe from, Pipe to, int32_t id, Loc loc);
void PipeBarrierOf(const char* api, Pipe pipe, Loc loc);
void PipeBarrierAll(const char* api, Loc loc);

// All blocks (or the first `used_cores`) meet here. Returns when the last one has arrived.
void SyncAllBlocks(const char* api, uint32_t used_cores, Loc loc);
// One-way software flags between blocks: Raise counts up, Await blocks until the count is positive, then
// takes one.
void RaiseSignal(const char* api, uint64_t key, Loc loc);
void AwaitSignal(const char* api, uint64_t key, const char* description, Loc loc);

inline uint64_t SignalKey(const void* workspace, int32_t block, int32_t event) {
    return (reinterpret_cast<uint64_t>(workspace) << 24) ^ (uint64_t(uint32_t(block)) << 16) ^
           (uint32_t(event) & 0xffff);
}
// Flags of mode 0: every block arrives, then every block may pass once.
void CrossCoreArrive(const char* api, uint32_t flag, Loc loc);
void CrossCoreAwait(const char* api, uint32_t flag, Loc loc);

// DataCacheCleanAndInvalid: `bytes` from `address`, or everything when bytes is 0.
void CleanDataCache(const char* api, uint64_t address, uint64_t bytes, Loc loc);

}  // namespace ascsim
