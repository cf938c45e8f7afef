// SGLD noise of Gaussians of low opacity (3DGS-MCMC). The reference is ops/splat_wander.py.
#pragma once
#include "wander.h"

namespace neus {

inline void wander_splats(const Wander &layout, long count, const float *means, const float *quats, const float *sizes,
                          const float *opacities, float *to) {
    const Wander is = layout;
    each(count, [=] __device__(long n) { wander(is, n, {means, quats, sizes}, opacities, to); });
}

}  // namespace neus
