// What is a number.
#pragma once
#include <cstdint>
#include <cstring>

namespace neus {

constexpr uint32_t EXPONENT = 0x7f800000u;  // all ones in what is infinite or not a number

// Seen by the bits: the fast maths that kernels are built with takes every number for finite.
inline bool is_finite(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return (bits & EXPONENT) != EXPONENT;
}

}  // namespace neus
