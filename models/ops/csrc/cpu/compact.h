// Selection of packed samples, and the merged order of two packed sets. The reference is ops/march.py. `entries` is
// the number of offsets, one more than the rays.
#pragma once
#include <algorithm>
#include <cstdint>
#include <omp.h>
#include "merge_place.h"

namespace neus {

inline void compact(const Compact &is, long entries, const int *offsets, const int *kept, const bool *is_kept,
                    const int *rays, const float *depths, const float *points, const float *views, int *ends,
                    int *fitting, int *to_rays, float *to_depths, float *to_points, float *to_views) {
    long used = 0, fits = kept[0];
    ends[0] = 0;
    for (long r = 0; r < entries - 1; r++) {
        const long begin = used;
        for (long s = offsets[r]; r < fits && s < offsets[r + 1]; s++) {
            if (!is_kept[s]) continue;
            if (used == is.samples) {
                fits = r;
                break;
            }
            to_rays[used] = rays[s];
            to_depths[used] = depths[s];
            for (int axis = 0; axis < 3; axis++) {
                to_points[used * 3 + axis] = points[s * 3 + axis];
                to_views[used * 3 + axis] = views[s * 3 + axis];
            }
            used++;
        }
        if (r >= fits) used = begin;
        ends[r + 1] = (int)used;
    }
    fitting[0] = (int)fits;
    std::fill(to_rays + used, to_rays + is.samples, 0);
    std::fill(to_depths + used, to_depths + is.samples, 0.f);
    std::fill(to_points + 3 * used, to_points + 3l * is.samples, 0.f);
    std::fill(to_views + 3 * used, to_views + 3l * is.samples, 0.f);
}

inline void fill(const Fill &is, long entries, const int *offsets, const int *rays, const float *depths,
                 const float *points, const float *views, const float *others, int *to_rays, float *to_depths,
                 float *to_points, float *to_views) {
    const long used = offsets[entries - 1];
    std::copy(rays, rays + used, to_rays);
    std::copy(depths, depths + used, to_depths);
    std::copy(points, points + 3 * used, to_points);
    std::copy(views, views + 3 * used, to_views);
    std::fill(to_rays + used, to_rays + is.samples, 0);
    std::fill(to_depths + used, to_depths + is.samples, 0.f);
    std::fill(to_views + 3 * used, to_views + 3l * is.samples, 0.f);
    for (long s = used; s < is.samples; s += is.others) {
        const long count = std::min<long>(is.others, is.samples - s);
        std::copy(others, others + 3 * count, to_points + 3 * s);
    }
}

inline void merged_order(const Merge &is, long entries, const int *near_offsets, const int *near_rays,
                         const float *near_depths, const int *far_offsets, const int *far_rays,
                         const float *far_depths, int *place, int *sample) {
#pragma omp parallel for schedule(static)
    for (int i = 0; i < is.near; i++) {
        place[i] = merged_place(i, near_offsets, near_rays, near_depths, entries, far_offsets, far_depths, false, is.near);
        sample[place[i]] = i;
    }
#pragma omp parallel for schedule(static)
    for (int i = 0; i < is.far; i++) {
        const int to = merged_place(i, far_offsets, far_rays, far_depths, entries, near_offsets, near_depths, true, is.near);
        place[is.near + i] = to;
        sample[to] = is.near + i;
    }
}

}  // namespace neus
