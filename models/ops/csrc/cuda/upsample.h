// Up-sampling rounds. The reference is ops/upsample.py.
#pragma once
#include "upsample_ray.h"

namespace neus {

// An integer with the order of depths: equal for both zeros, largest for NaN.
__device__ inline uint32_t order_of(float depth) {
    constexpr uint32_t sign = 0x80000000u;
    uint32_t bits;
    memcpy(&bits, &depth, sizeof(bits));
    if (bits == sign) bits = 0;
    if ((bits & ~sign) > EXPONENT) return ~0u;
    return bits & sign ? ~bits : bits | sign;
}

// For each of `rays`: new depths [rays, count], all depths ascending [rays, n + count], and the place of each of these
// in the concatenation of old and new ones.
inline void upsample(const UpsampleRound &layout, long rays, const float *origins, const float *directions,
                     const float *depths, const float *sdf, float *added, float *merged, int *order) {
    const UpsampleRound is = layout;
    const int n = is.depths, count = is.count, all = n + count;
    each_warp(rays, 2 * n + all, [=] __device__(long r, int lane, float *both) {
        float *weights = both + all, *cdf = weights + n;  // cdf: at first the distances
        for (int i = lane; i < n; i += LANES) {
            both[i] = depths[r * n + i];
            cdf[i] = sdf[r * n + i];
        }
        wait_for_warp();
        for (int i = lane; i < n - 1; i += LANES)
            weights[i] = round_alpha(is, origins + r * 3, directions + r * 3, both, cdf, i);
        wait_for_warp();
        if (lane == 0) cumulate(is, weights, cdf);
        wait_for_warp();
        for (int q = lane; q < count; q += LANES) added[r * count + q] = both[n + q] = quantile(is, both, cdf, q);
        wait_for_warp();
        for (int i = lane; i < all; i += LANES) {
            const uint32_t own = order_of(both[i]);
            int place = 0;  // as many come before it as are less, or equal and earlier
            for (int j = 0; j < all; j++) {
                const uint32_t other = order_of(both[j]);
                place += other < own || (other == own && j < i);
            }
            merged[r * all + place] = both[i];
            order[r * all + place] = i;
        }
    });
}

}  // namespace neus
