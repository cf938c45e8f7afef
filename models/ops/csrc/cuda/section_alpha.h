// Opacity of NeuS sections, and its gradient. The reference is ops/section_alpha.py.
#pragma once
#include "reduce.h"
#include "section.h"

namespace neus {

// alpha [n].
inline void section_alpha(const SectionAlpha &layout, long n, const float *sdf, const float *cos, const float *lengths,
                          const float *inv_s, float *alpha) {
    const SectionAlpha is = layout;
    each(n, [=] __device__(long i) {
        const Section section(is, sdf[i], cos[i], lengths[i], inv_s[0]);
        alpha[i] = section.alpha(is.alpha_eps);
    });
}

// d_sdf [n], d_cos [n], d_inv_s [1].
inline void section_alpha_backward(const SectionAlpha &layout, long n, const float *sdf, const float *cos,
                                   const float *lengths, const float *inv_s, const float *d_alpha, float *d_sdf,
                                   float *d_cos, float *d_inv_s) {
    const SectionAlpha is = layout;
    Scratch<float> scratch(n);
    float *parts = scratch.values;
    each(n, [=] __device__(long i) {
        const float s = inv_s[0];
        const Section section(is, sdf[i], cos[i], lengths[i], s);
        const SectionPull pull(is, section, sdf[i], cos[i], lengths[i], s, d_alpha[i], 0.f);
        d_sdf[i] = pull.d_sdf;
        d_cos[i] = pull.d_cos;
        parts[i] = pull.d_inv_s;
    });
    clear(d_inv_s, 1);
    add_columns(n, 1, 1.f, parts, 1, d_inv_s);
}

}  // namespace neus
