// Volume rendering along a ray over its packed samples, `begin` to `end`. The specification is ops/volrend.py.
#pragma once
#include "device.h"

namespace neus {

// Visit the samples of a ray from `begin` up to the end of its transmittance; `reached` receives T_i.
__device__ inline int lit_samples(float opaque, float eps, const float *alpha, int begin, int end, float *reached, float *left) {
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
__device__ inline void weights_of_ray(float opaque, float eps, const float *alpha, int begin, int end, float *weights,
                                      float *left) {
    const int stop = lit_samples(opaque, eps, alpha, begin, end, weights, left);
    for (int i = begin; i < stop; i++) weights[i] *= alpha[i];
    for (int i = stop; i < end; i++) weights[i] = 0.f;
}

// `behind` is the derivative of the loss with respect to the transmittance behind a sample. There is no division, so a
// sample may be completely opaque. Initially it is the cotangent of the remaining transmittance.
__device__ inline void weights_of_ray_backward(float opaque, float eps, const float *alpha, int begin, int end,
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
__device__ inline void sum_of_ray_backward(int channels, const float *weights, const float *values, const float *d_sum,
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

}  // namespace neus
