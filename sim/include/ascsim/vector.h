// The vector API: every header of it, in the order kernels meet them.
#pragma once
#include "ascsim/cast.h"
#include "ascsim/elementwise.h"
#include "ascsim/fill.h"
#include "ascsim/scalar_ops.h"
