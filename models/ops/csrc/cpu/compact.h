// Selection of packed samples. The reference is ops/march.py. `entries` is
// the number of offsets, one more than the rays.
#pragma once
#include "merged_order.h"
#include "unused.h"

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
    clear_unused(is.samples, ends + entries - 1, to_rays, to_depths, to_points, to_views);
}

inline void fill(const Fill &is, long entries, const int *offsets, const int *rays, const float *depths,
                 const float *points, const float *views, const float *others, int *to_rays, float *to_depths,
                 float *to_points, float *to_views) {
    const long used = offsets[entries - 1];
    std::copy(rays, rays + used, to_rays);
    std::copy(depths, depths + used, to_depths);
    std::copy(points, points + 3 * used, to_points);
    std::copy(views, views + 3 * used, to_views);
    clear_unused(is.samples, offsets + entries - 1, to_rays, to_depths, to_points, to_views);
    for (long s = used; s < is.samples; s += is.others) {
        const long count = std::min<long>(is.others, is.samples - s);
        std::copy(others, others + 3 * count, to_points + 3 * s);
    }
}

}  // namespace neus
