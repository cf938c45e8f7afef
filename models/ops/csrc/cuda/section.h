// A NeuS section: Phi_s at its ends. The reference is ops/volrend.py. A layout has `ratio` and `largest_change`.
#pragma once
#include "sigmoid.h"

namespace neus {

struct Section {
    float half;         // of the change of the sdf along it
    float entry, exit;  // Phi_s at its ends; exit <= entry, since the slope is never positive

    template <typename Layout>
    __device__ Section(const Layout &is, float sdf, float cos, float length, float inv_s) {
        const float soft = fmaxf(0.5f - 0.5f * cos, 0.f), hard = fmaxf(-cos, 0.f);
        const float slope = -(soft * (1.f - is.ratio) + hard * is.ratio);
        half = fmaxf(slope * length * 0.5f, -is.largest_change);
        entry = sigmoid((sdf - half) * inv_s);
        exit = sigmoid((sdf + half) * inv_s);
    }

    __device__ float alpha(float eps) const { return (entry - exit + eps) / (entry + eps); }
};

// What a cotangent of a section's opacity becomes on its way back.
struct SectionPull {
    float d_sdf, d_cos, d_inv_s;

    template <typename Layout>
    __device__ SectionPull(const Layout &is, const Section &section, float sdf, float cos, float length, float inv_s,
                           float d_alpha, float d_cdf) {
        const float over = 1.f / (section.entry + is.alpha_eps);
        const float falls = 0.5f * (1.f - is.ratio) * (cos < 1.f) + is.ratio * (cos < 0.f);
        const float d_entry = (d_alpha * section.exit * over * over + d_cdf) * section.entry * (1.f - section.entry);
        const float d_exit = -d_alpha * over * section.exit * (1.f - section.exit);
        d_sdf = (d_entry + d_exit) * inv_s;
        d_cos = (d_exit - d_entry) * inv_s * 0.5f * length * falls;
        d_inv_s = d_entry * (sdf - section.half) + d_exit * (sdf + section.half);
    }
};

}  // namespace neus
