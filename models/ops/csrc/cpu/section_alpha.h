// Opacities of intervals, and their gradient. The specification is `alpha_from_sdf` of ops/volrend.py.
#pragma once
#include "interval.h"
#include <algorithm>
#include <cmath>
#include <vector>

namespace neus {

// Intervals per task, independent of the number of threads: the ends of vectors are rounded differently, and sums are
// formed per task.
constexpr long INTERVALS = 4096;

// alpha [n].
inline void section_alpha(const SectionAlpha &is, long n, const float *sdf, const float *cos, const float *deltas,
                          const float *inv_s, float *alpha) {
#pragma omp parallel for schedule(static)
    for (long begin = 0; begin < n; begin += INTERVALS) {
#pragma omp simd
        for (long i = begin; i < std::min(n, begin + INTERVALS); i++)
            alpha[i] = Interval(is, sdf[i], cos[i], deltas[i], inv_s[0]).alpha(is.alpha_eps);
    }
}

// d_sdf [n], d_cos [n], d_inv_s [1].
inline void section_alpha_backward(const SectionAlpha &is, long n, const float *sdf, const float *cos,
                                   const float *deltas, const float *inv_s, const float *d_alpha, float *d_sdf,
                                   float *d_cos, float *d_inv_s) {
    const float s = inv_s[0];
    std::vector<double> parts((n + INTERVALS - 1) / INTERVALS);
#pragma omp parallel for schedule(static)
    for (long part = 0; part < (long)parts.size(); part++) {
        float sum = 0.f;
#pragma omp simd reduction(+ : sum)
        for (long i = part * INTERVALS; i < std::min(n, (part + 1) * INTERVALS); i++) {
            const IntervalGradient at(is, sdf[i], cos[i], deltas[i], s, d_alpha[i]);
            d_sdf[i] = at.d_sdf;
            d_cos[i] = at.d_cos;
            sum += at.d_inv_s;
        }
        parts[part] = sum;
    }
    double sum = 0.0;
    for (double part : parts) sum += part;
    d_inv_s[0] = (float)sum;
}

}  // namespace neus
