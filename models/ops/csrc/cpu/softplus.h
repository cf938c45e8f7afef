// Softplus of sharpness BETA on vectors, with its slope: polynomials, since the library's exp and log would take as
// long as the products of a narrow layer.
#pragma once
#include "exponential.h"

namespace neus {

// log(1 + x) for 0 <= x <= 1, to 3e-8: Abramowitz and Stegun, Handbook of Mathematical Functions, 4.1.44.
inline Vec log_one_plus(Vec x) {
    Vec sum = x * -.0064535442f + .0360884937f;
    sum = sum * x - .0953293897f;
    sum = sum * x + .1676540711f;
    sum = sum * x - .2407338084f;
    sum = sum * x + .3317990258f;
    sum = sum * x - .4998741238f;
    sum = sum * x + .9999964239f;
    return sum * x;
}

// softplus(x), and its slope unless null. NaN stays NaN.
inline Vec softplus(Vec x, Vec *slope) {
    const Vec size = x > 0.f ? x : -x, e = exp_negative(size * -BETA);
    if (slope) *slope = (x > 0.f ? Vec{} + 1.f : e) / (1.f + e);
    return (x < 0.f ? Vec{} : x) + log_one_plus(e) * (1.f / BETA);
}

// The slope recovered from the value h.
inline Vec softplus_slope(Vec h) { return 1.f - exp_negative(h * -BETA); }

}  // namespace neus
