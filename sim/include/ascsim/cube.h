// The matrix API as one header.
#pragma once
#include "ascsim/cube_control.h"
#include "ascsim/cube_fill.h"
#include "ascsim/fixpipe.h"
#include "ascsim/img2col.h"
#include "ascsim/l0c.h"
#include "ascsim/load_data.h"
#include "ascsim/mmad.h"
#include "ascsim/nd2nz.h"
#include "ascsim/nz2nd.h"
