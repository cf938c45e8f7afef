// Sums of a loss over rows, the number of rows that count, and the gradient of the sum. The reference is
// ops/loss_sums.py.
#pragma once
#include "device.h"
#include "reduce.h"

namespace neus {

__device__ inline float sign_of(float x) { return x > 0.f ? 1.f : x < 0.f ? -1.f : x; }

// The loss of a row; NaN of NaN. `slopes`: its derivatives times `factor`; null if they are not wanted.
__device__ inline float loss_of(const LossSum &is, const float *values, const float *targets, float *slopes, float factor) {
    float loss = 0.f;
    if (is.kind == CROSS_ENTROPY) {
        const float p = values[0], t = targets[0], low = is.margin, high = 1.f - is.margin;
        const float clipped = p < low ? low : p > high ? high : p;
        if (slopes) slopes[0] = p < low || p > high ? 0.f : factor * ((1.f - t) / (1.f - p) - t / p);
        return -(t * logf(clipped) + (1.f - t) * logf(1.f - clipped));
    }
    if (is.kind == UNIT_LENGTH) {
        double square = 0;
        for (int j = 0; j < is.width; j++) square += (double)values[j] * values[j];
        const float length = (float)sqrt(square), slope = length > 0.f ? 2.f * (length - 1.f) / length : 0.f;
        for (int j = 0; slopes && j < is.width; j++) slopes[j] = factor * slope * values[j];
        return (length - 1.f) * (length - 1.f);
    }
    for (int j = 0; j < is.width; j++) {
        const float x = is.kind == ABSOLUTE || is.kind == SQUARED ? values[j] - targets[j] : values[j];
        if (slopes) slopes[j] = factor * (is.kind == SQUARED ? 2.f * x : is.kind == BELOW_ZERO ? fminf(sign_of(x), 0.f) : sign_of(x));
        loss += is.kind == SQUARED ? x * x : is.kind == BELOW_ZERO ? (x > 0.f ? 0.f : -x) : fabsf(x);
    }
    return loss;
}

// How often row i counts. `rays` and `offsets`: of int, if they are read.
__device__ inline float count_of(const LossSum &is, long i, const float *counts, const void *rays, const void *offsets) {
    if (is.rays) return i < ((const int *)offsets)[is.rays] ? counts[((const int *)rays)[i]] : 0.f;
    return is.counts ? counts[i] : 1.f;
}

// values, targets [n, width]; counts [n], or those of rays; total, number [1]. What is not read may be any array.
inline void loss_sum(const LossSum &layout, long n, const float *values, const float *targets, const float *counts,
                     const void *rays, const void *offsets, float *total, float *number) {
    const LossSum is = layout;
    sum_pairs(n, total, number, [=] __device__(long i, float &loss, float &count) {
        count = count_of(is, i, counts, rays, offsets);
        loss = loss_of(is, values + i * is.width, targets + i * is.width, nullptr, 0.f) * count;
    });
}

inline void loss_sum_backward(const LossSum &layout, long n, const float *values, const float *targets, const float *counts,
                              const void *rays, const void *offsets, const float *d_total, float *d_values) {
    const LossSum is = layout;
    each(n, [=] __device__(long i) {
        const float factor = d_total[0] * count_of(is, i, counts, rays, offsets);
        loss_of(is, values + i * is.width, targets + i * is.width, d_values + i * is.width, factor);
    });
}

}  // namespace neus
