// Entry header of every kernel, as in CANN: the frame first, then the vector API.
#pragma once
#include "ascsim/tensor.h"
#include "ascsim/utils.h"
#include "ascsim/event.h"
#include "ascsim/queue.h"
#include "ascsim/data_copy.h"
#include "ascsim/system.h"
#include "ascsim/tiling.h"
#include "ascsim/vector.h"
#include "ascsim/copy.h"
#include "ascsim/cube.h"
#include "ascsim/debug.h"
