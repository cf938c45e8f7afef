// Where the samples of rays begin and end.
#pragma once
#include "reduce.h"
#include "unused.h"

namespace neus {

// offsets [rays + 1] from the counts, up to the budget, and the number of rays whose samples, with all before them,
// fit. One block, each thread handles consecutive rays.
__global__ inline void offsets_kernel(long rays, long samples, const int *counts, int *offsets, int *kept) {
    SHARED(long, sums, THREADS);
    const int t = threadIdx.x;
    const long begin = rays * t / THREADS, end = rays * (t + 1) / THREADS;
    long sum = 0;
    for (long r = begin; r < end; r++) sum += counts[r];
    sums[t] = sum;
    __syncthreads();
    long before = 0;
    for (int other = 0; other < t; other++) before += sums[other];
    __syncthreads();
    long fitting = 0, last = 0;
    for (long r = begin; r < end; r++) {
        before += counts[r];
        if (before > samples) break;
        fitting++;
        last = before;
    }
    const long all = block_sum(fitting, sums);
    __syncthreads();
    // In the thread with the last ray that fits, or in the first one if none fits.
    sums[t] = fitting > 0 ? last : 0;
    __syncthreads();
    long used = 0;
    for (int other = 0; other < THREADS; other++) used = sums[other] > used ? sums[other] : used;
    before = 0;
    if (t == 0) {
        offsets[0] = 0;
        kept[0] = (int)all;
    }
    __syncthreads();
    sums[t] = sum;
    __syncthreads();
    for (int other = 0; other < t; other++) before += sums[other];
    for (long r = begin; r < end; r++) {
        before += counts[r];
        offsets[r + 1] = (int)(r < all ? before : used);
    }
}

}  // namespace neus
