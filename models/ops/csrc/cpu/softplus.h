// Softplus of sharpness BETA on vectors, with its slope: polynomials, since the library's exp and log would take as long
// as the products of a narrow layer.
#pragma once
#include "tile.h"

namespace neus {

typedef int Ints __attribute__((vector_size(LANES * sizeof(int)), aligned(4)));

constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;
constexpr float LOWEST_POWER = -87.f;  // e to it is nearly the smallest normal number
constexpr int MANTISSA_BITS = 23;

// e^x for x <= 0, to 3e-7 of it near 0: a power of two times the exponential series to the sixth power.
inline Vec exp_negative(Vec x) {
    x = x > LOWEST_POWER ? x : Vec{} + LOWEST_POWER;
    const Ints power = __builtin_convertvector(x * LOG2_E - 0.5f, Ints);
    const Vec r = x - __builtin_convertvector(power, Vec) * LN_2;
    Vec sum = r * (1.f / 720) + 1.f / 120;
    sum = sum * r + 1.f / 24;
    sum = sum * r + 1.f / 6;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.f;
    sum = sum * r + 1.f;
    return (Vec)((Ints)sum + (power << MANTISSA_BITS));
}

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

// softplus(x), and its slope unless null.
inline Vec softplus(Vec x, Vec *slope) {
    const Vec size = x > 0.f ? x : -x, e = exp_negative(size * -BETA);
    if (slope) *slope = (x > 0.f ? Vec{} + 1.f : e) / (1.f + e);
    return (x > 0.f ? x : Vec{}) + log_one_plus(e) * (1.f / BETA);
}

// The slope recovered from the value h.
inline Vec softplus_slope(Vec h) { return 1.f - exp_negative(h * -BETA); }

}  // namespace neus
