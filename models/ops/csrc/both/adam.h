// Adam's update of one entry: arXiv 1412.6980, algorithm 1. The reference is ops/update.py.
#pragma once
#include "device.h"
#include <cfloat>

namespace neus {

template <typename Vars>
inline float *values(const Vars &vars, size_t index) {
    return vars[index]->template ptr<float>();
}

// The inputs and outputs of a step for one parameter.
struct Stepped {
    const float *parameter, *gradient, *first, *second;
    float *to, *to_first, *to_second;
    long size;
};

// Those of parameter k. inputs = {accepted (bool), rates (one per parameter), parameters, gradients, first moments,
// second moments}; outputs = {parameters, first moments, second moments, taken}.
template <typename Vars>
inline Stepped stepped(const Vars &inputs, const Vars &outputs, int k) {
    const int count = (int)outputs.size() / 3;
    const auto in = [&](int part) { return values(inputs, 2 + part * count + k); };
    const auto out = [&](int part) { return values(outputs, part * count + k); };
    return {in(0), in(1), in(2), in(3), out(0), out(1), out(2), outputs[k]->num};
}

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
