// What the forms of splats compute with: the numbers of a pixel.
#pragma once
#include "device.h"

namespace neus {

typedef float Number;
typedef bool Truth;

__device__ inline Number exp_negative(Number x) { return expf(x); }

// Of an opacity as a multiple of the smallest that counts: in double, as that of float is approximated.
__device__ inline double log_multiple(float multiple) { return log((double)multiple); }

}  // namespace neus
