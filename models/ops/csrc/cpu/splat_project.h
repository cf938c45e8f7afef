// Splats as a camera sees them, and back. The reference is ops/splat_project.py; N splats, each one thread's.
#pragma once
#include "splat_math.h"

namespace neus {

// What of an ellipsoid forward and backward pass share.
struct Ellipsoid {
    float p[3], turn[9], size[3], m[9], j[6], unit;  // m: axes in the camera's frame by columns; j: the projection's slope
    float slope_x, slope_y, covariance[3], determinant;
    bool is_free_x, is_free_y;

    Ellipsoid(const Pinhole &camera, const Projection &is, const float *mean, const float *quat, const float *log_size) {
        camera.place(mean, p);
        unit = rotation(quat, turn);
        float axes[9];
        for (int k = 0; k < 3; k++) size[k] = std::exp(log_size[k]);
        for (int i = 0; i < 9; i++) axes[i] = turn[i] * size[i % 3];
        product(camera.r, axes, m);
        const float z = std::max(p[2], is.near), x = p[0] / z, y = p[1] / z;
        const float margin_x = MARGIN * 0.5f * is.width / camera.fx, margin_y = MARGIN * 0.5f * is.height / camera.fy;
        slope_x = std::min(std::max(x, -camera.cx / camera.fx - margin_x), (is.width - camera.cx) / camera.fx + margin_x);
        slope_y = std::min(std::max(y, -camera.cy / camera.fy - margin_y), (is.height - camera.cy) / camera.fy + margin_y);
        is_free_x = slope_x == x, is_free_y = slope_y == y;
        j[0] = camera.fx / z, j[1] = camera.skew / z, j[2] = -(camera.fx * slope_x + camera.skew * slope_y) / z;
        j[3] = 0.f, j[4] = camera.fy / z, j[5] = -camera.fy * slope_y / z;
        float f[6];
        flat(f);
        covariance[0] = f[0] * f[0] + f[1] * f[1] + f[2] * f[2] + BLUR;
        covariance[1] = f[0] * f[3] + f[1] * f[4] + f[2] * f[5];
        covariance[2] = f[3] * f[3] + f[4] * f[4] + f[5] * f[5] + BLUR;
        // a sum of squares (Cauchy and Binet): a needle's would be lost in the difference of two products
        const float minors[3] = {f[1] * f[5] - f[2] * f[4], f[2] * f[3] - f[0] * f[5], f[0] * f[4] - f[1] * f[3]};
        determinant = minors[0] * minors[0] + minors[1] * minors[1] + minors[2] * minors[2] +
                      BLUR * (covariance[0] + covariance[2] - BLUR);
    }
    // The axes in the picture, 2 x 3.
    void flat(float *f) const {
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < 3; k++) f[3 * i + k] = j[3 * i] * m[k] + j[3 * i + 1] * m[3 + k] + j[3 * i + 2] * m[6 + k];
    }
};

inline void project_ellipsoids(const Projection &is, long count, const float *means, const float *quats,
                               const float *log_sizes, const float *camera_numbers, float *means2d, float *depths,
                               float *conics, int *radii) {
    const Pinhole camera(camera_numbers);
#pragma omp parallel for schedule(static)
    for (long n = 0; n < count; n++) {
        const Ellipsoid e(camera, is, means + 3 * n, quats + 4 * n, log_sizes + 3 * n);
        const float z = std::max(e.p[2], is.near);
        const float x = (camera.fx * e.p[0] + camera.skew * e.p[1]) / z + camera.cx, y = camera.fy * e.p[1] / z + camera.cy;
        const float scale = 1.f / e.determinant;
        means2d[2 * n] = x, means2d[2 * n + 1] = y;
        depths[n] = e.p[2];
        conics[3 * n] = e.covariance[2] * scale, conics[3 * n + 1] = -e.covariance[1] * scale;
        conics[3 * n + 2] = e.covariance[0] * scale;
        const int wide = reach(std::sqrt(e.covariance[0]), x, is.width), high = reach(std::sqrt(e.covariance[2]), y, is.height);
        const bool is_seen = e.p[2] > is.near && wide > 0 && high > 0;
        radii[2 * n] = is_seen ? wide : 0, radii[2 * n + 1] = is_seen ? high : 0;
    }
}

