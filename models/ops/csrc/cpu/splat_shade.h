// Colours of splats seen from a point. The reference is ops/splat_shade.py.
#pragma once
#include "harmonics.h"

namespace neus {

inline void shade_splats(const Shading &is, long count, const float *means, const float *camera, const float *dc,
                         const float *rest, float *rgb) {
    float centre[3];
    Pinhole(camera).centre(centre);
#pragma omp parallel for schedule(static)
    for (long n = 0; n < count; n++) shade(is, n, centre, means, dc, rest, rgb);
}

inline void shade_splats_backward(const Shading &is, long count, const float *means, const float *camera,
                                  const float *, const float *rest, const float *rgb, const float *d_rgb, float *d_means,
                                  float *d_dc, float *d_rest) {
    float centre[3];
    Pinhole(camera).centre(centre);
#pragma omp parallel for schedule(static)
    for (long n = 0; n < count; n++) shade_backward(is, n, centre, means, rest, rgb, d_rgb, d_means, d_dc, d_rest);
}

}  // namespace neus
