// The merged order of two packed sets, by ray and depth. The reference is ops/march.py.
#pragma once
#include "device.h"

namespace neus {

constexpr int SAMPLES_AT_ONCE = 1024;  // of a thread

// The number of ascending depths from `begin` to `end` below `depth`; with `ties`, including those equal to it.
__device__ inline int come_before(const float *depths, int begin, int end, float depth, bool ties) {
    int low = begin, high = end;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        const bool is_before = ties ? depths[middle] <= depth : depths[middle] < depth;
        low = is_before ? middle + 1 : low;
        high = is_before ? high : middle;
    }
    return low - begin;
}

// The merged index of sample i of one set; `ties`: whether samples of the other set at equal depth precede it, as for
// the second set. Unused samples of the first set follow the used ones of the second; unused ones of the second come
// last.
__device__ inline int merged_place(int i, const int *offsets, const int *rays, const float *depths, long entries,
                                   const int *other_offsets, const float *other_depths, bool ties, int first_set) {
    if (i >= offsets[entries - 1]) return i + (ties ? first_set : other_offsets[entries - 1]);
    const int r = rays[i];
    return i + other_offsets[r] + come_before(other_depths, other_offsets[r], other_offsets[r + 1], depths[i], ties);
}

inline void merged_order(const Merge &layout, long entries, const int *near_offsets, const int *near_rays,
                         const float *near_depths, const int *far_offsets, const int *far_rays,
                         const float *far_depths, int *place, int *sample) {
    const int near = layout.near;
    each_apart(near, SAMPLES_AT_ONCE, [=] __device__(long i) {
        const int to = merged_place((int)i, near_offsets, near_rays, near_depths, entries, far_offsets, far_depths, false, near);
        place[i] = to;
        sample[to] = (int)i;
    });
    each_apart(layout.far, SAMPLES_AT_ONCE, [=] __device__(long i) {
        const int to = merged_place((int)i, far_offsets, far_rays, far_depths, entries, near_offsets, near_depths, true, near);
        place[near + i] = to;
        sample[to] = near + (int)i;
    });
}

}  // namespace neus
