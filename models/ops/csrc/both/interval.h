// Opacity of an interval along a ray from the SDF in its middle (NeuS, arXiv 2106.10689, eq. 13), and its gradient. The
// specification is `alpha_from_sdf` of ops/volrend.py.
#pragma once
#include "device.h"
#include "sigmoid.h"

namespace neus {

__device__ inline float larger(float a, float b) { return a < b ? b : a; }

struct Interval {
    float half;         // of the change of the SDF along it
    float entry, exit;  // Phi_s at its ends; exit <= entry, since the slope is never positive

    __device__ inline Interval(const SectionAlpha &is, float sdf, float cos, float length, float inv_s) {
        const float soft = larger(0.5f - 0.5f * cos, 0.f), hard = larger(-cos, 0.f);
        const float slope = -(soft * (1.f - is.ratio) + hard * is.ratio);
        half = larger(slope * length * 0.5f, -is.largest_change);
        entry = sigmoid((sdf - half) * inv_s);
        exit = sigmoid((sdf + half) * inv_s);
    }

    __device__ inline float alpha(float eps) const { return (entry - exit + eps) / (entry + eps); }
};

// The gradient of alpha, times a cotangent.
struct IntervalGradient {
    float d_sdf, d_cos, d_inv_s;

    __device__ inline IntervalGradient(const SectionAlpha &is, float sdf, float cos, float length, float inv_s,
                                       float d_alpha) {
        const Interval at(is, sdf, cos, length, inv_s);
        const float over = 1.f / (at.entry + is.alpha_eps);
        const float d_entry = d_alpha * at.exit * over * over * at.entry * (1.f - at.entry);
        const float d_exit = -d_alpha * over * at.exit * (1.f - at.exit);
        const float falls = 0.5f * (1.f - is.ratio) * (cos < 1.f) + is.ratio * (cos < 0.f);
        d_sdf = (d_entry + d_exit) * inv_s;
        d_cos = (d_exit - d_entry) * inv_s * 0.5f * length * falls;
        d_inv_s = d_entry * (sdf - at.half) + d_exit * (sdf + at.half);
    }
};

}  // namespace neus
