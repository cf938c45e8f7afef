// Up-sampling rounds, each with the distances at its new depths. The reference is ops/upsample.py.
#pragma once
#include "sdf_mlp.h"
#include "upsample.h"

namespace neus {

// Points [rays * count, 3] along rays at depths [rays, count].
inline void points_along(long rays, int count, const float *origins, const float *directions, const float *depths,
                         float *points) {
    each_place(rays, count, [=] __device__(int r, int, long at) {
        for (int j = 0; j < 3; j++)
            points[3 * at + j] = origins[3 * r + j] + __fmul_rn(directions[3 * r + j], depths[at]);
    });
}

// The distances of old and new depths in ascending order of depth, [rays, n + count].
inline void merge_distances(long rays, int n, int count, const float *old, const float *fresh, const int *order,
                            float *merged) {
    each_place(rays, n + count, [=] __device__(int r, int, long at) {
        const int from = order[at];
        merged[at] = from < n ? old[(long)r * n + from] : fresh[(long)r * count + from - n];
    });
}

// For each ray: all depths ascending, from `depths` [rays, n] and, if `known`, the distances there.
inline void place(const Placing &layout, long rays, const float *origins, const float *directions, const float *depths,
                  const float *sdf, const float *packed, float *placed) {
    int most = layout.round.depths, all = layout.round.depths;
    for (int count : layout.counts) {
        most = count > most ? count : most;
        all += count;
    }
    Scratch<float> points(rays * most * 3), fresh_scratch(rays * most), added_scratch(rays * most);
    Scratch<float> depths_scratch(2 * rays * all), sdf_scratch(2 * rays * all);
    Scratch<int> order_scratch(rays * all);
    float *fresh = fresh_scratch.values, *added = added_scratch.values;
    float *depths_to = depths_scratch.values, *depths_other = depths_to + rays * all;
    float *sdf_to = sdf_scratch.values, *sdf_other = sdf_to + rays * all;
    int *order = order_scratch.values;
    const SdfNet net(layout.network, packed, false);
    UpsampleRound round = layout.round;
    if (!layout.known) {
        points_along(rays, round.depths, origins, directions, depths, points.values);
        distances(net, layout.network, rays * round.depths, points.values, sdf_to);
        sdf = sdf_to;
        std::swap(sdf_to, sdf_other);
    }
    for (size_t k = 0; k < layout.counts.size(); k++, round.inv_s *= 2.f) {
        round.count = layout.counts[k];
        if (round.count == 0) continue;
        const bool is_last = round.depths + round.count == all;
        float *merged = is_last ? placed : depths_to;
        upsample(round, rays, origins, directions, depths, sdf, added, merged, order);
        if (is_last) return;
        points_along(rays, round.count, origins, directions, added, points.values);
        distances(net, layout.network, rays * round.count, points.values, fresh);
        merge_distances(rays, round.depths, round.count, sdf, fresh, order, sdf_to);
        depths = merged;
        sdf = sdf_to;
        std::swap(depths_to, depths_other);
        std::swap(sdf_to, sdf_other);
        round.depths += round.count;
    }
}

}  // namespace neus
