// The multiresolution grid on blocks of points: cells, features with their derivatives, and the gradient of the table.
// The reference is ops/grid.py.
//
// A vector holds GROUP points with FEATURES numbers each, side by side as they lie in the table: a corner of a point is
// one load of 64 bits. Within a block the arrays are [.., BLOCK * FEATURES] in that order.
#pragma once
#include "layers.h"
#include "level.h"

namespace neus {

constexpr int GROUP = LANES / FEATURES, PAIRS = BLOCK * FEATURES;

typedef double Wide __attribute__((vector_size(LANES * sizeof(float)), may_alias, aligned(4)));
typedef double Corner __attribute__((may_alias, aligned(4)));  // FEATURES numbers of a row, moved as one
typedef float Pair __attribute__((vector_size(FEATURES * sizeof(float)), may_alias, aligned(4)));

inline std::vector<Level> read_levels(const GridSizes &sizes) {
    std::vector<Level> levels;
    for (int l = 0; l < (int)sizes.resolutions.size(); l++)
        levels.emplace_back(sizes, l, l > 0 ? levels[l - 1].start + levels[l - 1].size : 0);
    return levels;
}

// The cells of the points of a block in one level.
struct Cells {
    int corner[CORNERS][BLOCK];  // rows of the level; bit 0 of a corner is along x, bit 1 along y, bit 2 along z
    float share[3][PAIRS];       // weight of the upper end, repeated for each feature
    float scale[3][PAIRS];       // its derivative; 0 for clamped coordinates
};

// The rows of the eight corners from the indices of the cell.
inline void find_rows(const Level &level, const int (*cell)[BLOCK], int (*corner)[BLOCK]) {
    const int side = level.resolution + 1;
    if (level.dense) {
#pragma omp simd
        for (int r = 0; r < BLOCK; r++) {
            const int first = cell[0][r] + side * (cell[1][r] + side * cell[2][r]);
#pragma GCC unroll 8
            for (int c = 0; c < CORNERS; c++)
                corner[c][r] = first + (c & 1) + (c >> 1 & 1) * side + (c >> 2) * side * side;
        }
        return;
    }
#pragma omp simd
    for (int r = 0; r < BLOCK; r++) {
        const uint32_t x = cell[0][r], y = cell[1][r] * HASH_Y, z = cell[2][r] * HASH_Z;
#pragma GCC unroll 8
        for (int c = 0; c < CORNERS; c++)
            corner[c][r] = ((x + (c & 1)) ^ (y + (c & 2 ? HASH_Y : 0u)) ^ (z + (c & 4 ? HASH_Z : 0u))) & level.mask;
    }
}

// Find the cells of the points [3, BLOCK] of a block.
inline void locate(const Level &level, const float *points, Cells &cells) {
    int cell[3][BLOCK];
    const float half = 0.5f * level.resolution;
    const int last = level.resolution - 1;
    for (int axis = 0; axis < 3; axis++) {
        const float *from = points + axis * BLOCK;
        float share[BLOCK], scale[BLOCK];
#pragma omp simd
        for (int r = 0; r < BLOCK; r++) {
            const float inside = std::min(std::max(from[r], -1.f), 1.f), place = (inside + 1.f) * half;
            const int lowest = std::max(std::min((int)place, last), 0);  // valid for any point, NaN included
            cell[axis][r] = lowest;
            share[r] = place - lowest;
            scale[r] = inside == from[r] ? half : 0.f;
            if (level.smooth) smooth(share[r], scale[r]);
        }
        for (int r = 0; r < BLOCK; r++)
            for (int f = 0; f < FEATURES; f++) {
                cells.share[axis][r * FEATURES + f] = share[r];
                cells.scale[axis][r * FEATURES + f] = scale[r];
            }
    }
    find_rows(level, cell, cells.corner);
}

// Prefetch the rows of a block's corners; the two along x mostly share a cache line.
inline void prefetch(const float *table, const Cells &cells) {
    for (int c = 0; c < CORNERS; c += 2)
        for (int r = 0; r < BLOCK; r++) __builtin_prefetch(table + (size_t)cells.corner[c][r] * FEATURES);
}

// The features at one corner of GROUP points.
inline Vec fetch(const float *table, const int *rows) {
    const Corner *from = (const Corner *)table;
#if defined(__AVX512F__)
    const Wide wide = {from[rows[0]], from[rows[1]], from[rows[2]], from[rows[3]],
                       from[rows[4]], from[rows[5]], from[rows[6]], from[rows[7]]};
#elif defined(__AVX__)
    const Wide wide = {from[rows[0]], from[rows[1]], from[rows[2]], from[rows[3]]};
#else
    const Wide wide = {from[rows[0]], from[rows[1]]};
#endif
    return (Vec)wide;
}

inline const Unaligned &at(const float *values, int group) { return *(const Unaligned *)(values + group * LANES); }
inline Unaligned &at(float *values, int group) { return *(Unaligned *)(values + group * LANES); }

// Features [PAIRS] of a block in a level and, unless null, their derivatives along the axes [3, PAIRS].
inline void interpolate(const float *table, const Cells &cells, float *features, float *slopes) {
    for (int g = 0; g < BLOCK / GROUP; g++) {
        Vec low[4], along[4];  // on the four edges along x: at the lower end and the rise to the upper one
#pragma GCC unroll 4
        for (int e = 0; e < 4; e++) {
            low[e] = fetch(table, cells.corner[2 * e] + g * GROUP);
            along[e] = fetch(table, cells.corner[2 * e + 1] + g * GROUP) - low[e];
        }
        const Vec x = at(cells.share[0], g), y = at(cells.share[1], g), z = at(cells.share[2], g);
        const Vec edge[4] = {low[0] + x * along[0], low[1] + x * along[1], low[2] + x * along[2], low[3] + x * along[3]};
        const Vec rise[2] = {edge[1] - edge[0], edge[3] - edge[2]};  // along y, in the lower and the upper face
        const Vec face[2] = {edge[0] + y * rise[0], edge[2] + y * rise[1]};
        at(features, g) = face[0] + z * (face[1] - face[0]);
        if (!slopes) continue;
        const Vec lower = along[0] + y * (along[1] - along[0]), upper = along[2] + y * (along[3] - along[2]);
        at(slopes, g) = (lower + z * (upper - lower)) * at(cells.scale[0], g);
        at(slopes + PAIRS, g) = (rise[0] + z * (rise[1] - rise[0])) * at(cells.scale[1], g);
        at(slopes + 2 * PAIRS, g) = (face[1] - face[0]) * at(cells.scale[2], g);
    }
}

// The gradients at each corner [CORNERS, LANES] of group g: the cotangents of the features times the corner's weight
// and, with SLOPES, `slope` (derivative of the distance with respect to the features) times the derivative of that
// weight along `push` [3, PAIRS] (cotangent of the gradient of the distance).
template <bool SLOPES>
inline void corner_parts(const Cells &cells, int g, const float *features, const float *slope, const float *push,
                         float *parts) {
    const Vec x = at(cells.share[0], g), d = at(features, g);
    const Vec y[2] = {1.f - at(cells.share[1], g), at(cells.share[1], g)};
    const Vec z[2] = {1.f - at(cells.share[2], g), at(cells.share[2], g)};
    Vec along_x{}, along_y{}, along_z{};
    if (SLOPES) {
        const Vec s = at(slope, g);
        along_x = s * at(push, g) * at(cells.scale[0], g);
        along_y = s * at(push + PAIRS, g) * at(cells.scale[1], g);
        along_z = s * at(push + 2 * PAIRS, g) * at(cells.scale[2], g);
    }
#pragma GCC unroll 4
    for (int e = 0; e < 4; e++) {
        const int up = e & 1, far = e >> 1;
        const Vec area = y[up] * z[far];
        Vec both = area * d, upper = x * both;
        if (SLOPES) {
            const Vec in_y = z[far] * along_y, in_z = y[up] * along_z;
            both += (up ? in_y : -in_y) + (far ? in_z : -in_z);
            upper = x * both + area * along_x;
        }
        *(Unaligned *)(parts + 2 * e * LANES) = both - upper;
        *(Unaligned *)(parts + (2 * e + 1) * LANES) = upper;
    }
}

// Add a block's parts to a level's gradient, point by point: the order, and so the sum, is always the same.
template <bool SLOPES>
inline void scatter(const Cells &cells, const float *features, const float *slope, const float *push, float *gradient) {
    float parts[CORNERS * LANES];
    for (int g = 0; g < BLOCK / GROUP; g++) {
        corner_parts<SLOPES>(cells, g, features, slope, push, parts);
        for (int j = 0; j < GROUP; j++)
#pragma GCC unroll 8
            for (int c = 0; c < CORNERS; c++)
                *(Pair *)(gradient + (size_t)cells.corner[c][g * GROUP + j] * FEATURES) +=
                    *(const Pair *)(parts + c * LANES + j * FEATURES);
    }
}

// Points [count, 3] as [3, BLOCK]; those past `count` are at the origin.
inline void transpose_points(const float *points, int count, float *to) {
    for (int axis = 0; axis < 3; axis++)
        for (int r = 0; r < BLOCK; r++) to[axis * BLOCK + r] = r < count ? points[r * 3 + axis] : 0.f;
}

// Columns [start, start + FEATURES) of rows [BLOCK, ld] to [PAIRS], and back.
inline void take_columns(const float *rows, long ld, long start, float *pairs) {
    for (int r = 0; r < BLOCK; r++) *(Pair *)(pairs + r * FEATURES) = *(const Pair *)(rows + r * ld + start);
}

inline void put_columns(const float *pairs, float *rows, long ld, long start) {
    for (int r = 0; r < BLOCK; r++) *(Pair *)(rows + r * ld + start) = *(const Pair *)(pairs + r * FEATURES);
}

}  // namespace neus
