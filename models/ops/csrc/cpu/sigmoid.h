// The logistic function: 0 where exp(-x) overflows.
#pragma once
#include <cmath>

namespace neus {

inline float sigmoid(float x) { return 1.f / (1.f + std::exp(-x)); }

}  // namespace neus
