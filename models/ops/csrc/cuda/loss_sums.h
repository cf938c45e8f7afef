// The sums that NeuS's loss is made of, and the way back. The reference is ops/loss_sums.py.
#pragma once
#include "reduce.h"

namespace neus {

// A length below it counts as zero, and has no gradient; that of models/ops/elementwise.py. In double no square of a
// float32 is infinite or lost.
constexpr double SMALLEST_LENGTH = 1e-15;

__device__ inline double length_of(const float *vector) {
    double square = 0;
    for (int j = 0; j < 3; j++) square += (double)vector[j] * vector[j];
    const double length = sqrt(square);
    return length < SMALLEST_LENGTH ? SMALLEST_LENGTH : length;
}

__device__ inline float probability_of(float opacity, float margin) {
    return fminf(fmaxf(opacity, margin), 1.f - margin);
}

// Of rays: |rgb - target| within the mask, the cross-entropy of the opacities, and the mask; of points: (|gradient| - 1)^2
// near the sphere, and how many are.
inline void loss_sums(const LossSums &layout, long rays, const float *rgb, const float *opacity, const float *gradient,
                      const float *target, const float *mask, const float *near, float *color, float *mask_loss,
                      float *eikonal, float *in_mask, float *near_count) {
    const float margin = layout.margin;
    const long points = layout.points;
    Scratch<float> ray_scratch(rays * 2), point_scratch(points);
    float *of_rays = ray_scratch.values, *of_points = point_scratch.values;
    each(rays, [=] __device__(long r) {
        float apart = 0.f;
        for (int c = 0; c < 3; c++) apart += fabsf(rgb[3 * r + c] - target[3 * r + c]);
        const float p = probability_of(opacity[r], margin);
        of_rays[2 * r] = apart * mask[r];
        of_rays[2 * r + 1] = -(mask[r] * logf(p) + (1.f - mask[r]) * logf(1.f - p));
    });
    each(points, [=] __device__(long i) {
        const float error = (float)length_of(gradient + 3 * i) - 1.f;
        of_points[i] = near[i] * error * error;
    });
    for (float *sum : {color, mask_loss, eikonal, in_mask, near_count}) clear(sum, 1);
    add_columns(rays, 1, 1.f, of_rays, 2, color);
    add_columns(rays, 1, 1.f, of_rays + 1, 2, mask_loss);
    add_columns(points, 1, 1.f, of_points, 1, eikonal);
    add_columns(rays, 1, 1.f, mask, 1, in_mask);
    add_columns(points, 1, 1.f, near, 1, near_count);
}

// Cotangents of rgb [rays, 3], opacity [rays] and gradient [points, 3]; of those of the sums only what `given` names is
// read.
inline void loss_sums_backward(const LossSums &layout, long rays, const float *rgb, const float *opacity,
                               const float *gradient, const float *target, const float *mask, const float *near,
                               const float *d_color, const float *d_mask, const float *d_eikonal, float *d_rgb,
                               float *d_opacity, float *d_gradient) {
    const float margin = layout.margin;
    const int given = layout.given;
    each(rays, [=] __device__(long r) {
        const float color = given & 1 ? d_color[0] * mask[r] : 0.f, o = opacity[r];
        for (int c = 0; c < 3; c++) {
            const float apart = rgb[3 * r + c] - target[3 * r + c];
            d_rgb[3 * r + c] = color * (float)((apart > 0.f) - (apart < 0.f));
        }
        const bool counts = (given & 2) && o >= margin && o <= 1.f - margin;
        d_opacity[r] = counts ? d_mask[0] * ((1.f - mask[r]) / (1.f - o) - mask[r] / o) : 0.f;
    });
    each(layout.points, [=] __device__(long i) {
        const double length = length_of(gradient + 3 * i);
        const float pull = given & 4 ? d_eikonal[0] * near[i] * 2.f * ((float)length - 1.f) : 0.f;
        for (int j = 0; j < 3; j++)
            d_gradient[3 * i + j] = length > SMALLEST_LENGTH ? pull * (float)(gradient[3 * i + j] / length) : 0.f;
    });
}

}  // namespace neus
