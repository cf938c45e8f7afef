// The grid without a network, on all points: features, and the gradients of table and points. See grid.h.
#pragma once
#include "grid.h"

namespace neus {

// features [n, L * FEATURES]: zero in the levels that are not active.
inline void grid_encode(const GridSizes &sizes, long n, const float *points, const float *table, float *features) {
    const Grid grid = read_grid(sizes);
    each_place(n, grid.levels, [=] __device__(int r, int l, long at) {
        float *to = features + at * FEATURES;
        if (l >= grid.active) {
            for (int f = 0; f < FEATURES; f++) to[f] = 0.f;
            return;
        }
        const Cell cell(grid.level[l], points + r * 3l);
        for (int f = 0; f < FEATURES; f++) to[f] = cell.interpolate(table, f, nullptr, 0);
    });
}

// d_table.
inline void grid_encode_table(const GridSizes &sizes, long n, const float *points, const float *d_features,
                              float *d_table) {
    const Grid grid = read_grid(sizes);
    scatter(grid, n, {points, d_features, (long)grid.levels * FEATURES, nullptr, 0, nullptr}, d_table);
}

// d_points [n, 3].
inline void grid_encode_points(const GridSizes &sizes, long n, const float *points, const float *table,
                               const float *d_features, float *d_points) {
    const Grid grid = read_grid(sizes);
    each(n, [=] __device__(long r) {
        float sum[3] = {}, slopes[3];
        for (int l = 0; l < grid.active; l++) {
            const Cell cell(grid.level[l], points + r * 3);
            for (int f = 0; f < FEATURES; f++) {
                cell.interpolate(table, f, slopes, 1);
                const float d = d_features[(r * grid.levels + l) * FEATURES + f];
                for (int axis = 0; axis < 3; axis++) sum[axis] += slopes[axis] * d;
            }
        }
        for (int axis = 0; axis < 3; axis++) d_points[r * 3 + axis] = sum[axis];
    });
}

}  // namespace neus
