// Samples of rays in the occupied cells of a grid. The reference is ops/march.py.
//
// The compiler must not contract. It must not compute skipped branches either, as it does for operations that cannot
// trap: this takes a fifth longer.
#pragma once
#include <cstdint>
#include <vector>
#include "unused.h"

#pragma GCC push_options
#pragma GCC optimize("fp-contract=off", "trapping-math")
#include "exact.h"
#include "march_ray.h"

namespace neus {

constexpr size_t ROOM = 1024;      // initial capacity for samples
constexpr long RAYS_AT_ONCE = 64;  // of a thread

// The samples of consecutive rays.
struct Walked {
    std::vector<float> depths;  // `used` of them
    size_t used = 0;
    std::vector<int> counts;

    // The place of the depths behind `used`, with room for more than `found`.
    float *grown(int found) {
        depths.resize(2 * (used + found) + ROOM);
        return depths.data() + used;
    }
};

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
    const Rays all{origins, directions, near, far, jitter};
#pragma omp parallel for schedule(dynamic)
    for (long part = 0; part < parts; part++)
        for (long r = part * RAYS_AT_ONCE; r < std::min(rays, (part + 1) * RAYS_AT_ONCE); r++) {
            Walked &into = walked[part];
            float *to = into.depths.data() + into.used, *end = into.depths.data() + into.depths.size();
            const int count = walk(is, occupied, all[r], [&](int found, float depth) {
                if (to + found == end) to = into.grown(found), end = into.depths.data() + into.depths.size();
                to[found] = depth;
            });
            into.counts.push_back(count);
            into.used += count;
        }
    kept[0] = (int)cut(is, rays, walked, offsets);
#pragma omp parallel for schedule(dynamic)
    for (long part = 0; part < parts; part++) {
        const float *from = walked[part].depths.data();
        for (long r = part * RAYS_AT_ONCE; r < std::min<long>(kept[0], (part + 1) * RAYS_AT_ONCE); r++) {
            const Ray ray = all[r];
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
    clear_unused(is.samples, offsets + rays, ray_of, depths, points, views);
}

}  // namespace neus

#pragma GCC pop_options
