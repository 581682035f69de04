// The vector API: every header of it.
#pragma once
#include "ascsim/activation.h"
#include "ascsim/broadcast.h"
#include "ascsim/cast.h"
#include "ascsim/compare.h"
#include "ascsim/elementwise.h"
#include "ascsim/fill.h"
#include "ascsim/gather.h"
#include "ascsim/legacy.h"
#include "ascsim/reduce.h"
#include "ascsim/reduce_all.h"
#include "ascsim/scalar_ops.h"
#include "ascsim/transpose.h"
