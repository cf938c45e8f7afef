// Samples of rays in the occupied cells of a grid. The reference is ops/march.py.
//
// Each sample is tested at its own position, rounded as in the reference; only depths well inside an empty box are
// skipped. So both find bit-identical samples, and the compiler must not contract. It must not compute skipped branches
// either, as it does for operations that cannot trap: this takes a fifth longer.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>
#include <omp.h>

#pragma GCC push_options
#pragma GCC optimize("fp-contract=off", "trapping-math")

namespace neus {

constexpr size_t ROOM = 1024;      // initial capacity for samples
constexpr long RAYS_AT_ONCE = 64;  // of a thread
// Depths closer to the end of an empty box than this fraction of a step are tested; far more than rounding.
constexpr float MARGIN = 0.01f;
// Bound of the rounding of a sample's place, relative to 1 + |origin|. Along an axis that a ray hardly moves along, it
// is a long way.
constexpr float ROUNDING = 1e-6f;

struct Ray {
    float origin[3], direction[3], near, far, jitter;
    float front[3];    // origin, moved forward by more than the rounding of places
    float inverse[3];  // 1 / direction; 0 where that is 0

    float depth(int k, float step) const { return near + ((float)k + jitter) * step; }
    float place(int axis, float depth) const { return origin[axis] + direction[axis] * depth; }

    // The step after step k to test next, where the cell `at` is empty: the first that may be outside the box of `size`
    // cells, each `side` long.
    int next(int k, float steps_of_unit, const int *at, int size, float side) const {
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

// Append the depths of a ray's samples to `depths` from `used` on; returns the new end.
inline size_t walk(const March &is, const uint8_t *cell, const Ray &ray, std::vector<float> &depths, size_t used) {
    const float half = (float)(0.5 * is.cells), cells = (float)is.cells;
    const float side = 2.f / cells, steps_of_unit = 1.f / is.step;
    float *to = depths.data();
    size_t room = depths.size();
    for (int k = 0; k < is.most_steps;) {
        const float depth = ray.depth(k, is.step);
        if (!(depth < ray.far)) break;
        float place[3];
        int at[3];
        bool inside = true;
        for (int axis = 0; axis < 3; axis++) {
            place[axis] = (ray.place(axis, depth) + 1.f) * half;
            inside = inside && place[axis] >= 0.f && place[axis] < cells;
        }
        for (int axis = 0; axis < 3; axis++) at[axis] = inside ? (int)place[axis] : 0;
        const int kind = inside ? cell[((size_t)at[0] * is.cells + at[1]) * is.cells + at[2]] : 0;
        if (kind == SOLID) break;
        if (kind == OCCUPIED && used == room) {
            room = 2 * room + ROOM;
            depths.resize(room);
            to = depths.data();
        }
        if (kind == OCCUPIED) to[used++] = depth;
        if (!inside || kind == OCCUPIED)
            k++;
        else
            k = ray.next(k, steps_of_unit, at, kind > SOLID ? 1 << (kind - SOLID) : 1, side);
    }
    return used;
}

// The samples of consecutive rays.
struct Walked {
    std::vector<float> depths;  // `used` of them
    size_t used = 0;
    std::vector<int> counts;
};

inline Ray read_ray(long r, const float *origins, const float *directions, const float *near, const float *far,
                    const float *jitter) {
    Ray ray;
    std::memcpy(ray.origin, origins + 3 * r, sizeof(ray.origin));
    std::memcpy(ray.direction, directions + 3 * r, sizeof(ray.direction));
    ray.near = near[r];
    ray.far = far[r];
    ray.jitter = jitter[r];
    for (int axis = 0; axis < 3; axis++) {
        const float slack = ROUNDING * (1.f + std::fabs(ray.origin[axis]));
        ray.front[axis] = ray.origin[axis] + std::copysign(slack, ray.direction[axis]);
        ray.inverse[axis] = ray.direction[axis] == 0.f ? 0.f : 1.f / ray.direction[axis];
    }
    return ray;
}

// offsets [rays + 1] from the counts, up to the budget; returns the number of rays that fit.
inline long cut(const March &is, long rays, const std::vector<Walked> &walked, int *offsets) {
    long kept = rays;
    offsets[0] = 0;
    for (long r = 0; r < rays; r++) {
        const int count = walked[r / RAYS_AT_ONCE].counts[r % RAYS_AT_ONCE];
        if (r < kept && count > is.samples - offsets[r]) kept = r;
        offsets[r + 1] = offsets[r] + (r < kept ? count : 0);
    }
    return kept;
}

inline void march(const March &is, long rays, const float *origins, const float *directions, const float *near,
                  const float *far, const float *jitter, const uint8_t *occupied, int *offsets, int *kept,
                  int *ray_of, float *depths, float *points, float *views) {
    std::vector<Walked> walked((rays + RAYS_AT_ONCE - 1) / RAYS_AT_ONCE);
    const long parts = (long)walked.size();
#pragma omp parallel for schedule(dynamic)
    for (long part = 0; part < parts; part++)
        for (long r = part * RAYS_AT_ONCE; r < std::min(rays, (part + 1) * RAYS_AT_ONCE); r++) {
            Walked &into = walked[part];
            const Ray ray = read_ray(r, origins, directions, near, far, jitter);
            const size_t end = walk(is, occupied, ray, into.depths, into.used);
            into.counts.push_back((int)(end - into.used));
            into.used = end;
        }
    kept[0] = (int)cut(is, rays, walked, offsets);
#pragma omp parallel for schedule(dynamic)
    for (long part = 0; part < parts; part++) {
        const float *from = walked[part].depths.data();
        for (long r = part * RAYS_AT_ONCE; r < std::min<long>(kept[0], (part + 1) * RAYS_AT_ONCE); r++) {
            const Ray ray = read_ray(r, origins, directions, near, far, jitter);
            for (long s = offsets[r]; s < offsets[r + 1]; s++, from++) {
                ray_of[s] = (int)r;
                depths[s] = *from;
                for (int axis = 0; axis < 3; axis++) {
                    points[s * 3 + axis] = ray.place(axis, *from);
                    views[s * 3 + axis] = ray.direction[axis];
                }
            }
        }
    }
    const long used = offsets[rays];
    std::fill(ray_of + used, ray_of + is.samples, 0);
    std::fill(depths + used, depths + is.samples, 0.f);
    std::fill(points + 3 * used, points + 3l * is.samples, 0.f);
    std::fill(views + 3 * used, views + 3l * is.samples, 0.f);
}

}  // namespace neus

#pragma GCC pop_options
