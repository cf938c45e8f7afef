// The logistic function, finite for every finite x under the fast maths that kernels are built with.
#pragma once
#include "device.h"

namespace neus {

constexpr float FARTHEST = 80.f;  // e^-80 is 1.8e-35: far below what is told from 0, and e^80 is finite

__device__ inline float sigmoid(float x) { return 1.f / (1.f + expf(-fminf(fmaxf(x, -FARTHEST), FARTHEST))); }

}  // namespace neus
