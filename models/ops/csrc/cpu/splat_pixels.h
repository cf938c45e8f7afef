// What the forms of splats compute with: the numbers of LANES pixels at once.
#pragma once
#include "device.h"
#include "exponential.h"

namespace neus {

typedef Vec Number;
typedef Ints Truth;

// Of an opacity as a multiple of the smallest that counts.
inline double log_multiple(float multiple) { return std::log(multiple); }

}  // namespace neus
