// Intersections of rays of packed samples with a surface, one thread per ray. The reference is ops/hits.py. `entries`
// is the number of offsets, one more than the rays.
#pragma once
#include "ray_hit.h"

namespace neus {

// at [R], points and normals [R, 3].
inline void surface_hits(const Hits &is, long entries, const int *offsets, const float *sdf, const float *gradient,
                         const float *weights, const float *places, const float *directions, int *at, float *points,
                         float *normals) {
    const int every = is.every;
    const float opacity = is.opacity, reach = is.reach, steepest = is.steepest;
    each(entries - 1, [=] __device__(long r) {
        at[r] = hit_of_ray(every, opacity, reach, steepest, offsets[r], offsets[r + 1], sdf, gradient, weights, places,
                           directions, points + 3 * r, normals + 3 * r);
    });
}

// d_sdf [S], d_gradient [S, 3]. Each sample belongs to one ray, so there are no conflicts.
inline void surface_hits_backward(const Hits &is, long rays, const int *at, const float *sdf, const float *gradient,
                                  const float *directions, const float *d_points, const float *d_normals, float *d_sdf,
                                  float *d_gradient) {
    clear(d_sdf, is.samples);
    clear(d_gradient, 3L * is.samples);
    each(rays, [=] __device__(long r) {
        hit_backward(at[r], sdf, gradient, directions, d_points + 3 * r, d_normals + 3 * r, d_sdf, d_gradient);
    });
}

}  // namespace neus
