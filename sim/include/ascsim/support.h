// Availability checks of the SoC the kernel is compiled for: ascsim::support::<Api><T…>() refuses at compile
// time.
#pragma once
#if defined(ASCSIM_SOC_310P)
#include "ascsim/generated/support_ascend310p.h"
#elif defined(ASCSIM_SOC_910B)
#include "ascsim/generated/support_ascend910b.h"
#else
#error "ascsim: SoC: not named: define ASCSIM_SOC_310P or ASCSIM_SOC_910B"
#endif
