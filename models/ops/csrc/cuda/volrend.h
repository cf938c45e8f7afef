// Weights of a ray's sections, a thread for each ray. The reference is ops/volrend.py.
#pragma once
#include "device.h"

namespace neus {

// weights [rays, N] of opacities: w_i = alpha_i T_i, T_i = prod_{j<i} (1 - alpha_j + eps).
inline void ray_weights(const RayWeights &layout, long rays, const float *alpha, float *weights) {
    const long n = layout.sections;
    const float eps = layout.transmittance_eps;
    each(rays, [=] __device__(long r) {
        float light = 1.f;
        for (long i = r * n; i < (r + 1) * n; i++) {
            weights[i] = alpha[i] * light;
            light *= 1.f - alpha[i] + eps;
        }
    });
}

// d_alpha [rays, N]. `behind` is what one unit of light that passes a section is worth there: no division, so that a
// section may be wholly opaque.
inline void ray_weights_backward(const RayWeights &layout, long rays, const float *alpha, const float *d_weights,
                                 float *d_alpha) {
    const long n = layout.sections;
    const float eps = layout.transmittance_eps;
    each(rays, [=] __device__(long r) {
        float light = 1.f, behind = 0.f;
        for (long i = r * n; i < (r + 1) * n; i++) {
            d_alpha[i] = light;
            light *= 1.f - alpha[i] + eps;
        }
        for (long i = (r + 1) * n - 1; i >= r * n; i--) {
            d_alpha[i] *= d_weights[i] - behind;
            behind = d_weights[i] * alpha[i] + (1.f - alpha[i] + eps) * behind;
        }
    });
}

}  // namespace neus
