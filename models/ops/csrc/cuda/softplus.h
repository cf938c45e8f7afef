// Softplus of sharpness BETA, and its slope from its value.
#pragma once
#include "device.h"

namespace neus {

__device__ inline float softplus(float x) {
    return fmaxf(x, 0.f) + logf(1.f + expf(-fabsf(x * BETA))) * (1.f / BETA);
}

__device__ inline float softplus_slope(float value) { return 1.f - expf(-BETA * value); }

}  // namespace neus
