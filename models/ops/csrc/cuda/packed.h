// Volume rendering over packed samples: sums have a fixed order. The reference is ops/volrend.py. `entries` is the number
// of offsets, one more than the rays.
#pragma once
#include "device.h"

namespace neus {

// Zero the unused samples: values [samples, channels] behind those of the last ray.
inline void clear_spare(long samples, long entries, const int *offsets, int channels, float *values) {
    each(samples * channels, [=] __device__(long i) {
        if (i >= (long)offsets[entries - 1] * channels) values[i] = 0.f;
    });
}

// reached [S]: the transmittances T_i of a ray's samples in the order of the CPU, 0 from the end of the light on, by a
// warp that shares memory for LANES values; returns the remaining transmittance. `end` becomes that of the light.
__device__ inline float transmittances(float opaque, float eps, const float *alpha, long begin, long &end, int lane, float *some,
                                       float *reached) {
    float light = 1.f;
    const long all = end;
    end = begin;
    for (; begin < all; begin += LANES) {
        const long count = all - begin < LANES ? all - begin : LANES;
        some[lane] = lane < count ? alpha[begin + lane] : 0.f;
        wait_for_warp();
        float own = 0.f;
        for (int k = 0; k < count && light >= opaque; k++, end++) {
            if (k == lane) own = light;
            light *= 1.f - some[k] + eps;
        }
        if (lane < count) reached[begin + lane] = own;
        wait_for_warp();
    }
    return light;
}

// weights [S], left [R].
inline void packed_weights(const Packed &is, long entries, const int *offsets, const float *alpha, float *weights,
                           float *left) {
    const float opaque = is.opaque, eps = is.eps;
    each_warp(entries - 1, LANES, [=] __device__(long r, int lane, float *some) {
        long end = offsets[r + 1];
        const float light = transmittances(opaque, eps, alpha, offsets[r], end, lane, some, weights);
        for (long i = offsets[r] + lane; i < offsets[r + 1]; i += LANES) weights[i] *= i < end ? alpha[i] : 0.f;
        if (lane == 0) left[r] = light;
    });
    clear_spare(is.samples, entries, offsets, 1, weights);
}

// d_alpha [S]. `behind` is the derivative of the loss with respect to the transmittance behind a sample. There is no
// division, so a sample may be completely opaque. Initially it is the cotangent of the remaining transmittance.
inline void packed_weights_backward(const Packed &is, long entries, const int *offsets, const float *alpha,
                                    const float *d_weights, const float *d_left, float *d_alpha) {
    const float opaque = is.opaque, eps = is.eps;
    each_warp(entries - 1, 2 * LANES, [=] __device__(long r, int lane, float *some) {
        const long first = offsets[r];
        long end = offsets[r + 1];
        transmittances(opaque, eps, alpha, first, end, lane, some, d_alpha);
        float behind = d_left[r];
        for (long begin = first + (end - first - 1) / LANES * LANES; begin >= first && end > first; begin -= LANES) {
            const long i = begin + lane;
            some[lane] = i < end ? alpha[i] : 0.f;
            some[LANES + lane] = i < end ? d_weights[i] : 0.f;
            wait_for_warp();
            float own = 0.f;
            for (int k = end - begin < LANES ? (int)(end - begin) - 1 : LANES - 1; k >= 0; k--) {
                if (k == lane) own = behind;
                behind = some[LANES + k] * some[k] + (1.f - some[k] + eps) * behind;
            }
            if (i < end) d_alpha[i] *= some[LANES + lane] - own;
            wait_for_warp();
        }
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
    each_warp(entries - 1, 0, [=] __device__(long r, int lane, float *) {
        for (long i = offsets[r] + lane; i < offsets[r + 1]; i += LANES) {
            float sum = 0.f;
            for (int c = 0; c < channels; c++) {
                const float d_sum = d_sums[r * channels + c];
                sum += d_sum * values[i * channels + c];
                d_values[i * channels + c] = weights[i] * d_sum;
            }
            d_weights[i] = sum;
        }
    });
    clear_spare(is.samples, entries, offsets, 1, d_weights);
    clear_spare(is.samples, entries, offsets, channels, d_values);
}

}  // namespace neus
