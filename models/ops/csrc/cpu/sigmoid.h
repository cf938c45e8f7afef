// The logistic function, finite for every finite x under the fast maths that kernels are built with: there the reciprocal
// of infinity, approximated and refined, is not a number.
#pragma once
#include <algorithm>
#include <cmath>

namespace neus {

constexpr float FARTHEST = 80.f;  // e^-80 is 1.8e-35: far below what is told from 0, and e^80 is finite

inline float sigmoid(float x) { return 1.f / (1.f + std::exp(-std::min(std::max(x, -FARTHEST), FARTHEST))); }

}  // namespace neus
