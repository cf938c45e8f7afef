// Adam's update of one entry: arXiv 1412.6980, algorithm 1. The reference is ops/update.py.
#pragma once
#include "device.h"
#include <cfloat>

namespace neus {

// Moments below the smallest normal number are stored as 0. Unused entries of a feature table decay to such numbers; as
// subnormal numbers they would never become 0, and many processors take a hundred cycles for each.
__device__ __forceinline__ float without_subnormal(float x) { return fabsf(x) < FLT_MIN ? 0.f : x; }

// A parameter and its moments.
struct Entry {
    float parameter, exp_avg, exp_avg_sq;
};

// 0 if all numbers of an entry are finite, else NaN. GCC 12 does not vectorise std::isfinite, member functions of the
// struct, or a bool result.
__device__ __forceinline__ float gap(float parameter, float exp_avg, float exp_avg_sq) {
    return (parameter - parameter) + (exp_avg - exp_avg) + (exp_avg_sq - exp_avg_sq);
}

// The updated entry. `Number` is the type of the computation: in double, every step is exact up to the rounding of its
// result.
template <typename Number>
__device__ __forceinline__ Entry adam_entry(const AdamStep &step, float rate, Entry at, float gradient) {
    const Number g = gradient;
    const Number first = at.exp_avg * (Number)step.beta_1 + g * (Number)(1 - step.beta_1);
    const Number second = at.exp_avg_sq * (Number)step.beta_2 + g * g * (Number)(1 - step.beta_2);
    const Number change = first * (Number)rate / (sqrt(second) * (Number)step.root + (Number)step.epsilon);
    return {(float)(at.parameter - change), without_subnormal((float)first), without_subnormal((float)second)};
}

}  // namespace neus
