// Small vectors and rotations for splats, one splat at a time.
#pragma once
#include "device.h"

namespace neus {

constexpr int SPLATS_AT_ONCE = 256;  // of a thread of a CPU

// The parameters of the Gaussians, and their gradients.
struct SplatsIn {
    const float *means, *quats, *log_sizes;
};
struct SplatsBack {
    float *means, *quats, *log_sizes;
};

// The camera as 17 numbers: rotation and translation from the world, then focal lengths, skew and centre.
struct Pinhole {
    const float *r, *t;
    float fx, skew, cx, fy, cy;
    __device__ explicit Pinhole(const float *c)
        : r(c), t(c + 9), fx(c[12]), skew(c[13]), cx(c[14]), fy(c[15]), cy(c[16]) {}
    __device__ void place(const float *mean, float *p) const {
        for (int i = 0; i < 3; i++) p[i] = r[3 * i] * mean[0] + r[3 * i + 1] * mean[1] + r[3 * i + 2] * mean[2] + t[i];
    }
    // to = R^T from: maps the cotangent of a camera-frame point to that of the mean.
    __device__ void turn_back(const float *from, float *to) const {
        for (int i = 0; i < 3; i++) to[i] = r[i] * from[0] + r[3 + i] * from[1] + r[6 + i] * from[2];
    }
    // The camera centre in the world.
    __device__ void centre(float *o) const {
        for (int i = 0; i < 3; i++) o[i] = -(r[i] * t[0] + r[3 + i] * t[1] + r[6 + i] * t[2]);
    }
};

// c = a b, 3 x 3 by rows.
__device__ inline void matrix_product(const float *a, const float *b, float *c) {
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) c[3 * i + j] = a[3 * i] * b[j] + a[3 * i + 1] * b[3 + j] + a[3 * i + 2] * b[6 + j];
}

// c = a^T b.
__device__ inline void product_transposed(const float *a, const float *b, float *c) {
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) c[3 * i + j] = a[i] * b[j] + a[3 + i] * b[3 + j] + a[6 + i] * b[6 + j];
}

// The rotation of a quaternion (w, x, y, z) of any length, by rows; returns 1 over its length.
__device__ inline float rotation(const float *q, float *m) {
    const float scale = 1.f / sqrtf(fmaxf(q[0] * q[0] + q[1] * q[1] + q[2] * q[2] + q[3] * q[3], SHORTEST));
    const float w = q[0] * scale, x = q[1] * scale, y = q[2] * scale, z = q[3] * scale;
    m[0] = 1 - 2 * (y * y + z * z), m[1] = 2 * (x * y - w * z), m[2] = 2 * (x * z + w * y);
    m[3] = 2 * (x * y + w * z), m[4] = 1 - 2 * (x * x + z * z), m[5] = 2 * (y * z - w * x);
    m[6] = 2 * (x * z - w * y), m[7] = 2 * (y * z + w * x), m[8] = 1 - 2 * (x * x + y * y);
    return scale;
}

// The cotangent of a quaternion from that of its rotation.
__device__ inline void rotation_backward(const float *q, float scale, const float *g, float *d) {
    const float w = q[0] * scale, x = q[1] * scale, y = q[2] * scale, z = q[3] * scale;
    const float unit[4] = {w, x, y, z};
    const float u[4] = {
        2 * (x * (g[7] - g[5]) + y * (g[2] - g[6]) + z * (g[3] - g[1])),
        2 * (-2 * x * (g[4] + g[8]) + y * (g[1] + g[3]) + z * (g[2] + g[6]) + w * (g[7] - g[5])),
        2 * (x * (g[1] + g[3]) - 2 * y * (g[0] + g[8]) + z * (g[5] + g[7]) + w * (g[2] - g[6])),
        2 * (x * (g[2] + g[6]) + y * (g[5] + g[7]) - 2 * z * (g[0] + g[4]) + w * (g[3] - g[1])),
    };
    const float along = u[0] * w + u[1] * x + u[2] * y + u[3] * z;
    for (int k = 0; k < 4; k++) d[k] = (u[k] - along * unit[k]) * scale;
}

// The radius of the published code along an axis, in pixels; 0 outside the image.
__device__ inline int reach(float extent, float at, int size) {
    const float radius = ceilf(fminf(REACH * extent, FARTHEST_REACH));
    return at + radius > 0 && at - radius < size ? (int)radius : 0;
}

__device__ inline void set_zero(float *values, int count) {
    for (int i = 0; i < count; i++) values[i] = 0.f;
}

}  // namespace neus
