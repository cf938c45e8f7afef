// Softplus of sharpness BETA on vectors, with its slope: polynomials, since the library's exp and log would take as
// long as the products of a narrow layer.
#pragma once
#include "exponential.h"
#include "log_one_plus.h"

namespace neus {

// softplus(x), and its slope unless null. NaN stays NaN.
inline Vec softplus(Vec x, Unaligned *slope) {
    const Vec size = x > 0.f ? x : -x, e = exp_negative(size * -BETA);
    if (slope) *slope = (x > 0.f ? Vec{} + 1.f : e) / (1.f + e);
    return (x < 0.f ? Vec{} : x) + log_one_plus(e) * (1.f / BETA);
}

// The slope recovered from the value h.
inline Vec softplus_slope(Vec h) { return 1.f - exp_negative(h * -BETA); }

}  // namespace neus
