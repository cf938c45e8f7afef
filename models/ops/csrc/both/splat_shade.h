// Colours of splats seen from a point. The reference is ops/splat_shade.py.
#pragma once
#include "harmonics.h"

namespace neus {

inline void shade_splats(const Shading &layout, long count, const float *means, const float *camera, const float *dc,
                         const float *rest, float *rgb) {
    const Shading is = layout;
    each_apart(count, SPLATS_AT_ONCE, [=] __device__(long n) {
        float centre[3];
        Pinhole(camera).centre(centre);
        shade(is, n, centre, means, dc, rest, rgb);
    });
}

inline void shade_splats_backward(const Shading &layout, long count, const float *means, const float *camera,
                                  const float *, const float *rest, const float *rgb, const float *d_rgb, float *d_means,
                                  float *d_dc, float *d_rest) {
    const Shading is = layout;
    each_apart(count, SPLATS_AT_ONCE, [=] __device__(long n) {
        float centre[3];
        Pinhole(camera).centre(centre);
        shade_backward(is, n, centre, means, rest, rgb, d_rgb, d_means, d_dc, d_rest);
    });
}

}  // namespace neus
