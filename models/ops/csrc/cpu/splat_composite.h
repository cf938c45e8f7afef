// Rasterise Gaussians front to back, tile by tile. One thread computes a tile. The contributions of tiles to a Gaussian
// are added in tile order and in float64, so that results do not depend on the number of threads. The reference is
// ops/splat_raster.py.
#pragma once
#if defined(__AVX__)
#include <immintrin.h>
#endif
#include "splat_surfel.h"
#include "splat_tiles.h"

namespace neus {

constexpr int ACROSS = 4, DOWN = LANES / ACROSS;  // pixels of a block, which is one vector
constexpr int BLOCKS_ACROSS = TILE / ACROSS, BLOCKS_DOWN = TILE / DOWN, BLOCKS = BLOCKS_ACROSS * BLOCKS_DOWN;

inline bool any(Ints flags) {
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)flags, (__m512i)flags) != 0;
#elif defined(__AVX__)
    return _mm256_movemask_ps((__m256)flags) != 0;
#else
    int found = 0;
    for (int i = 0; i < LANES; i++) found |= flags[i];
    return found != 0;
#endif
}

constexpr long AHEAD = 8;  // Gaussians of a list that are prefetched

// Gaussians in depth order with their windows.
template <typename Form>
struct Queue {
    struct Entry {
        typename Form::Splat splat;
        Window window;
    };
    std::vector<int> order;
    std::vector<Entry> entries;
    std::vector<Window> windows;

    Queue(const Raster &is, const typename Form::Inputs &in, const int *radii, long count)
        : order(by_depth(count, in.depths, radii)), entries(order.size()), windows(order.size()) {
#pragma omp parallel for schedule(static)
        for (size_t rank = 0; rank < order.size(); rank++) {
            Entry &entry = entries[rank];
            entry.splat = Form::splat(in, order[rank]);
            entry.window = windows[rank] = Form::reach_of(entry.splat, is.width, is.height);
        }
    }
    // The k-th Gaussian of a group's list; prefetches later ones.
    const Entry &at(const Group &group, long k) const {
        if (k + AHEAD < (long)group.ranks.size()) {
            const char *next = (const char *)&entries[group.ranks[k + AHEAD]];
            for (size_t byte = 0; byte < sizeof(Entry); byte += 64) __builtin_prefetch(next + byte);
        }
        return entries[group.ranks[k]];
    }
};

// The transmittance of the pixels of a tile.
template <typename Form>
struct Light {
    int x0, y0, lit;  // lit: number of blocks with transmittance left
    Vec px[BLOCKS], py[BLOCKS], left[BLOCKS], origin[BLOCKS];
    Ints live[BLOCKS];

    Light(const Raster &is, int tile) : lit(0) {
        const int across = (is.width + TILE - 1) / TILE;
        x0 = tile % across * TILE, y0 = tile / across * TILE;
        for (int b = 0; b < BLOCKS; b++) {
            for (int i = 0; i < LANES; i++) {
                const int x = b % BLOCKS_ACROSS * ACROSS + i % ACROSS, y = b / BLOCKS_ACROSS * DOWN + i / ACROSS;
                px[b][i] = x + 0.5f, py[b][i] = y + 0.5f;
                live[b][i] = x0 + x < is.width && y0 + y < is.height ? -1 : 0;
            }
            left[b] = Vec{} + 1.f, origin[b] = Vec{};
            lit += any(live[b]);
        }
    }
    // Apply a Gaussian: calls `use(block, hit, opacity, mask, weight, transmittance)` for blocks that it contributes
    // to.
    template <typename Use>
    void meet(const typename Form::Splat &s, const Window &w, const Use &use) {
        const int bx = std::max(0, w.left - x0) / ACROSS, ex = std::min(TILE - 1, w.right - x0) / ACROSS;
        const int by = std::max(0, w.top - y0) / DOWN, ey = std::min(TILE - 1, w.bottom - y0) / DOWN;
        for (int y = by; y <= ey; y++)
            for (int x = bx; x <= ex; x++) {
                const int b = y * BLOCKS_ACROSS + x;
                typename Form::Hit hit;
                const Opacity opacity(s.opacity, Form::sigma(s, px[b], py[b], hit));
                Ints on = (opacity.alpha >= LARGEST_FRACTION) & live[b];
                if (!any(on)) continue;
                const Vec before = left[b], after = before * (1.f - opacity.alpha);
                const Ints stops = on & (after <= LEAST_LEFT);
                on &= ~stops;
                const Vec weight = on ? before * opacity.alpha : Vec{};
                left[b] = on ? after : before;
                use(b, hit, opacity, on, weight, before);
                if (any(stops)) {
                    live[b] &= ~stops;
                    lit -= !any(live[b]);
                }
            }
    }
};

// Call `each(pixel, lane)` for the pixels of a block that are inside the image.
template <typename Each>
inline void pixels_of(const Raster &is, int x0, int y0, int block, const Each &each) {
    for (int i = 0; i < LANES; i++) {
        const int x = x0 + block % BLOCKS_ACROSS * ACROSS + i % ACROSS, y = y0 + block / BLOCKS_ACROSS * DOWN + i / ACROSS;
        if (x < is.width && y < is.height) each((long)y * is.width + x, i);
    }
}

