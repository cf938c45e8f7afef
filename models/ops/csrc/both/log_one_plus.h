// The logarithm of softplus.
#pragma once
#include "device.h"

namespace neus {

// log(1 + x) for 0 <= x <= 1, to 3e-8: Abramowitz and Stegun, Handbook of Mathematical Functions, 4.1.44. `Number` is a
// float or a vector of them.
template <typename Number>
__device__ inline Number log_one_plus(Number x) {
    Number sum = x * -.0064535442f + .0360884937f;
    sum = sum * x - .0953293897f;
    sum = sum * x + .1676540711f;
    sum = sum * x - .2407338084f;
    sum = sum * x + .3317990258f;
    sum = sum * x - .4998741238f;
    sum = sum * x + .9999964239f;
    return sum * x;
}

}  // namespace neus
