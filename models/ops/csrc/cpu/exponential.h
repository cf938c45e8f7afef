// Exponential of vectors of non-positive numbers by a polynomial: the library function takes one number per call.
#pragma once
#include "tile.h"

namespace neus {

typedef int Ints __attribute__((vector_size(LANES * sizeof(int))));

constexpr float LOG2_E = 1.44269504f;
constexpr float LN_2_HIGH = 0.693359375f, LN_2_LOW = -2.12194440e-4f;  // of ln 2: multiples of the first are exact
constexpr float LOWEST_POWER = -87.f;  // e to it is nearly the smallest normal number
constexpr int MANTISSA_BITS = 23;

// e^x for x <= 0, to 3e-7 of it, and e^LOWEST_POWER below that: a power of two times the exponential series to the
// sixth power. NaN stays NaN.
inline Vec exp_negative(Vec x) {
    x = x < LOWEST_POWER ? Vec{} + LOWEST_POWER : x;
    const Ints power = __builtin_convertvector(x * LOG2_E - 0.5f, Ints);
    const Vec whole = __builtin_convertvector(power, Vec), r = (x - whole * LN_2_HIGH) - whole * LN_2_LOW;
    Vec sum = r * (1.f / 720) + 1.f / 120;
    sum = sum * r + 1.f / 24;
    sum = sum * r + 1.f / 6;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.f;
    sum = sum * r + 1.f;
    return (Vec)((Ints)sum + (power << MANTISSA_BITS));
}

}  // namespace neus
