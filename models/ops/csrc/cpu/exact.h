// CPU definitions of CUDA's separately rounded products and quotients. Include only where contraction is disabled.
#pragma once

namespace neus {

inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }

}  // namespace neus
