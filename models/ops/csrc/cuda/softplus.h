// Softplus of sharpness BETA, and its slope from its value, both to 2e-9 of BETA and the rounding of the result: the
// instruction for powers of 2, and a polynomial, since that for logarithms has an error of 2^-22.
#pragma once
#include "log_one_plus.h"

namespace neus {

constexpr float POWERS = BETA * 1.44269504f;  // 2^(POWERS x) = exp(BETA x)

__device__ inline float softplus(float x) {
    return fmaxf(x, 0.f) + log_one_plus(power_of_2(-POWERS * fabsf(x))) * (1.f / BETA);
}

__device__ inline float softplus_slope(float value) { return 1.f - power_of_2(-POWERS * value); }

}  // namespace neus
