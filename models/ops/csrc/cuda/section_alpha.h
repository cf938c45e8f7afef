// Opacities of intervals, and their gradient. The specification is `alpha_from_sdf` of ops/volrend.py.
#pragma once
#include "interval.h"
#include "reduce.h"

namespace neus {

// alpha [n].
inline void section_alpha(const SectionAlpha &layout, long n, const float *sdf, const float *cos, const float *deltas,
                          const float *inv_s, float *alpha) {
    const SectionAlpha is = layout;
    each(n, [=] __device__(long i) {
        alpha[i] = Interval(is, sdf[i], cos[i], deltas[i], inv_s[0]).alpha(is.alpha_eps);
    });
}

// d_sdf [n], d_cos [n], d_inv_s [1].
inline void section_alpha_backward(const SectionAlpha &layout, long n, const float *sdf, const float *cos,
                                   const float *deltas, const float *inv_s, const float *d_alpha, float *d_sdf,
                                   float *d_cos, float *d_inv_s) {
    const SectionAlpha is = layout;
    Scratch<float> scratch(n);
    float *parts = scratch.values;
    each(n, [=] __device__(long i) {
        const IntervalGradient at(is, sdf[i], cos[i], deltas[i], inv_s[0], d_alpha[i]);
        d_sdf[i] = at.d_sdf;
        d_cos[i] = at.d_cos;
        parts[i] = at.d_inv_s;
    });
    clear(d_inv_s, 1);
    add_columns(n, 1, 1.f, parts, 1, d_inv_s);
}

}  // namespace neus
