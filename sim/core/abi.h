// C interface of libascsim.so, called through ctypes and by the acl shim.
#pragma once
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// role: 0 input, 1 output, 2 read and written in place, 3 workspace, 4 tiling
typedef struct {
    const char* name;
    void* data;
    uint64_t bytes;
    int32_t role;
} AscsimArg;

typedef struct {
    const char* op;          // for messages
    const char* soc_config;  // flattened toml: lines "a.b.c = value"
    void (*kernel)(void**);  // entry of the kernel library; receives the args' data pointers in order
    const AscsimArg* args;
    int32_t n_args;
    uint32_t block_dim;
    uint64_t tiling_key;
    int32_t checks;     // 0 off (bounds stay on), 1 full
    int32_t record;     // 1 keeps the operations and runs the timing replay
    int32_t auto_sync;  // 1: the compiler inserts V-V and S-{V,MTE2,MTE3} dependencies
} AscsimLaunch;

// A launch on split cores: `block_dim` counts AI Cores, each of one cube core (none when `cube_kernel` is
// null) and `vectors` vector cores, which enter AscsimLaunch.kernel.
typedef struct {
    void (*cube_kernel)(void**);
    uint32_t vectors;
} AscsimMixed;

// Runs all blocks and returns a JSON report, owned by the library until ascsim_free.
const char* ascsim_launch(const AscsimLaunch* launch);
const char* ascsim_launch_mixed(const AscsimLaunch* launch, const AscsimMixed* mixed);
void ascsim_free(const char* json);

#ifdef __cplusplus
}
#endif
