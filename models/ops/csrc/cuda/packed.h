// Volume rendering over packed samples, one thread per ray or per number: sums have a fixed order. The reference is
// ops/volrend.py. `entries` is the number of offsets, one more than the rays.
#pragma once
#include "packed_ray.h"

namespace neus {

// Zero the unused samples: values [samples, channels] behind those of the last ray.
inline void clear_spare(long samples, long entries, const int *offsets, int channels, float *values) {
    each(samples * channels, [=] __device__(long i) {
        if (i >= (long)offsets[entries - 1] * channels) values[i] = 0.f;
    });
}

// weights [S], left [R].
inline void packed_weights(const Packed &is, long entries, const int *offsets, const float *alpha, float *weights,
                           float *left) {
    const float opaque = is.opaque, eps = is.eps;
    each(entries - 1, [=] __device__(long r) {
        weights_of_ray(opaque, eps, alpha, offsets[r], offsets[r + 1], weights, left + r);
    });
    clear_spare(is.samples, entries, offsets, 1, weights);
}

// d_alpha [S].
inline void packed_weights_backward(const Packed &is, long entries, const int *offsets, const float *alpha,
                                    const float *d_weights, const float *d_left, float *d_alpha) {
    const float opaque = is.opaque, eps = is.eps;
    each(entries - 1, [=] __device__(long r) {
        weights_of_ray_backward(opaque, eps, alpha, offsets[r], offsets[r + 1], d_weights, d_left[r], d_alpha);
    });
    clear_spare(is.samples, entries, offsets, 1, d_alpha);
}

// sums [R, C] of values [S, C] by weights [S].
inline void packed_sum(const Packed &is, long entries, const int *offsets, const float *weights, const float *values,
                       float *sums) {
    const int channels = is.channels;
    each_place(entries - 1, channels, [=] __device__(int r, int c, long at) {
        float sum = 0.f;
        for (long i = offsets[r]; i < offsets[r + 1]; i++) sum += weights[i] * values[i * channels + c];
        sums[at] = sum;
    });
}

// d_weights [S] and d_values [S, C].
inline void packed_sum_backward(const Packed &is, long entries, const int *offsets, const float *weights,
                                const float *values, const float *d_sums, float *d_weights, float *d_values) {
    const int channels = is.channels;
    each(entries - 1, [=] __device__(long r) {
        sum_of_ray_backward(channels, weights, values, d_sums + r * channels, offsets[r], offsets[r + 1], d_weights, d_values);
    });
    clear_spare(is.samples, entries, offsets, 1, d_weights);
    clear_spare(is.samples, entries, offsets, channels, d_values);
}

}  // namespace neus
