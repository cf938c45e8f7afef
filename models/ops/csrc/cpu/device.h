// The words of CUDA in texts for both devices, as the CPU takes them.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>

using std::isfinite;  // CUDA's is global

#define __device__
#define __forceinline__ inline __attribute__((always_inline))