inline void project_ellipsoids_backward(const Projection &is, long count, const float *means, const float *quats,
                                        const float *log_sizes, const float *camera_numbers, const int *radii,
                                        const float *d_means2d, const float *d_depths, const float *d_conics,
                                        float *d_means, float *d_quats, float *d_log_sizes) {
    const Pinhole camera(camera_numbers);
#pragma omp parallel for schedule(static)
    for (long n = 0; n < count; n++) {
        float *d_mean = d_means + 3 * n, *d_quat = d_quats + 4 * n, *d_log_size = d_log_sizes + 3 * n;
        if (radii[2 * n] == 0) {
            std::fill(d_mean, d_mean + 3, 0.f), std::fill(d_quat, d_quat + 4, 0.f), std::fill(d_log_size, d_log_size + 3, 0.f);
            continue;
        }
        const Ellipsoid e(camera, is, means + 3 * n, quats + 4 * n, log_sizes + 3 * n);
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
        // j is its numbers over z, the third column times a slope: x / z, or its limit
        const float d_slope_x = -dj[2] * camera.fx * inverse;
        const float d_slope_y = -(dj[2] * camera.skew + dj[5] * camera.fy) * inverse;
        float g[3] = {gx * camera.fx * inverse, (gx * camera.skew + gy * camera.fy) * inverse, d_depths[n]};
        g[2] -= (g[0] * e.p[0] + g[1] * e.p[1]) * inverse;
        for (int i = 0; i < 6; i++) g[2] -= dj[i] * e.j[i] * inverse;
        if (e.is_free_x) g[0] += d_slope_x * inverse, g[2] -= d_slope_x * e.slope_x * inverse;
        if (e.is_free_y) g[1] += d_slope_y * inverse, g[2] -= d_slope_y * e.slope_y * inverse;
        for (int i = 0; i < 3; i++) d_mean[i] = camera.r[i] * g[0] + camera.r[3 + i] * g[1] + camera.r[6 + i] * g[2];
        float axes[9];
        product_transposed(camera.r, dm, axes);
        for (int k = 0; k < 3; k++)
            d_log_size[k] = e.size[k] * (axes[k] * e.turn[k] + axes[3 + k] * e.turn[3 + k] + axes[6 + k] * e.turn[6 + k]);
        for (int i = 0; i < 9; i++) axes[i] *= e.size[i % 3];
        rotation_backward(quats + 4 * n, e.unit, axes, d_quat);
    }
}

// What of a surfel forward and backward pass share.
struct Disc {
    float p[3], turn[9], seen[9], size[2], to_picture[9], unit, side, divisor, x, y;

    Disc(const Pinhole &camera, const float *mean, const float *quat, const float *log_size) {
        camera.place(mean, p);
        unit = rotation(quat, turn);
        size[0] = std::exp(log_size[0]), size[1] = std::exp(log_size[1]);
        product(camera.r, turn, seen);
        side = seen[2] * p[0] + seen[5] * p[1] + seen[8] * p[2] > 0 ? -1.f : 1.f;
        for (int k = 0; k < 3; k++) {
            const float b[3] = {k < 2 ? seen[k] * size[k] : p[0], k < 2 ? seen[3 + k] * size[k] : p[1],
                                k < 2 ? seen[6 + k] * size[k] : p[2]};
            to_picture[k] = camera.fx * b[0] + camera.skew * b[1] + camera.cx * b[2];
            to_picture[3 + k] = camera.fy * b[1] + camera.cy * b[2];
            to_picture[6 + k] = b[2];
        }
        const float *t = to_picture;
        divisor = t[6] * t[6] + t[7] * t[7] - t[8] * t[8];
        if (divisor == 0.f) divisor = -SHORTEST;
        x = (t[0] * t[6] + t[1] * t[7] - t[2] * t[8]) / divisor;
        y = (t[3] * t[6] + t[4] * t[7] - t[5] * t[8]) / divisor;
    }
    // Half the side of the bounding box of one standard deviation along a row of to_picture whose middle is at `at`.
    float extent(const float *row, float at) const {
        const float square = (row[0] * row[0] + row[1] * row[1] - row[2] * row[2]) / divisor;
        return std::sqrt(std::max(at * at - square, LEAST_EXTENT));
    }
};

