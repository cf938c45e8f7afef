// From the fields at the middles of sections to the colours of rays, and back. The reference is ops/shading.py. What
// belongs to a section is done by a thread for each, what runs along a ray by one for each ray.
#pragma once
#include "reduce.h"
#include "section.h"

namespace neus {

__device__ inline float along(const float *view, const float *gradient) {
    return view[0] * gradient[0] + view[1] * gradient[1] + view[2] * gradient[2];
}

__device__ inline float clipped(float alpha) { return fminf(fmaxf(alpha, 0.f), 1.f); }

// alpha [n], and Phi_s at the starts unless `cdf` is null.
inline void section_opacities(const Shading &layout, long n, const float *lengths, const float *views, const float *sdf,
                              const float *gradient, const float *inv_s, float *alpha, float *cdf) {
    const Shading is = layout;
    each(n, [=] __device__(long i) {
        const Section section(is, sdf[i], along(views + 3 * i, gradient + 3 * i), lengths[i], inv_s[0]);
        alpha[i] = clipped(section.alpha(is.alpha_eps));
        if (cdf) cdf[i] = section.entry;
    });
}

// Of rays: rgb [rays, 3], opacity [rays], weights and cdf [rays, N].
inline void shade(const Shading &layout, long rays, const float *lengths, const float *views, const float *sdf,
                  const float *gradient, const float *colors, const float *inv_s, float *rgb, float *opacity,
                  float *weights, float *cdf) {
    const long n = layout.sections;
    const float eps = layout.transmittance_eps;
    section_opacities(layout, rays * n, lengths, views, sdf, gradient, inv_s, weights, cdf);
    each(rays, [=] __device__(long r) {
        float light = 1.f, total = 0.f;
        for (long i = r * n; i < (r + 1) * n; i++) {
            const float alpha = weights[i];
            weights[i] = alpha * light;
            total += weights[i];
            light *= 1.f - alpha + eps;
        }
        opacity[r] = total;
    });
    each_place(rays, 3, [=] __device__(int r, int c, long at) {
        float sum = 0.f;
        for (long i = r * n; i < (r + 1) * n; i++) sum += weights[i] * colors[3 * i + c];
        rgb[at] = sum;
    });
}

// Cotangents of distance [n], gradient and colours [n, 3] and sharpness [1]; of those of the outputs only what `given`
// names is read.
inline void shade_backward(const Shading &layout, long rays, const float *lengths, const float *views, const float *sdf,
                           const float *gradient, const float *colors, const float *inv_s, const float *weights,
                           const float *d_rgb, const float *d_opacity, const float *d_weights, const float *d_cdf,
                           float *d_sdf, float *d_gradient, float *d_colors, float *d_inv_s) {
    const Shading is = layout;
    const int width = is.sections, given = is.given;
    const long n = width, count = rays * n;
    const float eps = is.transmittance_eps;
    Scratch<float> alpha_scratch(count), pull_scratch(count), sharp_scratch(count);
    float *alphas = alpha_scratch.values, *pulls = pull_scratch.values, *sharp = sharp_scratch.values;
    section_opacities(is, count, lengths, views, sdf, gradient, inv_s, alphas, nullptr);
    each_place(rays, width, [=] __device__(int r, int, long i) {  // what a weight is worth
        float worth = (given & 2 ? d_opacity[r] : 0.f) + (given & 4 ? d_weights[i] : 0.f);
        for (int c = 0; c < 3; c++) {
            const float d = given & 1 ? d_rgb[3 * r + c] : 0.f;
            worth += d * colors[3 * i + c];
            d_colors[3 * i + c] = d * weights[i];
        }
        pulls[i] = worth;
    });
    each(rays, [=] __device__(long r) {  // what an opacity is worth: no division, so that a section may be wholly opaque
        float light = 1.f, behind = 0.f;
        for (long i = r * n; i < (r + 1) * n; i++) {
            sharp[i] = light;
            light *= 1.f - alphas[i] + eps;
        }
        for (long i = (r + 1) * n - 1; i >= r * n; i--) {
            const float worth = pulls[i];
            pulls[i] = sharp[i] * (worth - behind);
            behind = worth * alphas[i] + (1.f - alphas[i] + eps) * behind;
        }
    });
    each(count, [=] __device__(long i) {
        const float s = inv_s[0], *view = views + 3 * i, cos = along(view, gradient + 3 * i);
        const Section section(is, sdf[i], cos, lengths[i], s);
        const float alpha = section.alpha(is.alpha_eps), d_alpha = alpha < 0.f || alpha > 1.f ? 0.f : pulls[i];
        const SectionPull pull(is, section, sdf[i], cos, lengths[i], s, d_alpha, given & 8 ? d_cdf[i] : 0.f);
        d_sdf[i] = pull.d_sdf;
        for (int j = 0; j < 3; j++) d_gradient[3 * i + j] = pull.d_cos * view[j];
        sharp[i] = pull.d_inv_s;
    });
    clear(d_inv_s, 1);
    add_columns(count, 1, 1.f, sharp, 1, d_inv_s);
}

}  // namespace neus
