// Colours of splats seen from a point: spherical harmonics of the direction. The reference is ops/splat_shade.py.
#pragma once
#include "splat_math.h"

namespace neus {

constexpr int MOST_HARMONICS = 16;

// The functions of degrees up to `degree` at a unit direction, and their derivatives unless null, in the published
// order and with the published signs (https://github.com/graphdeco-inria/gaussian-splatting, utils/sh_utils.py).
__device__ inline void harmonics(int degree, const float *d, float *y, float (*slope)[3]) {
    const float x = d[0], v = d[1], z = d[2];
    const float xx = x * x, yy = v * v, zz = z * z;
    y[0] = 0.28209479177387814f;
    if (slope) set_zero(slope[0], 3 * MOST_HARMONICS);
    if (degree < 1) return;
    const float one = 0.4886025119029199f;
    y[1] = -one * v, y[2] = one * z, y[3] = -one * x;
    if (slope) slope[1][1] = -one, slope[2][2] = one, slope[3][0] = -one;
    if (degree < 2) return;
    const float a = 1.0925484305920792f, b = 0.31539156525252005f, c = 0.5462742152960396f;
    y[4] = a * x * v, y[5] = -a * v * z, y[6] = b * (2 * zz - xx - yy), y[7] = -a * x * z, y[8] = c * (xx - yy);
    if (slope) {
        slope[4][0] = a * v, slope[4][1] = a * x;
        slope[5][1] = -a * z, slope[5][2] = -a * v;
        slope[6][0] = -2 * b * x, slope[6][1] = -2 * b * v, slope[6][2] = 4 * b * z;
        slope[7][0] = -a * z, slope[7][2] = -a * x;
        slope[8][0] = 2 * c * x, slope[8][1] = -2 * c * v;
    }
    if (degree < 3) return;
    const float e = -0.5900435899266435f, f = 2.890611442640554f, g = -0.4570457994644658f, h = 0.3731763325901154f;
    const float k = 1.445305721320277f;
    y[9] = e * v * (3 * xx - yy), y[10] = f * x * v * z, y[11] = g * v * (4 * zz - xx - yy);
    y[12] = h * z * (2 * zz - 3 * xx - 3 * yy), y[13] = g * x * (4 * zz - xx - yy), y[14] = k * z * (xx - yy);
    y[15] = e * x * (xx - 3 * yy);
    if (!slope) return;
    slope[9][0] = 6 * e * x * v, slope[9][1] = 3 * e * (xx - yy);
    slope[10][0] = f * v * z, slope[10][1] = f * x * z, slope[10][2] = f * x * v;
    slope[11][0] = -2 * g * x * v, slope[11][1] = g * (4 * zz - xx - 3 * yy), slope[11][2] = 8 * g * v * z;
    slope[12][0] = -6 * h * x * z, slope[12][1] = -6 * h * v * z, slope[12][2] = 3 * h * (2 * zz - xx - yy);
    slope[13][0] = g * (4 * zz - 3 * xx - yy), slope[13][1] = -2 * g * x * v, slope[13][2] = 8 * g * x * z;
    slope[14][0] = 2 * k * x * z, slope[14][1] = -2 * k * v * z, slope[14][2] = k * (xx - yy);
    slope[15][0] = 3 * e * (xx - yy), slope[15][1] = -6 * e * x * v;
}

// The unit direction from the camera's centre to a point; returns 1 over their distance.
__device__ inline float direction(const float *mean, const float *centre, float *d) {
    float square = 0.f;
    for (int i = 0; i < 3; i++) d[i] = mean[i] - centre[i], square += d[i] * d[i];
    const float scale = 1.f / sqrtf(fmaxf(square, SHORTEST));
    for (int i = 0; i < 3; i++) d[i] *= scale;
    return scale;
}

// The sum of harmonics by coefficients, [3], shifted to the middle of the range.
__device__ inline void raw_color(int used, const float *y, const float *dc, const float *rest, float *rgb) {
    for (int c = 0; c < 3; c++) rgb[c] = y[0] * dc[c] + 0.5f;
    for (int k = 1; k < used; k++)
        for (int c = 0; c < 3; c++) rgb[c] += y[k] * rest[3 * (k - 1) + c];
}

// The colour of splat n.
__device__ __forceinline__ void shade(const Shading &is, long n, const float *centre, const float *means, const float *dc,
                                      const float *rest, float *rgb) {
    const int used = (is.degree + 1) * (is.degree + 1);
    float d[3], y[MOST_HARMONICS];
    direction(means + 3 * n, centre, d);
    harmonics(is.degree, d, y, nullptr);
    raw_color(used, y, dc + 3 * n, rest + 3 * is.rest * n, rgb + 3 * n);
    for (int c = 0; c < 3; c++) rgb[3 * n + c] = fmaxf(rgb[3 * n + c], 0.f);
}

// The gradients of splat n from the cotangent of its colour.
__device__ __forceinline__ void shade_backward(const Shading &is, long n, const float *centre, const float *means,
                                               const float *rest, const float *rgb, const float *d_rgb, float *d_means,
                                               float *d_dc, float *d_rest) {
    const int used = (is.degree + 1) * (is.degree + 1);
    float *to_rest = d_rest + 3 * is.rest * n, *to_mean = d_means + 3 * n;
    const float *from_rest = rest + 3 * is.rest * n;
    float g[3];
    for (int c = 0; c < 3; c++) g[c] = rgb[3 * n + c] > 0.f ? d_rgb[3 * n + c] : 0.f;
    if (g[0] == 0.f && g[1] == 0.f && g[2] == 0.f) {
        set_zero(to_rest, 3 * is.rest), set_zero(to_mean, 3), set_zero(d_dc + 3 * n, 3);
        return;
    }
    float d[3], y[MOST_HARMONICS], slope[MOST_HARMONICS][3], turn[3] = {};
    const float scale = direction(means + 3 * n, centre, d);
    harmonics(is.degree, d, y, slope);
    for (int c = 0; c < 3; c++) d_dc[3 * n + c] = y[0] * g[c];
    for (int k = 1; k < used; k++) {
        const float *by = from_rest + 3 * (k - 1);
        const float seen = by[0] * g[0] + by[1] * g[1] + by[2] * g[2];
        for (int c = 0; c < 3; c++) to_rest[3 * (k - 1) + c] = y[k] * g[c], turn[c] += slope[k][c] * seen;
    }
    set_zero(to_rest + 3 * (used - 1), 3 * (is.rest - used + 1));
    const float along = turn[0] * d[0] + turn[1] * d[1] + turn[2] * d[2];
    for (int c = 0; c < 3; c++) to_mean[c] = (turn[c] - along * d[c]) * scale;
}

}  // namespace neus
