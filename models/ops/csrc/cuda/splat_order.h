// Sort Gaussians by depth: a stable radix sort of the bits of positive floats, which have the same order. Each thread
// handles consecutive Gaussians, so that ties keep their order.
#pragma once
#include "device.h"

namespace neus {

constexpr int DIGIT_BITS = 4, DIGITS = 1 << DIGIT_BITS, KEY_BITS = 32;
constexpr long SORTED_BY_A_THREAD = 64;
constexpr uint32_t UNSEEN = ~0u;  // sorts after all visible Gaussians

// Replace counts [numbers] by their exclusive prefix sums. One block, each thread handles consecutive numbers.
__global__ inline void sums_before_kernel(long numbers, int *counts) {
    SHARED(int, sums, THREADS);
    const int t = threadIdx.x;
    const long begin = numbers * t / THREADS, end = numbers * (t + 1) / THREADS;
    int sum = 0;
    for (long i = begin; i < end; i++) sum += counts[i];
    sums[t] = sum;
    __syncthreads();
    int before = 0;
    for (int other = 0; other < t; other++) before += sums[other];
    for (long i = begin; i < end; i++) {
        const int own = counts[i];
        counts[i] = before;
        before += own;
    }
}

// The indices of the visible Gaussians by depth, order [count], and their number, seen [1]; the others follow.
inline void by_depth(long count, const float *depths, const int *radii, int *order, int *seen) {
    const long chunks = (count + SORTED_BY_A_THREAD - 1) / SORTED_BY_A_THREAD;
    Scratch<uint32_t> key_scratch(2 * count);
    Scratch<int> order_scratch(count), count_scratch(chunks * DIGITS);
    uint32_t *keys = key_scratch.values;
    int *counts = count_scratch.values, *spare = order_scratch.values;
    clear(seen, 1);
    each(count, [=] __device__(long n) {
        uint32_t bits;
        memcpy(&bits, depths + n, sizeof(bits));
        keys[n] = radii[2 * n] > 0 ? bits : UNSEEN;
        order[n] = (int)n;
    });
    for (int shift = 0; shift < KEY_BITS; shift += DIGIT_BITS) {
        const bool is_even = shift / DIGIT_BITS % 2 == 0;  // an even number of passes: the last one writes `order`
        const uint32_t *from = keys + (is_even ? 0 : count);
        uint32_t *to = keys + (is_even ? count : 0);
        const int *from_order = is_even ? order : spare;
        int *to_order = is_even ? spare : order;
        each(chunks, [=] __device__(long chunk) {
            int found[DIGITS] = {};
            const long end = (chunk + 1) * SORTED_BY_A_THREAD < count ? (chunk + 1) * SORTED_BY_A_THREAD : count;
            for (long i = chunk * SORTED_BY_A_THREAD; i < end; i++) found[from[i] >> shift & (DIGITS - 1)]++;
            for (int d = 0; d < DIGITS; d++) counts[d * chunks + chunk] = found[d];
        });
        launch(sums_before_kernel, dim3(1), THREADS, chunks * DIGITS, counts);
        each(chunks, [=] __device__(long chunk) {
            int next[DIGITS];
            for (int d = 0; d < DIGITS; d++) next[d] = counts[d * chunks + chunk];
            const long end = (chunk + 1) * SORTED_BY_A_THREAD < count ? (chunk + 1) * SORTED_BY_A_THREAD : count;
            for (long i = chunk * SORTED_BY_A_THREAD; i < end; i++) {
                const int place = next[from[i] >> shift & (DIGITS - 1)]++;
                to[place] = from[i];
                to_order[place] = from_order[i];
            }
        });
    }
    each(count, [=] __device__(long i) {
        if (keys[i] != UNSEEN && (i + 1 == count || keys[i + 1] == UNSEEN)) seen[0] = (int)i + 1;
    });
}

}  // namespace neus
