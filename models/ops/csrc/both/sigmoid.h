// The logistic function: 0 where exp(-x) overflows.
#pragma once
#include "device.h"

namespace neus {

__device__ inline float sigmoid(float x) { return 1.f / (1.f + expf(-x)); }

}  // namespace neus
