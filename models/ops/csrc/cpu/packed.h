// Volume rendering over packed samples, one ray per thread, so that sums do not depend on the number of threads. The
// specification is ops/volrend.py. `entries` is the number of offsets, one more than the rays.
#pragma once
#include <omp.h>
#include "packed_ray.h"

namespace neus {

constexpr int RAYS_AT_ONCE = 64;  // per task: rays differ in length, and a task costs as much as a short ray

// weights [S], left [R].
inline void packed_weights(const Packed &is, long entries, const int *offsets, const float *alpha, float *weights,
                           float *left) {
#pragma omp parallel for schedule(dynamic, RAYS_AT_ONCE)
    for (long r = 0; r < entries - 1; r++)
        weights_of_ray(is.opaque, is.eps, alpha, offsets[r], offsets[r + 1], weights, left + r);
    std::fill(weights + offsets[entries - 1], weights + is.samples, 0.f);
}

// d_alpha [S].
inline void packed_weights_backward(const Packed &is, long entries, const int *offsets, const float *alpha,
                                    const float *d_weights, const float *d_left, float *d_alpha) {
#pragma omp parallel for schedule(dynamic, RAYS_AT_ONCE)
    for (long r = 0; r < entries - 1; r++)
        weights_of_ray_backward(is.opaque, is.eps, alpha, offsets[r], offsets[r + 1], d_weights, d_left[r], d_alpha);
    std::fill(d_alpha + offsets[entries - 1], d_alpha + is.samples, 0.f);
}

// sums [R, C] of values [S, C] by weights [S].
inline void packed_sum(const Packed &is, long entries, const int *offsets, const float *weights, const float *values,
                       float *sums) {
    const long channels = is.channels;
#pragma omp parallel for schedule(dynamic, RAYS_AT_ONCE)
    for (long r = 0; r < entries - 1; r++) {
        float *sum = sums + r * channels;
        std::fill(sum, sum + channels, 0.f);
        for (long i = offsets[r]; i < offsets[r + 1]; i++)
            for (long c = 0; c < channels; c++) sum[c] += weights[i] * values[i * channels + c];
    }
}

// d_weights [S] and d_values [S, C].
inline void packed_sum_backward(const Packed &is, long entries, const int *offsets, const float *weights,
                                const float *values, const float *d_sums, float *d_weights, float *d_values) {
    const long channels = is.channels;
#pragma omp parallel for schedule(dynamic, RAYS_AT_ONCE)
    for (long r = 0; r < entries - 1; r++)
        sum_of_ray_backward(is.channels, weights, values, d_sums + r * channels, offsets[r], offsets[r + 1], d_weights,
                            d_values);
    const long used = offsets[entries - 1];
    std::fill(d_weights + used, d_weights + is.samples, 0.f);
    std::fill(d_values + used * channels, d_values + is.samples * channels, 0.f);
}

}  // namespace neus
