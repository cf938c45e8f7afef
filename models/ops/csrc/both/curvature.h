// Second differences of a signed distance along one tangent per ray. The reference is ops/hits.py.
#pragma once
#include "device.h"
#include "reduce.h"

namespace neus {

// points [2 rays, 3].
inline void tangent_points(const Tangent &layout, long rays, const int *at, const float *normals, const float *places,
                           float *points) {
    const Tangent is = layout;
    each(rays, [=] __device__(long r) {
        const float *n = normals + 3 * r, *place = places + 3 * (at[r] > 0 ? at[r] : 0);
        const float t[3] = {n[1] * is.z - n[2] * is.y, n[2] * is.x - n[0] * is.z, n[0] * is.y - n[1] * is.x};
        const float factor = is.step / sqrtf(fmaxf(t[0] * t[0] + t[1] * t[1] + t[2] * t[2], is.least));
        for (int j = 0; j < 3; j++) {
            points[3 * r + j] = place[j] + factor * t[j];
            points[3 * (rays + r) + j] = place[j] - factor * t[j];
        }
    });
}

// sdf [samples], around [2 rays, width], of which the first column counts.
struct SecondDifference {
    const int *at;
    const float *sdf, *around;
    long behind;  // from a point ahead
    float factor;
    __device__ float of(long r, long ahead) const {
        return (around[ahead] + around[ahead + behind] - 2.f * sdf[at[r]]) * factor;
    }
};

// total, number [1].
inline void second_differences(const Differences &is, long rays, const int *at, const float *sdf, const float *around,
                               float *total, float *number) {
    const SecondDifference second{at, sdf, around, rays * is.width, 1.f / (is.step * is.step)};
    const long width = is.width;
    sum_pairs(rays, total, number, [=] __device__(long r, float &size, float &count) {
        count = at[r] < 0 ? 0.f : 1.f;
        size = at[r] < 0 ? 0.f : fabsf(second.of(r, r * width));
    });
}

inline void second_differences_backward(const Differences &is, long rays, const int *at, const float *sdf,
                                        const float *around, const float *d_total, float *d_sdf, float *d_around) {
    const SecondDifference second{at, sdf, around, rays * is.width, 1.f / (is.step * is.step)};
    const long width = is.width;
    clear(d_sdf, is.samples);
    clear(d_around, 2 * rays * width);
    each(rays, [=] __device__(long r) {
        if (at[r] < 0) return;
        const float x = second.of(r, r * width), slope = (x > 0.f ? 1.f : x < 0.f ? -1.f : 0.f) * second.factor * d_total[0];
        d_sdf[at[r]] = -2.f * slope;
        d_around[r * width] = d_around[r * width + second.behind] = slope;
    });
}

}  // namespace neus
