// Up-sampling rounds: one thread per interval, ray or new depth. The reference is ops/upsample.py.
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
    Scratch<float> weight_scratch(rays * n), cdf_scratch(rays * n);
    float *weights = weight_scratch.values, *cdf = cdf_scratch.values;
    each_place(rays, n - 1, [=] __device__(int r, int i, long) {
        weights[r * n + i] = round_alpha(is, origins + r * 3, directions + r * 3, depths + r * n, sdf + r * n, i);
    });
    each(rays, [=] __device__(long r) { cumulate(is, weights + r * n, cdf + r * n); });
    each_place(rays, count, [=] __device__(int r, int q, long at) {
        added[at] = quantile(is, depths + r * n, cdf + r * n, q);
    });
    each_place(rays, all, [=] __device__(int r, int i, long) {
        const float *old = depths + r * n, *fresh = added + r * count;
        const float depth = i < n ? old[i] : fresh[i - n];
        const uint32_t own = order_of(depth);
        int place = 0;  // as many come before it as are less, or equal and earlier
        for (int j = 0; j < all; j++) {
            const uint32_t other = order_of(j < n ? old[j] : fresh[j - n]);
            place += other < own || (other == own && j < i);
        }
        merged[r * all + place] = depth;
        order[r * all + place] = i;
    });
}

}  // namespace neus
