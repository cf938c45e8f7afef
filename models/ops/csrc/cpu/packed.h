// Volume rendering over packed samples, ray by ray: a ray is one thread's, so that sums do not depend on the threads. The
// reference is ops/packed.py. `entries` is the number of offsets, one more than the rays.
#pragma once
#include <algorithm>
#include <omp.h>

namespace neus {

constexpr int RAYS_AT_ONCE = 64;  // of a thread: rays differ in length, and handing one out costs as much as a short one

// The samples of a ray that light reaches, from `begin`: the rest of it takes no part. `reached` receives T_i.
inline int lit_samples(const Packed &is, const float *alpha, int begin, int end, float *reached, float &left) {
    left = 1.f;
    int i = begin;
    for (; i < end && left >= is.opaque; i++) {
        reached[i] = left;
        left *= 1.f - alpha[i];
    }
    return i;
}

// weights [S], left [R].
inline void packed_weights(const Packed &is, long entries, const int *offsets, const float *alpha, float *weights,
                           float *left) {
#pragma omp parallel for schedule(dynamic, RAYS_AT_ONCE)
    for (long r = 0; r < entries - 1; r++) {
        const int begin = offsets[r], end = offsets[r + 1];
        const int stop = lit_samples(is, alpha, begin, end, weights, left[r]);
        for (int i = begin; i < stop; i++) weights[i] *= alpha[i];
        std::fill(weights + stop, weights + end, 0.f);
    }
    std::fill(weights + offsets[entries - 1], weights + is.samples, 0.f);
}

// d_alpha [S]. `behind` is what one unit of light that passes a sample is worth there: no division, so that a sample may
// be wholly opaque.
inline void packed_weights_backward(const Packed &is, long entries, const int *offsets, const float *alpha,
                                    const float *d_weights, const float *d_left, float *d_alpha) {
#pragma omp parallel for schedule(dynamic, RAYS_AT_ONCE)
    for (long r = 0; r < entries - 1; r++) {
        const int begin = offsets[r], end = offsets[r + 1];
        float left, behind = d_left[r];
        const int stop = lit_samples(is, alpha, begin, end, d_alpha, left);
        for (int i = stop - 1; i >= begin; i--) {
            d_alpha[i] *= d_weights[i] - behind;
            behind = d_weights[i] * alpha[i] + (1.f - alpha[i]) * behind;
        }
        std::fill(d_alpha + stop, d_alpha + end, 0.f);
    }
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
    for (long r = 0; r < entries - 1; r++) {
        const float *cotangent = d_sums + r * channels;
        for (long i = offsets[r]; i < offsets[r + 1]; i++) {
            float sum = 0.f;
            for (long c = 0; c < channels; c++) {
                sum += cotangent[c] * values[i * channels + c];
                d_values[i * channels + c] = weights[i] * cotangent[c];
            }
            d_weights[i] = sum;
        }
    }
    const long used = offsets[entries - 1];
    std::fill(d_weights + used, d_weights + is.samples, 0.f);
    std::fill(d_values + used * channels, d_values + is.samples * channels, 0.f);
}

}  // namespace neus
