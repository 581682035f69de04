// Entry header of every kernel, as in CANN: the frame first, then the vector API.
#pragma once
#include "ascsim/tensor.h"
#include "ascsim/vector.h"
