// Number types of the forms of splats: values of LANES pixels.
#pragma once
#include "device.h"
#include "exponential.h"

namespace neus {

typedef Vec Number;
typedef Ints Truth;

// Logarithm of an opacity in multiples of the smallest one that counts.
inline double log_multiple(float multiple) { return std::log(multiple); }

}  // namespace neus
