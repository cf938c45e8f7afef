// Opacity of NeuS sections, and its gradient. The reference is ops/section_alpha.py.
#pragma once
#include "sigmoid.h"
#include <algorithm>
#include <cmath>
#include <vector>
#include <omp.h>

namespace neus {

// Shared out in parts of this many, whatever the threads: where vectors end, the compiler's code rounds differently, and
// sums are those of the parts.
constexpr long SECTIONS = 4096;

struct Section {
    float half;          // of the change of the sdf along it
    float entry, exit;   // Phi_s at its ends; exit <= entry, since the slope is never positive

    Section(const SectionAlpha &is, float sdf, float cos, float length, float inv_s) {
        const float soft = std::max(0.5f - 0.5f * cos, 0.f), hard = std::max(-cos, 0.f);
        const float slope = -(soft * (1.f - is.ratio) + hard * is.ratio);
        half = std::max(slope * length * 0.5f, -is.largest_change);
        entry = sigmoid((sdf - half) * inv_s);
        exit = sigmoid((sdf + half) * inv_s);
    }
};

// alpha [n].
inline void section_alpha(const SectionAlpha &is, long n, const float *sdf, const float *cos, const float *lengths,
                          const float *inv_s, float *alpha) {
#pragma omp parallel for schedule(static)
    for (long begin = 0; begin < n; begin += SECTIONS) {
#pragma omp simd
        for (long i = begin; i < std::min(n, begin + SECTIONS); i++) {
            const Section section(is, sdf[i], cos[i], lengths[i], inv_s[0]);
            alpha[i] = (section.entry - section.exit + is.alpha_eps) / (section.entry + is.alpha_eps);
        }
    }
}

// d_sdf [n], d_cos [n], d_inv_s [1].
inline void section_alpha_backward(const SectionAlpha &is, long n, const float *sdf, const float *cos,
                                   const float *lengths, const float *inv_s, const float *d_alpha, float *d_sdf,
                                   float *d_cos, float *d_inv_s) {
    const float s = inv_s[0];
    std::vector<double> parts((n + SECTIONS - 1) / SECTIONS);
#pragma omp parallel for schedule(static)
    for (long part = 0; part < (long)parts.size(); part++) {
        float sum = 0.f;
#pragma omp simd reduction(+ : sum)
        for (long i = part * SECTIONS; i < std::min(n, (part + 1) * SECTIONS); i++) {
            const Section section(is, sdf[i], cos[i], lengths[i], s);
            const float over = 1.f / (section.entry + is.alpha_eps);
            const float d_entry = d_alpha[i] * section.exit * over * over * section.entry * (1.f - section.entry);
            const float d_exit = -d_alpha[i] * over * section.exit * (1.f - section.exit);
            const float falls = 0.5f * (1.f - is.ratio) * (cos[i] < 1.f) + is.ratio * (cos[i] < 0.f);
            d_sdf[i] = (d_entry + d_exit) * s;
            d_cos[i] = (d_exit - d_entry) * s * 0.5f * lengths[i] * falls;
            sum += d_entry * (sdf[i] - section.half) + d_exit * (sdf[i] + section.half);
        }
        parts[part] = sum;
    }
    double sum = 0.0;
    for (double part : parts) sum += part;
    d_inv_s[0] = (float)sum;
}

}  // namespace neus
