// SGLD noise of Gaussians of low opacity (3DGS-MCMC). The reference is ops/splat_wander.py.
#pragma once
#include "wander.h"

namespace neus {

inline void wander_splats(const Wander &is, long count, const float *means, const float *quats, const float *sizes,
                          const float *opacities, float *to) {
    const SplatsIn in{means, quats, sizes};
#pragma omp parallel for schedule(static)
    for (long n = 0; n < count; n++) wander(is, n, in, opacities, to);
}

}  // namespace neus
