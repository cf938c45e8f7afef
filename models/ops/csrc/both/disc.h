// Projection of surfel n, and its gradients. The reference is ops/splat_project.py.
#pragma once
#include "splat_math.h"

namespace neus {

// Values of a surfel that the forward and backward passes share.
struct Disc {
    float p[3], turn[9], seen[9], size[2], to_picture[9], unit, side, divisor, x, y;

    __device__ Disc(const Pinhole &camera, const float *mean, const float *quat, const float *log_size) {
        camera.place(mean, p);
        unit = rotation(quat, turn);
        size[0] = expf(log_size[0]), size[1] = expf(log_size[1]);
        matrix_product(camera.r, turn, seen);
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
    // Half side of the bounding box of one standard deviation, along the axis of a row of to_picture; `at` is its
    // centre.
    __device__ float extent(const float *row, float at) const {
        const float square = (row[0] * row[0] + row[1] * row[1] - row[2] * row[2]) / divisor;
        return sqrtf(fmaxf(at * at - square, LEAST_EXTENT));
    }
};

__device__ __forceinline__ void project_surfel(const Projection &is, long n, const Pinhole &camera, const SplatsIn &in,
                                               float *means2d, float *depths, float *to_picture, float *normals,
                                               int *radii) {
    const Disc d(camera, in.means + 3 * n, in.quats + 4 * n, in.log_sizes + 3 * n);
    means2d[2 * n] = d.x, means2d[2 * n + 1] = d.y;
    depths[n] = d.p[2];
    memcpy(to_picture + 9 * n, d.to_picture, sizeof(d.to_picture));
    for (int i = 0; i < 3; i++) normals[3 * n + i] = d.side * d.seen[3 * i + 2];
    const int wide = reach(d.extent(d.to_picture, d.x), d.x, is.width);
    const int high = reach(d.extent(d.to_picture + 3, d.y), d.y, is.height);
    const bool is_seen = d.p[2] > is.near && wide > 0 && high > 0;
    radii[2 * n] = is_seen ? wide : 0, radii[2 * n + 1] = is_seen ? high : 0;
}

// `sign`: signs of the terms of u^2 + v^2 - 1, the disc's edge; not constants, since the compiler would reorder the
// sum.
__device__ __forceinline__ void project_surfel_backward(const float *sign, long n, const Pinhole &camera,
                                                        const SplatsIn &in, const int *radii, const float *d_means2d,
                                                        const float *d_depths, const float *d_to_picture,
                                                        const float *d_normals, const SplatsBack &to) {
    float *d_mean = to.means + 3 * n, *d_quat = to.quats + 4 * n, *d_log_size = to.log_sizes + 3 * n;
    d_log_size[2] = 0.f;
    if (radii[2 * n] == 0) {
        set_zero(d_mean, 3), set_zero(d_quat, 4), set_zero(d_log_size, 2);
        return;
    }
    const Disc d(camera, in.means + 3 * n, in.quats + 4 * n, in.log_sizes + 3 * n);
    const float *t = d.to_picture, gx = d_means2d[2 * n] / d.divisor, gy = d_means2d[2 * n + 1] / d.divisor;
    float g[9], dt[9], dr[9], dq[9], dp[3];
    for (int i = 0; i < 9; i++) dt[i] = d_to_picture[9 * n + i];
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
    camera.turn_back(dp, d_mean);
    product_transposed(camera.r, dr, dq);
    rotation_backward(in.quats + 4 * n, d.unit, dq, d_quat);
}

}  // namespace neus
