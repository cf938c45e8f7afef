// Projection of ellipsoid n, and its gradients. The reference is ops/splat_project.py.
#pragma once
#include "splat_math.h"

namespace neus {

// Values of an ellipsoid that the forward and backward passes share.
struct Ellipsoid {
    float p[3], turn[9], size[3], m[9], j[6], unit;  // m: axes in the camera frame by columns; j: projection Jacobian
    float slope_x, slope_y, covariance[3], determinant;
    bool is_free_x, is_free_y;

    __device__ Ellipsoid(const Pinhole &camera, const Projection &is, const float *mean, const float *quat,
                         const float *log_size) {
        camera.place(mean, p);
        unit = rotation(quat, turn);
        float axes[9];
        for (int k = 0; k < 3; k++) size[k] = expf(log_size[k]);
        for (int i = 0; i < 9; i++) axes[i] = turn[i] * size[i % 3];
        matrix_product(camera.r, axes, m);
        const float z = fmaxf(p[2], is.near), x = p[0] / z, y = p[1] / z;
        const float margin_x = MARGIN * 0.5f * is.width / camera.fx, margin_y = MARGIN * 0.5f * is.height / camera.fy;
        slope_x = fminf(fmaxf(x, -camera.cx / camera.fx - margin_x), (is.width - camera.cx) / camera.fx + margin_x);
        slope_y = fminf(fmaxf(y, -camera.cy / camera.fy - margin_y), (is.height - camera.cy) / camera.fy + margin_y);
        is_free_x = slope_x == x, is_free_y = slope_y == y;
        j[0] = camera.fx / z, j[1] = camera.skew / z, j[2] = -(camera.fx * slope_x + camera.skew * slope_y) / z;
        j[3] = 0.f, j[4] = camera.fy / z, j[5] = -camera.fy * slope_y / z;
        float f[6];
        flat(f);
        covariance[0] = f[0] * f[0] + f[1] * f[1] + f[2] * f[2] + BLUR;
        covariance[1] = f[0] * f[3] + f[1] * f[4] + f[2] * f[5];
        covariance[2] = f[3] * f[3] + f[4] * f[4] + f[5] * f[5] + BLUR;
        // A sum of squares (Cauchy-Binet), because a difference of two products cancels for a needle.
        const float minors[3] = {f[1] * f[5] - f[2] * f[4], f[2] * f[3] - f[0] * f[5], f[0] * f[4] - f[1] * f[3]};
        determinant = minors[0] * minors[0] + minors[1] * minors[1] + minors[2] * minors[2] +
                      BLUR * (covariance[0] + covariance[2] - BLUR);
    }
    // The axes in the image, 2 x 3.
    __device__ void flat(float *f) const {
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 3; k++) f[3 * i + k] = j[3 * i] * m[k] + j[3 * i + 1] * m[3 + k] + j[3 * i + 2] * m[6 + k];
    }
};

__device__ __forceinline__ void project_ellipsoid(const Projection &is, long n, const Pinhole &camera,
                                                  const SplatsIn &in, float *means2d, float *depths, float *conics,
                                                  int *radii) {
    const Ellipsoid e(camera, is, in.means + 3 * n, in.quats + 4 * n, in.log_sizes + 3 * n);
    const float z = fmaxf(e.p[2], is.near);
    const float x = (camera.fx * e.p[0] + camera.skew * e.p[1]) / z + camera.cx, y = camera.fy * e.p[1] / z + camera.cy;
    const float scale = 1.f / e.determinant;
    means2d[2 * n] = x, means2d[2 * n + 1] = y;
    depths[n] = e.p[2];
    conics[3 * n] = e.covariance[2] * scale, conics[3 * n + 1] = -e.covariance[1] * scale;
    conics[3 * n + 2] = e.covariance[0] * scale;
    const int wide = reach(sqrtf(e.covariance[0]), x, is.width), high = reach(sqrtf(e.covariance[2]), y, is.height);
    const bool is_seen = e.p[2] > is.near && wide > 0 && high > 0;
    radii[2 * n] = is_seen ? wide : 0, radii[2 * n + 1] = is_seen ? high : 0;
}

__device__ __forceinline__ void project_ellipsoid_backward(const Projection &is, long n, const Pinhole &camera,
                                                           const SplatsIn &in, const int *radii, const float *d_means2d,
                                                           const float *d_depths, const float *d_conics,
                                                           const SplatsBack &to) {
    float *d_mean = to.means + 3 * n, *d_quat = to.quats + 4 * n, *d_log_size = to.log_sizes + 3 * n;
    if (radii[2 * n] == 0) {
        set_zero(d_mean, 3), set_zero(d_quat, 4), set_zero(d_log_size, 3);
        return;
    }
    const Ellipsoid e(camera, is, in.means + 3 * n, in.quats + 4 * n, in.log_sizes + 3 * n);
    const float z = e.p[2], *c = e.covariance;
    const float scale = 1.f / e.determinant;
    const float a = c[2] * scale, b = -c[1] * scale, d = c[0] * scale;
    const float ga = d_conics[3 * n], gb = 0.5f * d_conics[3 * n + 1], gd = d_conics[3 * n + 2];
    // -Q G Q of the inverse Q of the covariance
    const float qa = a * ga + b * gb, qb = a * gb + b * gd, qc = b * ga + d * gb, qd = b * gb + d * gd;
    const float s[3] = {-(qa * a + qb * b), -(qa * b + qb * d), -(qc * b + qd * d)};
    float f[6], df[6], dj[6] = {}, dm[9];
    e.flat(f);
    for (int k = 0; k < 3; k++) {
        df[k] = 2 * (s[0] * f[k] + s[1] * f[3 + k]);
        df[3 + k] = 2 * (s[1] * f[k] + s[2] * f[3 + k]);
    }
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            dm[3 * i + k] = e.j[i] * df[k] + e.j[3 + i] * df[3 + k];
            dj[i] += df[k] * e.m[3 * i + k];
            dj[3 + i] += df[3 + k] * e.m[3 * i + k];
        }
    const float gx = d_means2d[2 * n], gy = d_means2d[2 * n + 1], inverse = 1.f / z;
    // j is proportional to 1 / z; its third column also to slope_x and slope_y: x / z and y / z, clamped.
    const float d_slope_x = -dj[2] * camera.fx * inverse;
    const float d_slope_y = -(dj[2] * camera.skew + dj[5] * camera.fy) * inverse;
    float g[3] = {gx * camera.fx * inverse, (gx * camera.skew + gy * camera.fy) * inverse, d_depths[n]};
    g[2] -= (g[0] * e.p[0] + g[1] * e.p[1]) * inverse;
    for (int i = 0; i < 6; i++) g[2] -= dj[i] * e.j[i] * inverse;
    if (e.is_free_x) g[0] += d_slope_x * inverse, g[2] -= d_slope_x * e.slope_x * inverse;
    if (e.is_free_y) g[1] += d_slope_y * inverse, g[2] -= d_slope_y * e.slope_y * inverse;
    camera.turn_back(g, d_mean);
    float axes[9];
    product_transposed(camera.r, dm, axes);
    for (int k = 0; k < 3; k++)
        d_log_size[k] = e.size[k] * (axes[k] * e.turn[k] + axes[3 + k] * e.turn[3 + k] + axes[6 + k] * e.turn[6 + k]);
    for (int i = 0; i < 9; i++) axes[i] *= e.size[i % 3];
    rotation_backward(in.quats + 4 * n, e.unit, axes, d_quat);
}

}  // namespace neus
