// The words of CUDA in texts for both devices, as the CPU takes them.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>

#define __device__
#define __forceinline__ inline __attribute__((always_inline))
