// A ray through the occupied cells of a grid. The reference is ops/march.py.
//
// Each sample is tested at its own position, rounded as in the reference; only depths well inside an empty box are
// skipped. So all forms find bit-identical samples: products in a sum use intrinsics that no compiler flag fuses.
#pragma once
#include "device.h"

namespace neus {

// Depths closer to the end of an empty box than this fraction of a step are tested; far more than rounding.
constexpr float MARGIN = 0.01f;
// Bound of the rounding of a sample's place, relative to 1 + |origin|. Along an axis that a ray hardly moves along, it
// is a long way.
constexpr float ROUNDING = 1e-6f;

struct Ray {
    float origin[3], direction[3], near, far, jitter;
    float front[3];    // origin, moved forward by more than the rounding of places
    float inverse[3];  // 1 / direction; 0 where that is 0

    __device__ float depth(int k, float step) const { return near + __fmul_rn((float)k + jitter, step); }
    __device__ float place(int axis, float depth) const { return origin[axis] + __fmul_rn(direction[axis], depth); }

    // The step after step k to test next, where the cell `at` is empty: the first that may be outside the box of `size`
    // cells, each `side` long.
    __device__ int next(int k, float steps_of_unit, const int *at, int size, float side) const {
        float leaves = far;
        for (int axis = 0; axis < 3; axis++) {
            const int low = at[axis] & -size, face = direction[axis] > 0.f ? low + size : low;
            const float crosses = ((float)face * side - 1.f - front[axis]) * inverse[axis];
            leaves = inverse[axis] != 0.f && crosses < leaves ? crosses : leaves;
        }
        const float ahead = (leaves - near) * steps_of_unit - jitter - MARGIN;
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
            ray.inverse[axis] = ray.direction[axis] == 0.f ? 0.f : __fdiv_rn(1.f, ray.direction[axis]);
        }
        ray.near = near[r];
        ray.far = far[r];
        ray.jitter = jitter[r];
        return ray;
    }
};

// Traverse a ray, take(its number, depth) for each of its samples; returns their number.
template <typename Take>
__device__ inline int walk(const March &is, const uint8_t *cell, const Ray &ray, Take take) {
    const float half = (float)(0.5 * is.cells), cells = (float)is.cells;
    const float side = __fdiv_rn(2.f, cells), steps_of_unit = __fdiv_rn(1.f, is.step);
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
            k = ray.next(k, steps_of_unit, at, kind > SOLID ? 1 << (kind - SOLID) : 1, side);
    }
    return found;
}

}  // namespace neus
