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

// All blocks (or the first `used_cores`) meet here; in a mixed launch all vector cores, or all cores. Returns
// when the last one has arrived.
void SyncAllBlocks(const char* api, uint32_t used_cores, bool vectors_only, Loc loc);
// One-way software flags between blocks: Raise counts up, Await blocks until the count is positive, then
// takes one.
void RaiseSignal(const char* api, uint64_t key, Loc loc);
void AwaitSignal(const char* api, uint64_t key, const char* description, Loc loc);

inline uint64_t SignalKey(const void* workspace, int32_t block, int32_t event) {
    return (reinterpret_cast<uint64_t>(workspace) << 24) ^ (uint64_t(uint32_t(block)) << 16) ^
           (uint32_t(event) & 0xffff);
}
// Hardware flags between cores. Mode 0: all cores of one kind; 1: the vector cores of one AI Core; 2: its
// cube core and its vector cores. A flag counts one up on every core it reaches once all its setters have set
// it; a set happens when `pipe` has finished what it holds.
void CrossCoreSet(const char* api, uint32_t mode, Pipe pipe, uint32_t flag, Loc loc);
void CrossCoreWait(const char* api, uint32_t flag, Loc loc);

// DataCacheCleanAndInvalid: `bytes` from `address`, or everything when bytes is 0.
void CleanDataCache(const char* api, uint64_t address, uint64_t bytes, Loc loc);

}  // namespace ascsim
