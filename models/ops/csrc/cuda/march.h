// Samples of rays in the occupied cells of a grid. The reference is ops/march.py.
//
// Each sample is tested at its own position, rounded as in the reference; only depths well inside an empty box are
// skipped. So both find bit-identical samples: products in a sum are written so that no compiler flag fuses them. A ray
// is traversed twice, to count its samples and to write them, so that no list of unknown size is stored.
#pragma once
#include "offsets.h"

namespace neus {

// Depths closer to the end of an empty box than this fraction of a step are tested; far more than rounding.
constexpr float MARGIN = 0.01f;
// Bound of the rounding of a sample's place, relative to 1 + |origin|. Along an axis that a ray hardly moves along, it
// is a long way.
constexpr float ROUNDING = 1e-6f;

struct Ray {
    float origin[3], direction[3], near, far, jitter;
    float front[3];  // origin, moved forward by more than the rounding of places

    __device__ float depth(int k, float step) const { return near + __fmul_rn((float)k + jitter, step); }
    __device__ float place(int axis, float depth) const { return origin[axis] + __fmul_rn(direction[axis], depth); }

    // The step after step k to test next, where the cell `at` is empty: the first that may be outside the box of `size`
    // cells, each `side` long.
    __device__ int next(int k, float step, const int *at, int size, float side) const {
        float leaves = far;
        for (int axis = 0; axis < 3; axis++) {
            const int low = at[axis] & -size, face = direction[axis] > 0.f ? low + size : low;
            const float crosses = __fdiv_rn((float)face * side - 1.f - front[axis], direction[axis]);
            leaves = direction[axis] != 0.f && crosses < leaves ? crosses : leaves;
        }
        const float ahead = __fdiv_rn(leaves - near, step) - jitter - MARGIN;
        return ahead > (float)k ? (int)(ahead < 1e9f ? ahead : 1e9f) + 1 : k + 1;
    }
};

// All rays.
struct Rays {
    const float *origins, *directions, *near, *far, *jitter;
    __device__ Ray operator[](long r) const {
        Ray ray;
        for (int axis = 0; axis < 3; axis++) {
            ray.origin[axis] = origins[3 * r + axis];
            ray.direction[axis] = directions[3 * r + axis];
            const float slack = ROUNDING * (1.f + fabsf(ray.origin[axis]));
            ray.front[axis] = ray.origin[axis] + copysignf(slack, ray.direction[axis]);
        }
        ray.near = near[r];
        ray.far = far[r];
        ray.jitter = jitter[r];
        return ray;
    }
};

// Traverse a ray, take(depth) for each of its samples; returns their number.
template <typename Take>
__device__ inline int walk(const March &is, const uint8_t *cell, const Ray &ray, Take take) {
    const float half = (float)(0.5 * is.cells), cells = (float)is.cells, side = __fdiv_rn(2.f, cells);
    int found = 0;
    for (int k = 0; k < is.most_steps;) {
        const float depth = ray.depth(k, is.step);
        if (!(depth < ray.far)) break;
        float place[3];
        int at[3];
        bool inside = true;
        for (int axis = 0; axis < 3; axis++) {
            place[axis] = __fmul_rn(ray.place(axis, depth) + 1.f, half);
            inside = inside && place[axis] >= 0.f && place[axis] < cells;
        }
        for (int axis = 0; axis < 3; axis++) at[axis] = inside ? (int)place[axis] : 0;
        const int kind = inside ? cell[((long)at[0] * is.cells + at[1]) * is.cells + at[2]] : 0;
        if (kind == SOLID) break;
        if (kind == OCCUPIED) take(found++, depth);
        if (!inside || kind == OCCUPIED)
            k++;
        else
            k = ray.next(k, is.step, at, kind > SOLID ? 1 << (kind - SOLID) : 1, side);
    }
    return found;
}

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
