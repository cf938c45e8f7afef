// The words of CUDA in texts for both devices, as the CPU takes them.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>

using std::isfinite;  // CUDA's is global

#define __device__
#define __forceinline__ inline __attribute__((always_inline))

namespace neus {

// CUDA's are an instruction, C's a call: they take the other number where one is NaN. These take the second.
inline float fminf(float a, float b) { return a < b ? a : b; }
inline float fmaxf(float a, float b) { return a > b ? a : b; }
inline double fmin(double a, double b) { return a < b ? a : b; }
inline double fmax(double a, double b) { return a > b ? a : b; }

}  // namespace neus
