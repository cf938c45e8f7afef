// One up-sampling round of a ray: new depths near the surface. The reference is ops/upsample.py.
//
// A new depth is a quotient of differences of a cumulative sum. An error of one unit in the last place of that sum
// moves the depth by 1e-4. Each step is therefore rounded to float32 as in the published code, and running sums and
// products are double, as in PyTorch. Products and quotients of float32 use intrinsics that are not contracted under
// any compiler flag.
#pragma once
#include "device.h"

namespace neus {

__device__ inline float exact_sigmoid(float x) {
    const float e = (float)exp(-(double)x);
    return __fdiv_rn(1.f, 1.f + e);
}

// Sum in the order in which PyTorch's CPU reduction adds a row: four accumulators of eight lanes, then the rest.
__device__ inline float ordered_sum(const float *values, int n) {
    constexpr int lanes = 8, accumulators = 4;
    float parts[accumulators][lanes] = {};
    const int vectors = n / lanes, whole = vectors / accumulators * accumulators;
    for (int v = 0; v < vectors; v++)
        for (int k = 0; k < lanes; k++) parts[v < whole ? v % accumulators : 0][k] += values[v * lanes + k];
    float sum = 0;
    for (int i = vectors * lanes; i < n; i++) sum += values[i];
    for (int k = 0; k < lanes; k++) sum += ((parts[0][k] + parts[1][k]) + parts[2][k]) + parts[3][k];
    return sum;
}

__device__ inline bool inside_sphere(const float *origin, const float *direction, float depth) {
    double square = 0;
    for (int j = 0; j < 3; j++) {
        const float x = origin[j] + __fmul_rn(direction[j], depth);
        square += (double)x * x;  // exact: fused or not is the same
    }
    return (float)sqrt(square) < 1.f;
}

// Slope of the distance in the interval from depth i to the next.
__device__ inline float section_cos(const float *depths, const float *sdf, int i, float depth_eps) {
    return __fdiv_rn(sdf[i + 1] - sdf[i], depths[i + 1] - depths[i] + depth_eps);
}

// Opacity of an interval of a ray.
__device__ inline float round_alpha(const UpsampleRound &is, const float *origin, const float *direction,
                                    const float *depths, const float *sdf, int i) {
    const float length = depths[i + 1] - depths[i], cos = section_cos(depths, sdf, i, is.depth_eps);
    const float before = i > 0 ? section_cos(depths, sdf, i - 1, is.depth_eps) : 0.f;
    float slope = cos < before ? cos : before;
    slope = slope < is.cos_min ? is.cos_min : slope;
    slope = 0.f < slope ? 0.f : slope;
    if (!inside_sphere(origin, direction, depths[i]) && !inside_sphere(origin, direction, depths[i + 1])) slope = 0;
    const float middle = __fmul_rn(sdf[i] + sdf[i + 1], 0.5f), half = __fmul_rn(__fmul_rn(slope, length), 0.5f);
    const float entry = exact_sigmoid(__fmul_rn(middle - half, is.inv_s));
    const float exit = exact_sigmoid(__fmul_rn(middle + half, is.inv_s));
    return __fdiv_rn(entry - exit + is.alpha_eps, entry + is.alpha_eps);
}

// Replace a ray's opacities by its weights [n - 1]; cdf [n] receives their normalised cumulative sum.
__device__ inline void cumulate(const UpsampleRound &is, float *weights, float *cdf) {
    double transmittance = 1;
    for (int i = 0; i + 1 < is.depths; i++) {
        const float alpha = weights[i];
        weights[i] = __fmul_rn(alpha, (float)transmittance) + is.weight_eps;
        transmittance *= 1.f - alpha + is.transmittance_eps;
    }
    const float total = ordered_sum(weights, is.depths - 1);
    double sum = 0;
    cdf[0] = 0;
    for (int i = 0; i + 1 < is.depths; i++) cdf[i + 1] = (float)(sum += __fdiv_rn(weights[i], total));
}

// The depth at quantile (q + 1/2) / count of a ray.
__device__ inline float quantile(const UpsampleRound &is, const float *depths, const float *cdf, int q) {
    const int n = is.depths;
    const float u = (float)((q + 0.5) / is.count);
    int above = 0;
    for (int end = n; above < end;) {  // the first that is more than u
        const int middle = (above + end) / 2;
        if (u < cdf[middle])
            end = middle;
        else
            above = middle + 1;
    }
    const int below = above > 0 ? above - 1 : 0, last = above < n - 1 ? above : n - 1;
    float width = cdf[last] - cdf[below];
    if (width < is.weight_eps) width = 1;
    const float share = __fdiv_rn(u - cdf[below], width);
    return depths[below] + __fmul_rn(share, depths[last] - depths[below]);
}

}  // namespace neus
