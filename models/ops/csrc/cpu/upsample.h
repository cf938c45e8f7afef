// One up-sampling round, ray by ray: where to look closer at the surface. The reference is ops/upsample.py.
//
// A new depth is a quotient of differences of a cumulated sum: one unit in the last place of that sum moves it by 1e-4.
// So that depths agree with the published code's, each step is rounded to float32 as there, running sums and products
// are carried in double as PyTorch carries them, and the compiler may neither reorder nor fuse.
#pragma once
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>
#include <omp.h>

#pragma GCC push_options
#pragma GCC optimize("no-fast-math", "fp-contract=off")

namespace neus {

inline float sigmoid(float x) {
    const float e = (float)std::exp(-(double)x);
    return 1.f / (1.f + e);
}

// Sum in the order in which PyTorch's CPU reduction adds a row: four accumulators of eight lanes, then the rest.
inline float ordered_sum(const float *values, int n) {
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

// Weights of the n - 1 sections between n depths, not normalised.
inline void section_weights(const float *origin, const float *direction, const float *depths, const float *sdf, int n,
                            const UpsampleRound &is, float *weights) {
    auto inside = [&](int i) {
        double square = 0;
        for (int j = 0; j < 3; j++) {
            const float along = direction[j] * depths[i], x = origin[j] + along;
            square += (double)x * x;
        }
        return (float)std::sqrt(square) < 1.f;
    };
    double transmittance = 1;
    float cos_before = 0;
    for (int i = 0; i + 1 < n; i++) {
        const float length = depths[i + 1] - depths[i];
        const float cos = (sdf[i + 1] - sdf[i]) / (length + is.depth_eps);
        float slope = std::min(std::max(std::min(cos_before, cos), is.cos_min), 0.f);
        if (!inside(i) && !inside(i + 1)) slope = 0;
        cos_before = cos;
        const float middle = (sdf[i] + sdf[i + 1]) * 0.5f, half = slope * length * 0.5f;
        const float entry = sigmoid((middle - half) * is.inv_s), exit = sigmoid((middle + half) * is.inv_s);
        const float alpha = (entry - exit + is.alpha_eps) / (entry + is.alpha_eps);
        weights[i] = alpha * (float)transmittance;
        transmittance *= 1.f - alpha + is.transmittance_eps;
    }
}

// Depths at the quantiles (i + 1/2) / count of the histogram of `weights` over n depths; `cdf` is scratch for n.
inline void quantiles(const float *depths, float *weights, int n, int count, const UpsampleRound &is, float *cdf,
                      float *result) {
    for (int i = 0; i + 1 < n; i++) weights[i] += is.weight_eps;
    const float total = ordered_sum(weights, n - 1);
    double sum = 0;
    cdf[0] = 0;
    for (int i = 0; i + 1 < n; i++) cdf[i + 1] = (float)(sum += weights[i] / total);
    for (int q = 0; q < count; q++) {
        const float u = (float)((q + 0.5) / count);
        const int above = (int)(std::upper_bound(cdf, cdf + n, u) - cdf), below = std::max(above - 1, 0);
        const int last = std::min(above, n - 1);
        float width = cdf[last] - cdf[below];
        if (width < is.weight_eps) width = 1;
        const float share = (u - cdf[below]) / width;
        result[q] = depths[below] + share * (depths[last] - depths[below]);
    }
}

// For each of `rays`: new depths [rays, count], all depths ascending [rays, n + count], and the place of each of these
// in the concatenation of old and new ones.
inline void upsample(const UpsampleRound &is, long rays, const float *origins, const float *directions,
                     const float *depths, const float *sdf, float *added, float *merged, int *order) {
    const int n = is.depths, count = is.count;
#pragma omp parallel
    {
        std::vector<float> weights(n), cdf(n);
#pragma omp for schedule(static)
        for (long r = 0; r < rays; r++) {
            const float *old = depths + r * n, *fresh = added + r * count;
            section_weights(origins + r * 3, directions + r * 3, old, sdf + r * n, n, is, weights.data());
            quantiles(old, weights.data(), n, count, is, cdf.data(), added + r * count);
            auto depth = [&](int i) { return i < n ? old[i] : fresh[i - n]; };
            int *places = order + r * (n + count);
            std::iota(places, places + n + count, 0);
            std::stable_sort(places, places + n + count, [&](int a, int b) { return depth(a) < depth(b); });
            for (int i = 0; i < n + count; i++) merged[r * (n + count) + i] = depth(places[i]);
        }
    }
}

}  // namespace neus

#pragma GCC pop_options
