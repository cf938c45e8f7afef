// The grid without a network, on all points: features, and the gradients of table and points. See grid.h.
#pragma once
#include "grid.h"

namespace neus {

// features [n, L * FEATURES]: zero in the levels that are not active.
inline void grid_encode(const GridSizes &sizes, long n, const float *points, const float *table, float *features) {
    const std::vector<Level> levels = read_levels(sizes);
    const long width = (long)levels.size() * FEATURES;
#pragma omp parallel for schedule(dynamic)
    for (long begin = 0; begin < n; begin += BLOCK) {
        Cells cells;
        float block[3 * BLOCK], pairs[PAIRS];
        const int count = (int)std::min<long>(BLOCK, n - begin);
        transpose_points(points + begin * 3, count, block);
        for (int l = 0; l < (int)levels.size(); l++) {
            std::fill(pairs, pairs + PAIRS, 0.f);
            if (l < sizes.active) {
                locate(levels[l], block, cells);
                interpolate(table + levels[l].start, cells, pairs, nullptr);
            }
            for (int r = 0; r < count; r++)
                *(Pair *)(features + (begin + r) * width + l * FEATURES) = *(const Pair *)(pairs + r * FEATURES);
        }
    }
}

// One level of a block of cotangents [n, L * FEATURES] as [PAIRS], zero past the points.
inline void take_cotangents(const float *d_features, long width, int level, long begin, int count, float *pairs) {
    std::fill(pairs, pairs + PAIRS, 0.f);
    for (int r = 0; r < count; r++)
        *(Pair *)(pairs + r * FEATURES) = *(const Pair *)(d_features + (begin + r) * width + level * FEATURES);
}

// d_table, level by level, each by one thread in the order of the points.
inline void grid_encode_table(const GridSizes &sizes, long n, const float *points, const float *d_features,
                              float *d_table) {
    const std::vector<Level> levels = read_levels(sizes);
    const long width = (long)levels.size() * FEATURES;
#pragma omp parallel for schedule(dynamic)
    for (int l = (int)levels.size() - 1; l >= 0; l--) {
        Cells cells;
        float block[3 * BLOCK], pairs[PAIRS], *gradient = d_table + levels[l].start;
        std::memset(gradient, 0, levels[l].size * sizeof(float));
        for (long begin = 0; l < sizes.active && begin < n; begin += BLOCK) {
            const int count = (int)std::min<long>(BLOCK, n - begin);
            transpose_points(points + begin * 3, count, block);
            take_cotangents(d_features, width, l, begin, count, pairs);
            locate(levels[l], block, cells);
            scatter<false>(cells, pairs, nullptr, nullptr, gradient);
        }
    }
}

// d_points [n, 3].
inline void grid_encode_points(const GridSizes &sizes, long n, const float *points, const float *table,
                               const float *d_features, float *d_points) {
    const std::vector<Level> levels = read_levels(sizes);
    const long width = (long)levels.size() * FEATURES;
#pragma omp parallel for schedule(dynamic)
    for (long begin = 0; begin < n; begin += BLOCK) {
        Cells cells;
        float block[3 * BLOCK], pairs[PAIRS], features[PAIRS], slopes[3 * PAIRS];
        const int count = (int)std::min<long>(BLOCK, n - begin);
        transpose_points(points + begin * 3, count, block);
        std::fill(d_points + begin * 3, d_points + (begin + count) * 3, 0.f);
        for (int l = 0; l < sizes.active; l++) {
            locate(levels[l], block, cells);
            interpolate(table + levels[l].start, cells, features, slopes);
            take_cotangents(d_features, width, l, begin, count, pairs);
            for (int r = 0; r < count; r++)
                for (int axis = 0; axis < 3; axis++)
                    for (int f = 0; f < FEATURES; f++)
                        d_points[(begin + r) * 3 + axis] +=
                            slopes[axis * PAIRS + r * FEATURES + f] * pairs[r * FEATURES + f];
        }
    }
}

}  // namespace neus
