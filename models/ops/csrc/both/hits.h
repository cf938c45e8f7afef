// Intersections of rays of packed samples with a surface. The reference is ops/hits.py. `entries` is the number of
// offsets, one more than the rays.
#pragma once
#include "device.h"

namespace neus {

// The sample of the largest weight, the first of equal ones; -1 if the sum of weights is at most `opacity` or not
// finite.
__device__ inline int heaviest_sample(float opacity, const float *weights, int begin, int end) {
    float sum = 0.f;
    int at = -1;
    for (int i = begin; i < end; i++) {
        sum += weights[i];
        if (at < 0 || weights[i] > weights[at]) at = i;
    }
    return isfinite(sum) && sum > opacity ? at : -1;
}

// Whether a position [3] is selected, one in `every`, by a hash of its bits.
__device__ inline bool is_chosen(int every, const float *place) {
    uint32_t bits[3];
    memcpy(bits, place, sizeof(bits));
    return (bits[0] + bits[1] + bits[2]) / 64 % (uint32_t)every == 0;
}

__device__ inline float product3(const float *one, const float *other) {
    return one[0] * other[0] + one[1] * other[1] + one[2] * other[2];
}

// The sample from which a Newton step along the ray reaches the surface; -1 if there is none, or if a value is not
// finite. point and normal [3] receive the surface point and its normal, or zeros.
__device__ inline int hit_of_ray(int every, float opacity, float reach, float steepest, int begin, int end,
                                 const float *sdf, const float *gradient, const float *weights, const float *places,
                                 const float *directions, float *point, float *normal) {
    for (int k = 0; k < 3; k++) point[k] = normal[k] = 0.f;
    const int at = heaviest_sample(opacity, weights, begin, end);
    if (at < 0) return -1;
    const float *place = places + 3L * at, *direction = directions + 3L * at;
    const float slope = product3(gradient + 3L * at, direction);
    if (!is_chosen(every, place) || !isfinite(sdf[at]) || !isfinite(slope)) return -1;
    if (!(slope < -steepest && fabsf(sdf[at]) < reach)) return -1;
    for (int k = 0; k < 3; k++) {
        point[k] = place[k] - sdf[at] / slope * direction[k];
        normal[k] = gradient[3L * at + k];
    }
    return at;
}

// Cotangents of the distance and of its gradient at sample `at`, unless that is -1, from those of the point and of the
// normal [3].
__device__ inline void hit_backward(long at, const float *sdf, const float *gradient, const float *directions,
                                    const float *d_point, const float *d_normal, float *d_sdf, float *d_gradient) {
    if (at < 0) return;
    const float *direction = directions + 3 * at;
    const float slope = product3(gradient + 3 * at, direction), along = product3(d_point, direction);
    d_sdf[at] = -along / slope;
    for (int k = 0; k < 3; k++) d_gradient[3 * at + k] = d_normal[k] + along * sdf[at] / (slope * slope) * direction[k];
}

constexpr int RAYS_AT_ONCE = 64;

// at [R], points and normals [R, 3].
inline void surface_hits(const Hits &is, long entries, const int *offsets, const float *sdf, const float *gradient,
                         const float *weights, const float *places, const float *directions, int *at, float *points,
                         float *normals) {
    const int every = is.every;
    const float opacity = is.opacity, reach = is.reach, steepest = is.steepest;
    each_apart(entries - 1, RAYS_AT_ONCE, [=] __device__(long r) {
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
