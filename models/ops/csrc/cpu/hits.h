// Intersections of rays of packed samples with a surface, ray by ray. The reference is ops/hits.py. `entries` is the
// number of offsets, one more than the rays.
#pragma once
#include "ray_hit.h"

namespace neus {

constexpr int RAYS_AT_ONCE = 64;  // of a thread

// at [R], points and normals [R, 3].
inline void surface_hits(const Hits &is, long entries, const int *offsets, const float *sdf, const float *gradient,
                         const float *weights, const float *places, const float *directions, int *at, float *points,
                         float *normals) {
#pragma omp parallel for schedule(dynamic, RAYS_AT_ONCE)
    for (long r = 0; r < entries - 1; r++)
        at[r] = hit_of_ray(is.every, is.opacity, is.reach, is.steepest, offsets[r], offsets[r + 1], sdf, gradient, weights,
                           places, directions, points + 3 * r, normals + 3 * r);
}

// d_sdf [S], d_gradient [S, 3].
inline void surface_hits_backward(const Hits &is, long rays, const int *at, const float *sdf, const float *gradient,
                                  const float *directions, const float *d_points, const float *d_normals, float *d_sdf,
                                  float *d_gradient) {
    std::fill(d_sdf, d_sdf + is.samples, 0.f);
    std::fill(d_gradient, d_gradient + 3L * is.samples, 0.f);
    for (long r = 0; r < rays; r++)
        hit_backward(at[r], sdf, gradient, directions, d_points + 3 * r, d_normals + 3 * r, d_sdf, d_gradient);
}

}  // namespace neus
