// CUDA's products and quotients that are rounded by themselves. Include it where contraction is off.
#pragma once

namespace neus {

inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }

}  // namespace neus
