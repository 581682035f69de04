// The Matmul object is not modelled: kernels that only include this header compile, those that use it do not.
#pragma once
#include "kernel_operator.h"

namespace matmul {}
