// Opacity of NeuS sections, and its gradient. The reference is ops/section_alpha.py.
#pragma once
#include "reduce.h"
#include "sigmoid.h"

namespace neus {

struct Section {
    float half;         // of the change of the sdf along it
    float entry, exit;  // Phi_s at its ends; exit <= entry, since the slope is never positive

    __device__ Section(const SectionAlpha &is, float sdf, float cos, float length, float inv_s) {
        const float soft = fmaxf(0.5f - 0.5f * cos, 0.f), hard = fmaxf(-cos, 0.f);
        const float slope = -(soft * (1.f - is.ratio) + hard * is.ratio);
        half = fmaxf(slope * length * 0.5f, -is.largest_change);
        entry = sigmoid((sdf - half) * inv_s);
        exit = sigmoid((sdf + half) * inv_s);
    }
};

// alpha [n].
inline void section_alpha(const SectionAlpha &layout, long n, const float *sdf, const float *cos, const float *lengths,
                          const float *inv_s, float *alpha) {
    const SectionAlpha is = layout;
    each(n, [=] __device__(long i) {
        const Section section(is, sdf[i], cos[i], lengths[i], inv_s[0]);
        alpha[i] = (section.entry - section.exit + is.alpha_eps) / (section.entry + is.alpha_eps);
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
        const float over = 1.f / (section.entry + is.alpha_eps);
        const float d_entry = d_alpha[i] * section.exit * over * over * section.entry * (1.f - section.entry);
        const float d_exit = -d_alpha[i] * over * section.exit * (1.f - section.exit);
        const float falls = 0.5f * (1.f - is.ratio) * (cos[i] < 1.f) + is.ratio * (cos[i] < 0.f);
        d_sdf[i] = (d_entry + d_exit) * s;
        d_cos[i] = (d_exit - d_entry) * s * 0.5f * lengths[i] * falls;
        parts[i] = d_entry * (sdf[i] - section.half) + d_exit * (sdf[i] + section.half);
    });
    clear(d_inv_s, 1);
    add_columns(n, 1, 1.f, parts, 1, d_inv_s);
}

}  // namespace neus
