// Volume rendering over packed samples, a thread for each ray or for each number: sums have one order. The reference is
// ops/packed.py. `entries` is the number of offsets, one more than the rays.
#pragma once
#include "device.h"

namespace neus {

// The samples of a ray that light reaches, from `begin`: the rest of it takes no part. `reached` receives T_i.
__device__ inline int lit_samples(float opaque, const float *alpha, int begin, int end, float *reached, float *left) {
    float light = 1.f;
    int i = begin;
    for (; i < end && light >= opaque; i++) {
        reached[i] = light;
        light *= 1.f - alpha[i];
    }
    *left = light;
    return i;
}

// Zeros for the samples that are nobody's: values [samples, channels] behind those of the last ray.
inline void clear_spare(long samples, long entries, const int *offsets, int channels, float *values) {
    each(samples * channels, [=] __device__(long i) {
        if (i >= (long)offsets[entries - 1] * channels) values[i] = 0.f;
    });
}

// weights [S], left [R].
inline void packed_weights(const Packed &is, long entries, const int *offsets, const float *alpha, float *weights,
                           float *left) {
    const float opaque = is.opaque;
    each(entries - 1, [=] __device__(long r) {
        const int begin = offsets[r], end = offsets[r + 1];
        const int stop = lit_samples(opaque, alpha, begin, end, weights, left + r);
        for (int i = begin; i < stop; i++) weights[i] *= alpha[i];
        for (int i = stop; i < end; i++) weights[i] = 0.f;
    });
    clear_spare(is.samples, entries, offsets, 1, weights);
}

// d_alpha [S]. `behind` is what one unit of light that passes a sample is worth there: no division, so that a sample may
// be wholly opaque.
inline void packed_weights_backward(const Packed &is, long entries, const int *offsets, const float *alpha,
                                    const float *d_weights, const float *d_left, float *d_alpha) {
    const float opaque = is.opaque;
    each(entries - 1, [=] __device__(long r) {
        const int begin = offsets[r], end = offsets[r + 1];
        float left, behind = d_left[r];
        const int stop = lit_samples(opaque, alpha, begin, end, d_alpha, &left);
        for (int i = stop - 1; i >= begin; i--) {
            d_alpha[i] *= d_weights[i] - behind;
            behind = d_weights[i] * alpha[i] + (1.f - alpha[i]) * behind;
        }
        for (int i = stop; i < end; i++) d_alpha[i] = 0.f;
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
        const float *cotangent = d_sums + r * channels;
        for (long i = offsets[r]; i < offsets[r + 1]; i++) {
            float sum = 0.f;
            for (int c = 0; c < channels; c++) {
                sum += cotangent[c] * values[i * channels + c];
                d_values[i * channels + c] = weights[i] * cotangent[c];
            }
            d_weights[i] = sum;
        }
    });
    clear_spare(is.samples, entries, offsets, 1, d_weights);
    clear_spare(is.samples, entries, offsets, channels, d_values);
}

}  // namespace neus
