// CUDA's words for what is rounded as it stands, where the compiler may neither reorder nor fuse: include it there.
#pragma once

namespace neus {

inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }

}  // namespace neus
