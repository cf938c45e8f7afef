// The midpoints of dense intervals along rays. The reference is ops/upsample.py.
#pragma once
#include "device.h"

namespace neus {

// For intervals that begin at t_starts [rays, N]: positions and directions [rays * N, 3], lengths and distances of the
// midpoints [rays * N], and whether a midpoint is inside either sphere.
inline void intervals(const IntervalSizes &layout, long rays, const float *origins, const float *directions,
                      const float *t_starts, float *positions, float *views, float *deltas, float *middles,
                      float *inside, float *near) {
    const IntervalSizes is = layout;
    each_place(rays, is.per_ray, [=] __device__(int r, int i, long at) {
        const float delta = i + 1 < is.per_ray ? t_starts[at + 1] - t_starts[at] : is.last;
        const float middle = t_starts[at] + __fmul_rn(delta, 0.5f);
        double square = 0;
        for (int j = 0; j < 3; j++) {
            const float direction = directions[3 * r + j], x = origins[3 * r + j] + __fmul_rn(direction, middle);
            positions[3 * at + j] = x;
            views[3 * at + j] = direction;
            square += (double)x * x;
        }
        const float radius = (float)sqrt(square);
        deltas[at] = delta;
        middles[at] = middle;
        inside[at] = radius < is.sphere_radius ? 1.f : 0.f;
        near[at] = radius < is.eikonal_radius ? 1.f : 0.f;
    });
}

}  // namespace neus