inline void project_surfels(const Projection &is, long count, const float *means, const float *quats,
                            const float *log_sizes, const float *camera_numbers, float *means2d, float *depths,
                            float *to_picture, float *normals, int *radii) {
    const Pinhole camera(camera_numbers);
#pragma omp parallel for schedule(static)
    for (long n = 0; n < count; n++) {
        const Disc d(camera, means + 3 * n, quats + 4 * n, log_sizes + 3 * n);
        means2d[2 * n] = d.x, means2d[2 * n + 1] = d.y;
        depths[n] = d.p[2];
        std::copy(d.to_picture, d.to_picture + 9, to_picture + 9 * n);
        for (int i = 0; i < 3; i++) normals[3 * n + i] = d.side * d.seen[3 * i + 2];
        const int wide = reach(d.extent(d.to_picture, d.x), d.x, is.width);
        const int high = reach(d.extent(d.to_picture + 3, d.y), d.y, is.height);
        const bool is_seen = d.p[2] > is.near && wide > 0 && high > 0;
        radii[2 * n] = is_seen ? wide : 0, radii[2 * n + 1] = is_seen ? high : 0;
    }
}

inline void project_surfels_backward(const Projection &, long count, const float *means, const float *quats,
                                     const float *log_sizes, const float *camera_numbers, const int *radii,
                                     const float *d_means2d, const float *d_depths, const float *d_to_picture,
                                     const float *d_normals, float *d_means, float *d_quats, float *d_log_sizes) {
    const Pinhole camera(camera_numbers);
    const float sign[3] = {1, 1, -1};
#pragma omp parallel for schedule(static)
    for (long n = 0; n < count; n++) {
        float *d_mean = d_means + 3 * n, *d_quat = d_quats + 4 * n, *d_log_size = d_log_sizes + 3 * n;
        d_log_size[2] = 0.f;
        if (radii[2 * n] == 0) {
            std::fill(d_mean, d_mean + 3, 0.f), std::fill(d_quat, d_quat + 4, 0.f), std::fill(d_log_size, d_log_size + 2, 0.f);
            continue;
        }
        const Disc d(camera, means + 3 * n, quats + 4 * n, log_sizes + 3 * n);
        const float *t = d.to_picture, gx = d_means2d[2 * n] / d.divisor, gy = d_means2d[2 * n + 1] / d.divisor;
        float g[9], dt[9], dr[9], dq[9], dp[3];
        std::copy(d_to_picture + 9 * n, d_to_picture + 9 * n + 9, dt);
        for (int k = 0; k < 3; k++) {
            dt[k] += sign[k] * t[6 + k] * gx;
            dt[3 + k] += sign[k] * t[6 + k] * gy;
            dt[6 + k] += sign[k] * (t[k] * gx + t[3 + k] * gy - 2 * t[6 + k] * (d.x * gx + d.y * gy));
        }
        for (int k = 0; k < 3; k++) {  // K^T
            g[k] = camera.fx * dt[k];
            g[3 + k] = camera.skew * dt[k] + camera.fy * dt[3 + k];
            g[6 + k] = camera.cx * dt[k] + camera.cy * dt[3 + k] + dt[6 + k];
        }
        for (int i = 0; i < 3; i++) {
            dr[3 * i] = g[3 * i] * d.size[0], dr[3 * i + 1] = g[3 * i + 1] * d.size[1];
            dr[3 * i + 2] = d.side * d_normals[3 * n + i];
            dp[i] = g[3 * i + 2];
        }
        dp[2] += d_depths[n];
        for (int k = 0; k < 2; k++) d_log_size[k] = d.seen[k] * dr[k] + d.seen[3 + k] * dr[3 + k] + d.seen[6 + k] * dr[6 + k];
        for (int i = 0; i < 3; i++) d_mean[i] = camera.r[i] * dp[0] + camera.r[3 + i] * dp[1] + camera.r[6 + i] * dp[2];
        product_transposed(camera.r, dr, dq);
        rotation_backward(quats + 4 * n, d.unit, dq, d_quat);
    }
}

}  // namespace neus
