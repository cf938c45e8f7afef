// SGLD noise of Gaussians of low opacity (3DGS-MCMC). The reference is ops/splat_wander.py.
#pragma once
#include "philox.h"
#include "sigmoid.h"
#include "splat_math.h"

namespace neus {

__device__ inline void wander(const Wander &is, long n, const SplatsIn &in, const float *opacities, float *to) {
    const float *mean = in.means + 3 * n;
    const float opacity = sigmoid(opacities[n]);
    for (int i = 0; i < 3; i++) to[3 * n + i] = mean[i];
    if (is.rate == 0.f || !(opacity < GATE_END)) return;
    uint32_t words[4];
    float drawn[4], turn[9];
    philox((uint32_t)n, (uint32_t)is.first_key, (uint32_t)is.second_key, words);
    normals(words, drawn), normals(words + 2, drawn + 2);
    for (int k = 0; k < 3; k++) drawn[k] *= expf(2.f * in.log_sizes[3 * n + k]);
    if (is.flat) drawn[2] = 0.f;
    rotation(in.quats + 4 * n, turn);
    const float gate = is.rate * sigmoid(GATE_SLOPE * (GATE_MIDDLE - opacity));
    for (int i = 0; i < 3; i++)
        to[3 * n + i] += gate * (turn[3 * i] * drawn[0] + turn[3 * i + 1] * drawn[1] + turn[3 * i + 2] * drawn[2]);
}

inline void wander_splats(const Wander &layout, long count, const float *means, const float *quats, const float *sizes,
                          const float *opacities, float *to) {
    const Wander is = layout;
    each_apart(count, SPLATS_AT_ONCE, [=] __device__(long n) { wander(is, n, {means, quats, sizes}, opacities, to); });
}

}  // namespace neus
