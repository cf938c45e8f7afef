// Volume rendering along a ray over its packed samples, `begin` to `end`. The specification is ops/volrend.py.
#pragma once
#include "device.h"

namespace neus {

// The samples of a ray that light reaches, from `begin`: the rest of it takes no part. `reached` receives T_i.
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

// Weights of the samples, and the light that is left.
__device__ inline void weights_of_ray(float opaque, float eps, const float *alpha, int begin, int end, float *weights,
                                      float *left) {
    const int stop = lit_samples(opaque, eps, alpha, begin, end, weights, left);
    for (int i = begin; i < stop; i++) weights[i] *= alpha[i];
    for (int i = stop; i < end; i++) weights[i] = 0.f;
}

// `behind` is what one unit of light that passes a sample is worth there: no division, so that a sample may be wholly
// opaque. At first it is that of what is left.
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

// Of a sum [C], of weights and of values [C] at each sample.
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
