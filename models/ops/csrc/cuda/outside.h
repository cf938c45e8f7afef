// Samples of rays outside the unit sphere, one thread per ray. The reference is ops/outside.py. The numbers of candidates
// are computed in float64, as in the reference, the depths in float32.
#pragma once
#include "offsets.h"

namespace neus {

struct OutsideRays {
    const float *origins, *directions, *jitter;
    const bool *transmits;
    const uint8_t *states;

    // take(depth, contracted point) for each sample of a ray; returns their number.
    template <typename Take>
    __device__ int walk(const Outside &is, long r, Take take) const {
        const float *origin = origins + r * 3, *direction = directions + r * 3;
        double middle = 0.0, square = 0.0;
        for (int axis = 0; axis < 3; axis++) {
            middle -= (double)origin[axis] * direction[axis];
            square += (double)origin[axis] * origin[axis];
        }
        const double apart = sqrt(fmax(square - middle * middle, (double)LEAST_SQUARE));
        const double half = sqrt(fmax(1.0 - apart * apart, 0.0));
        const double start = asinh((is.near_plane - middle) / apart) / is.section;
        const double enters = asinh(-half / apart) / is.section, leaves = asinh(half / apart) / is.section;
        const double behind_from = fmax(leaves, start), ends = asinh(BACKGROUND_RADIUS / apart) / is.section;
        const int before = (int)fmax(0.0, floor(enters - start)), behind = (int)fmax(0.0, floor(ends - behind_from));
        const float section = (float)is.section, m = (float)middle, a = (float)apart;
        int found = 0;
        for (int number = 0; number < before + (transmits[r] ? behind : 0); number++) {
            const bool is_before = number < before;
            const double from = is_before ? start + number : behind_from + (number - before);
            const float depth = m + a * sinhf((float)(from + jitter[r]) * section);
            float point[3], squares = 0.f;
            for (int axis = 0; axis < 3; axis++) {
                point[axis] = origin[axis] + direction[axis] * depth;
                squares += point[axis] * point[axis];
            }
            const float radius = fmaxf(sqrtf(squares), 1.f), scale = (1.f - 0.5f / radius) / radius;
            long cell = 0;
            for (int axis = 0; axis < 3; axis++) {
                point[axis] *= scale;
                const int at = (int)((point[axis] + 1.f) * (0.5f * is.cells));
                cell = cell * is.cells + (at < 0 ? 0 : at < is.cells ? at : is.cells - 1);
            }
            if (states[cell] >= (is_before ? BEFORE : BEHIND)) take(found++, depth, point);
        }
        return found;
    }
};

struct CountOutside {
    __device__ void operator()(int, float, const float *) const {}
};

inline void outside_samples(const Outside &layout, long rays, const float *origins, const float *directions,
                            const float *jitter, const bool *transmits, const uint8_t *states, int *offsets, int *kept,
                            int *ray_of, float *depths, float *points, float *views) {
    const Outside is = layout;
    const OutsideRays all{origins, directions, jitter, transmits, states};
    Scratch<int> count_scratch(rays);
    int *counts = count_scratch.values;
    each(rays, [=] __device__(long r) { counts[r] = all.walk(is, r, CountOutside{}); });
    launch(offsets_kernel, dim3(1), THREADS, rays, (long)is.samples, counts, offsets, kept);
    each(rays, [=] __device__(long r) {
        if (r >= kept[0]) return;
        const long begin = offsets[r];
        all.walk(is, r, [=](int found, float depth, const float *point) {
            const long s = begin + found;
            ray_of[s] = (int)r;
            depths[s] = depth;
            for (int axis = 0; axis < 3; axis++) {
                points[s * 3 + axis] = point[axis];
                views[s * 3 + axis] = directions[r * 3 + axis];
            }
        });
    });
    clear_unused(is.samples, offsets + rays, ray_of, depths, points, views);
}

}  // namespace neus
