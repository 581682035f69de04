// Tiling data here are plain structs shared by host and kernel (op_kernel/<op>_tiling.h), filled through
// TilingContext::GetTilingData<T>(). The field macros of older operators are not needed and not offered.
#pragma once
#include "exe_graph/runtime/tiling_data.h"
