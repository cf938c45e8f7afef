// Samples of rays in the occupied cells of a grid. The reference is ops/march.py. A ray
// is traversed twice, to count its samples and to write them, so that no list of unknown size is stored.
#pragma once
#include "march_ray.h"
#include "offsets.h"

namespace neus {

struct CountOnly {
    __device__ void operator()(int, float) const {}
};

// The output positions of a ray's samples.
struct Samples {
    const Ray &ray;
    int r, begin;
    int *ray_of;
    float *depths, *points, *views;
    __device__ void operator()(int found, float depth) const {
        const long s = (long)begin + found;
        ray_of[s] = r;
        depths[s] = depth;
        for (int axis = 0; axis < 3; axis++) {
            points[s * 3 + axis] = ray.place(axis, depth);
            views[s * 3 + axis] = ray.direction[axis];
        }
    }
};

inline void march(const March &layout, long rays, const float *origins, const float *directions, const float *near,
                  const float *far, const float *jitter, const uint8_t *occupied, int *offsets, int *kept, int *ray_of,
                  float *depths, float *points, float *views) {
    const March is = layout;
    Scratch<int> count_scratch(rays);
    int *counts = count_scratch.values;
    const Rays all{origins, directions, near, far, jitter};
    each(rays, [=] __device__(long r) { counts[r] = walk(is, occupied, all[r], CountOnly{}); });
    launch(offsets_kernel, dim3(1), THREADS, rays, (long)is.samples, counts, offsets, kept);
    each(rays, [=] __device__(long r) {
        if (r >= kept[0]) return;
        const Ray ray = all[r];
        walk(is, occupied, ray, Samples{ray, (int)r, offsets[r], ray_of, depths, points, views});
    });
    clear_unused(is.samples, offsets + rays, ray_of, depths, points, views);
}

}  // namespace neus
