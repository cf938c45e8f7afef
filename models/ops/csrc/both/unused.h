// Packed samples that no ray has.
#pragma once
#include "device.h"

namespace neus {

// Zeros in the samples from `used[0]` on.
inline void clear_unused(long samples, const int *used, int *ray_of, float *depths, float *points, float *views) {
    each(samples, [=] __device__(long s) {
        if (s < used[0]) return;
        ray_of[s] = 0;
        depths[s] = 0.f;
        for (int axis = 0; axis < 3; axis++) points[s * 3 + axis] = views[s * 3 + axis] = 0.f;
    });
}

}  // namespace neus
