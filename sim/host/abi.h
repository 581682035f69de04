// C interface of the host library (libhost_ops): one shared library made of sim/host/*.cpp and every
// op_host/*.cpp. Every function returns JSON text that the caller frees with hostops_free; none throws or
// keeps state.
#pragma once
#include <cstdint>

extern "C" {

typedef struct {
    int32_t ir_index;    // which input of the OpDef; ascending
    const char* dtype;   // "float16", "bfloat16", "float32", "int32", …
    const char* format;  // "ND", "FRACTAL_NZ", …
    int32_t rank;
    const int64_t* dims;
} HostopsTensor;

// An attribute that is not listed takes its default. Lists: `count` items in `ints` or `floats`.
typedef struct {
    const char* name;
    int64_t int_value;  // also bool
    double float_value;
    const char* string_value;
    const int64_t* ints;
    const double* floats;
    int32_t count;
} HostopsAttr;

// Types of every operator, sorted: ["A", "B", …]
const char* hostops_list();

// The document of contract.json, as one line.
const char* hostops_contract();

// Runs InferShape and InferDataType: {"ok", "error", "outputs": [{"shape": […], "dtype": "…"}]}
const char* hostops_infer(const char* op_type, const HostopsTensor* inputs, int32_t n_inputs,
                          const HostopsAttr* attrs, int32_t n_attrs);

// Runs Tiling on the chip that `config` ("section.key = value" lines) describes:
// {"ok", "error", "tiling": "<hex>", "tiling_key", "block_dim", "workspaces": [bytes], "schedule_mode"}
const char* hostops_tiling(const char* op_type, const char* soc, const char* config,
                           const HostopsTensor* inputs, int32_t n_inputs, const HostopsAttr* attrs,
                           int32_t n_attrs);

void hostops_free(const char* json);
}
