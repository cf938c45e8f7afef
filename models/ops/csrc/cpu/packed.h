// Volume rendering over packed samples, one ray per thread, so that sums do not depend on the number of threads. The
// specification is ops/volrend.py. `entries` is the number of offsets, one more than the rays.
#pragma once
#include "device.h"

namespace neus {

constexpr int RAYS_AT_ONCE = 64;  // per task: rays differ in length, and a task costs as much as a short ray

// Visit the samples of a ray from `begin` up to the end of its transmittance; `reached` receives T_i.
inline int lit_samples(float opaque, float eps, const float *alpha, int begin, int end, float *reached, float *left) {
    float light = 1.f;
    int i = begin;
    for (; i < end && light >= opaque; i++) {
        reached[i] = light;
        light *= 1.f - alpha[i] + eps;
    }
    *left = light;
    return i;
}

// The weights of the samples; returns the remaining transmittance.
inline void weights_of_ray(float opaque, float eps, const float *alpha, int begin, int end, float *weights,
                                      float *left) {
    const int stop = lit_samples(opaque, eps, alpha, begin, end, weights, left);
    for (int i = begin; i < stop; i++) weights[i] *= alpha[i];
    for (int i = stop; i < end; i++) weights[i] = 0.f;
}

// `behind` is the derivative of the loss with respect to the transmittance behind a sample. There is no division, so a
// sample may be completely opaque. Initially it is the cotangent of the remaining transmittance.
inline void weights_of_ray_backward(float opaque, float eps, const float *alpha, int begin, int end,
                                               const float *d_weights, float behind, float *d_alpha) {
    float left;
    const int stop = lit_samples(opaque, eps, alpha, begin, end, d_alpha, &left);
    for (int i = stop - 1; i >= begin; i--) {
        d_alpha[i] *= d_weights[i] - behind;
        behind = d_weights[i] * alpha[i] + (1.f - alpha[i] + eps) * behind;
    }
    for (int i = stop; i < end; i++) d_alpha[i] = 0.f;
}

// The cotangents of weights and values [C] from that of a sum [C].
inline void sum_of_ray_backward(int channels, const float *weights, const float *values, const float *d_sum,
                                           long begin, long end, float *d_weights, float *d_values) {
    for (long i = begin; i < end; i++) {
        float sum = 0.f;
        for (int c = 0; c < channels; c++) {
            sum += d_sum[c] * values[i * channels + c];
            d_values[i * channels + c] = weights[i] * d_sum[c];
        }
        d_weights[i] = sum;
    }
}

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
