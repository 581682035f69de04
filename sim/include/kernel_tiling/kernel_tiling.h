// Tiling structs of the high-level API on the kernel side. None is needed by the calls modelled here: a
// kernel that names one does not compile.
#pragma once
#include <cstdint>
