// Number types of the forms of splats: values of one pixel.
#pragma once
#include "device.h"

namespace neus {

typedef float Number;
typedef bool Truth;

__device__ inline Number exp_negative(Number x) { return expf(x); }

// Logarithm of an opacity in multiples of the smallest one that counts. In double, since that of float is approximate.
__device__ inline double log_multiple(float multiple) { return log((double)multiple); }

}  // namespace neus
