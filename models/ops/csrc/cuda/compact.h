// Selection of packed samples. The reference is ops/march.py. `entries` is
// the number of offsets, one more than the rays.
#pragma once
#include "merged_order.h"
#include "offsets.h"

namespace neus {

inline void compact(const Compact &layout, long entries, const int *offsets, const int *kept, const bool *is_kept,
                    const int *rays, const float *depths, const float *points, const float *views, int *ends,
                    int *fitting, int *to_rays, float *to_depths, float *to_points, float *to_views) {
    const long all = entries - 1, samples = layout.samples;
    Scratch<int> count_scratch(all);
    int *counts = count_scratch.values;
    each(all, [=] __device__(long r) {
        int count = 0;
        for (int s = offsets[r]; s < offsets[r + 1]; s++) count += is_kept[s];
        counts[r] = count;
    });
    launch(offsets_kernel, dim3(1), THREADS, all, samples, counts, ends, fitting);
    each(1, [=] __device__(long) { fitting[0] = kept[0] < fitting[0] ? kept[0] : fitting[0]; });
    each(all, [=] __device__(long r) {
        long to = ends[r];
        if (ends[r + 1] == ends[r]) return;
        for (long s = offsets[r]; s < offsets[r + 1]; s++) {
            if (!is_kept[s]) continue;
            to_rays[to] = rays[s];
            to_depths[to] = depths[s];
            for (int axis = 0; axis < 3; axis++) {
                to_points[to * 3 + axis] = points[s * 3 + axis];
                to_views[to * 3 + axis] = views[s * 3 + axis];
            }
            to++;
        }
    });
    clear_unused(samples, ends + all, to_rays, to_depths, to_points, to_views);
}

inline void fill(const Fill &layout, long entries, const int *offsets, const int *rays, const float *depths,
                 const float *points, const float *views, const float *others, int *to_rays, float *to_depths,
                 float *to_points, float *to_views) {
    const int all = layout.others;
    each(layout.samples, [=] __device__(long s) {
        const long free = s - offsets[entries - 1];
        to_rays[s] = free < 0 ? rays[s] : 0;
        to_depths[s] = free < 0 ? depths[s] : 0.f;
        for (int axis = 0; axis < 3; axis++) {
            to_points[s * 3 + axis] = free < 0 ? points[s * 3 + axis] : others[free % all * 3 + axis];
            to_views[s * 3 + axis] = free < 0 ? views[s * 3 + axis] : 0.f;
        }
    });
}

}  // namespace neus
