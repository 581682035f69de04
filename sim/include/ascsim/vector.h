// The vector API: every header of it.
#pragma once
#include "ascsim/cast.h"
#include "ascsim/elementwise.h"
#include "ascsim/fill.h"
#include "ascsim/gather.h"
#include "ascsim/reduce.h"
#include "ascsim/reduce_all.h"
#include "ascsim/scalar_ops.h"
