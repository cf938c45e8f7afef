// Up-sampling rounds, ray by ray. The reference is ops/upsample.py. The compiler may not contract.
#pragma once
#include <numeric>
#include <vector>
#include "device.h"

#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#include "exact.h"
#include "upsample_ray.h"

namespace neus {

// For each of `rays`: new depths [rays, count], all depths ascending [rays, n + count], and the place of each of these
// in the concatenation of old and new ones.
inline void upsample(const UpsampleRound &is, long rays, const float *origins, const float *directions,
                     const float *depths, const float *sdf, float *added, float *merged, int *order) {
    const int n = is.depths, count = is.count;
#pragma omp parallel
    {
        std::vector<float> weights(n), cdf(n);
#pragma omp for schedule(static)
        for (long r = 0; r < rays; r++) {
            const float *old = depths + r * n;
            float *fresh = added + r * count;
            for (int k = 0; k + 1 < n; k++)
                weights[k] = round_alpha(is, origins + r * 3, directions + r * 3, old, sdf + r * n, k);
            cumulate(is, weights.data(), cdf.data());
            for (int q = 0; q < count; q++) fresh[q] = quantile(is, old, cdf.data(), q);
            auto depth = [&](int i) { return i < n ? old[i] : fresh[i - n]; };
            int *places = order + r * (n + count);
            std::iota(places, places + n + count, 0);
            std::stable_sort(places, places + n + count, [&](int a, int b) { return depth(a) < depth(b); });
            for (int i = 0; i < n + count; i++) merged[r * (n + count) + i] = depth(places[i]);
        }
    }
}

}  // namespace neus

#pragma GCC pop_options