// picture [H, W, channels + 1]: weighted sums, the opacity last.
template <typename Form>
inline void composite(const Raster &is, const typename Form::Inputs &in, const int *radii, long count,
                      const float *background, float *picture) {
    constexpr int SUMS = Form::CHANNELS, ALL = SUMS + 1;
    const Queue<Form> queue(is, in, radii, count);
    in_groups(queue.windows, is.width, is.height, [&](const Group &group) {
#pragma omp parallel for schedule(dynamic)
        for (int tile = group.first; tile < group.last; tile++) {
            Light<Form> light(is, tile);
            Vec sums[BLOCKS][SUMS] = {};
            for (long k = group.starts[tile - group.first]; k < group.starts[tile - group.first + 1] && light.lit; k++) {
                const auto &entry = queue.at(group, k);
                const auto splat = Form::seen_from(entry.splat, light.x0, light.y0);
                light.meet(splat, entry.window,
                           [&](int b, const typename Form::Hit &hit, const Opacity &, Ints, Vec weight, Vec before) {
                               light.origin[b] = Form::origin(hit, before, weight, light.origin[b]);
                               Form::add(sums[b], splat, hit, weight, before, light.origin[b]);
                           });
            }
            for (int b = 0; b < BLOCKS; b++)
                pixels_of(is, light.x0, light.y0, b, [&](long pixel, int i) {
                    float *to = picture + pixel * ALL;
                    for (int c = 0; c < SUMS; c++) to[c] = sums[b][c][i] + (c < 3 ? light.left[b][i] * background[c] : 0.f);
                    to[SUMS] = 1.f - light.left[b][i];
                });
        }
    });
}

// The gradients of the inputs from an image and its cotangent.
template <typename Form>
inline void composite_backward(const Raster &is, const typename Form::Inputs &in, const int *radii, long count,
                               const float *picture, const float *d_picture, const typename Form::Outputs &out) {
    constexpr int SUMS = Form::CHANNELS, ALL = SUMS + 1, GRADIENTS = Form::GRADIENTS;
    const Queue<Form> queue(is, in, radii, count);
    std::vector<double> sums(count * GRADIENTS);
    std::vector<float> records;
    in_groups(queue.windows, is.width, is.height, [&](const Group &group) {
        records.resize(group.ranks.size() * GRADIENTS);
#pragma omp parallel for schedule(dynamic)
        for (int tile = group.first; tile < group.last; tile++) {
            Light<Form> light(is, tile);
            Vec g[BLOCKS][ALL] = {}, rest[BLOCKS] = {};
            for (int b = 0; b < BLOCKS; b++)
                pixels_of(is, light.x0, light.y0, b, [&](long pixel, int i) {
                    const float *shown = picture + pixel * ALL, *by = d_picture + pixel * ALL;
                    for (int c = 0; c < ALL; c++)
                        if (c < Form::SUMMED || c == SUMS) g[b][c][i] = by[c], rest[b][i] += shown[c] * by[c];
                });
            const long end = group.starts[tile - group.first + 1];
            for (long k = group.starts[tile - group.first]; k < end; k++) {
                float *record = records.data() + k * GRADIENTS;
                std::fill(record, record + GRADIENTS, 0.f);
                if (!light.lit) continue;
                const auto &entry = queue.at(group, k);
                const auto splat = Form::seen_from(entry.splat, light.x0, light.y0);
                Vec acc[GRADIENTS] = {};
                bool is_met = false;
                light.meet(splat, entry.window, [&](int b, const typename Form::Hit &hit, const Opacity &opacity,
                                                           Ints on, Vec weight, Vec before) {
                    is_met = true;
                    light.origin[b] = Form::origin(hit, before, weight, light.origin[b]);
                    const Vec worth = g[b][SUMS] + Form::worth(g[b], splat, hit, light.origin[b]);
                    rest[b] -= weight * worth;
                    Vec d_alpha = before * worth - rest[b] / (1.f - opacity.alpha);
                    d_alpha = on ? d_alpha : Vec{};
                    const Vec passed = d_alpha * opacity.passes;
                    acc[Form::D_OPACITY] += passed;
                    Form::back(acc, splat, hit, -passed, weight, g[b], light.origin[b]);
                });
                if (!is_met) continue;
                for (int c = 0; c < GRADIENTS; c++) record[c] = sum_of(acc[c]);
                record[Form::D_OPACITY] /= splat.opacity;
                Form::finish(splat, light.x0, light.y0, record);
            }
        }
        for (size_t k = 0; k < group.ranks.size(); k++) {
            double *total = sums.data() + (long)queue.order[group.ranks[k]] * GRADIENTS;
            for (int c = 0; c < GRADIENTS; c++) total[c] += records[k * GRADIENTS + c];
        }
    });
    float values[GRADIENTS];
    for (long n = 0; n < count; n++) {
        std::copy(sums.data() + n * GRADIENTS, sums.data() + (n + 1) * GRADIENTS, values);
        Form::write(out, n, values);
    }
}

}  // namespace neus
