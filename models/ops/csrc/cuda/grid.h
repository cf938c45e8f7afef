// The multiresolution grid, one thread per point and level: features with their derivatives, and the gradient of the
// table. The reference is ops/grid.py.
//
// Points share rows of the table, and float32 additions in thread order would not be reproducible. So contributions are
// added as 64-bit integers, in units small enough to keep float32 precision: the sum does not depend on the order. They
// are computed without float64 and without conversions to 64 bits, which are slow on GPUs for consumers.
#pragma once
#include "level.h"
#include "reduce.h"

namespace neus {

constexpr int MOST_LEVELS = 64;       // the level table is passed with each launch
constexpr long MOST_PARTS = 1 << 10;  // blocks that search for the largest number

struct Grid {
    int levels, active;
    long size;  // of the table, in numbers
    Level level[MOST_LEVELS];
};

inline Grid read_grid(const GridSizes &sizes) {
    Grid grid{};
    grid.levels = (int)sizes.resolutions.size();
    grid.active = sizes.active;
    demand(grid.levels <= MOST_LEVELS, "levels of a grid", grid.levels);
    for (int l = 0; l < grid.levels; l++) {
        grid.level[l] = Level(sizes, l, grid.size);
        grid.size += grid.level[l].size;
    }
    return grid;
}

// The cell of a point in a level.
struct Cell {
    long corner[CORNERS];  // offset of its row in the table; bit 0 of a corner is along x, bit 1 y, bit 2 z
    float share[3];        // weight of the upper end
    float scale[3];        // its derivative; 0 for clamped coordinates

    __device__ Cell(const Level &level, const float *point) {
        int first[3];
        const float half = 0.5f * level.resolution;
        for (int axis = 0; axis < 3; axis++) {
            const float inside = fminf(fmaxf(point[axis], -1.f), 1.f), place = __fmul_rn(inside + 1.f, half);
            const int last = level.resolution - 1, lowest = (int)place < last ? (int)place : last;
            first[axis] = lowest > 0 ? lowest : 0;  // valid for any point, NaN included
            share[axis] = place - first[axis];
            scale[axis] = inside == point[axis] ? half : 0.f;
            if (level.smooth) smooth(share[axis], scale[axis]);
        }
        for (int c = 0; c < CORNERS; c++) {
            const uint32_t x = first[0] + (c & 1), y = first[1] + (c >> 1 & 1), z = first[2] + (c >> 2);
            const uint32_t side = level.resolution + 1;
            const uint32_t row = level.dense ? x + side * (y + side * z) : (x ^ y * HASH_Y ^ z * HASH_Z) & level.mask;
            corner[c] = level.start + (long)row * FEATURES;
        }
    }

    // Feature f and, unless null, its derivatives along the axes, `stride` apart.
    __device__ float interpolate(const float *table, int f, float *slopes, long stride) const {
        float low[4], along[4];  // on the four edges along x: at the lower end and the rise to the upper one
        for (int e = 0; e < 4; e++) {
            low[e] = table[corner[2 * e] + f];
            along[e] = table[corner[2 * e + 1] + f] - low[e];
        }
        const float x = share[0], y = share[1], z = share[2];
        const float edge[4] = {low[0] + x * along[0], low[1] + x * along[1], low[2] + x * along[2], low[3] + x * along[3]};
        const float rise[2] = {edge[1] - edge[0], edge[3] - edge[2]};  // along y, in the lower and the upper face
        const float face[2] = {edge[0] + y * rise[0], edge[2] + y * rise[1]};
        if (slopes) {
            const float lower = along[0] + y * (along[1] - along[0]), upper = along[2] + y * (along[3] - along[2]);
            slopes[0] = (lower + z * (upper - lower)) * scale[0];
            slopes[stride] = (rise[0] + z * (rise[1] - rise[0])) * scale[1];
            slopes[2 * stride] = (face[1] - face[0]) * scale[2];
        }
        return face[0] + z * (face[1] - face[0]);
    }

    // The gradient at corner c: the cotangent d of a feature times the corner's weight, and the feature's pull times
    // the derivative of that weight along `push`.
    __device__ float part(int c, float d, float pull, const float *push) const {
        const float x = c & 1 ? share[0] : 1.f - share[0], y = c & 2 ? share[1] : 1.f - share[1];
        const float z = c & 4 ? share[2] : 1.f - share[2];
        float sum = x * y * z * d;
        if (push) {
            const float in_x = push[0] * scale[0] * y * z, in_y = push[1] * scale[1] * x * z;
            const float in_z = push[2] * scale[2] * x * y;
            sum += pull * ((c & 1 ? in_x : -in_x) + (c & 2 ? in_y : -in_y) + (c & 4 ? in_z : -in_z));
        }
        return sum;
    }
};

// The cotangents that reach the table from n points: those of the features [n, stride] and, unless null, the
// derivatives of the distance with respect to them [n, stride_pull] with the cotangents of the gradient [n, 3].
struct Scattered {
    const float *points, *features;
    long stride;
    const float *pull;
    long stride_pull;
    const float *push;

    // An upper bound of the contributions of one of a point's features.
    __device__ float bound(const Grid &grid, long r, int l, int f) const {
        float sum = fabsf(features[r * stride + l * FEATURES + f]);
        if (!push) return sum;
        const float reach = fabsf(push[r * 3]) + fabsf(push[r * 3 + 1]) + fabsf(push[r * 3 + 2]);
        const float scale = (grid.level[l].smooth ? STEEPEST : 1.f) * (0.5f * grid.level[l].resolution);
        return sum + fabsf(pull[r * stride_pull + l * FEATURES + f]) * reach * scale;
    }
};

// largest = the largest bound, as bits: non-negative floats are ordered like their bits, and values that are not finite
// come last.
__global__ inline void largest_kernel(long n, Grid grid, Scattered from, unsigned *largest) {
    SHARED(unsigned, found, THREADS);
    const long width = (long)grid.active * FEATURES;
    unsigned most = 0;
    for (long i = blockIdx.x * (long)THREADS + threadIdx.x; i < n * width; i += (long)gridDim.x * THREADS) {
        const int at = (int)(i % width);
        const float bound = from.bound(grid, i / width, at / FEATURES, at % FEATURES);
        unsigned bits;
        memcpy(&bits, &bound, sizeof(bits));
        bits &= 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    found[threadIdx.x] = most;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half && found[threadIdx.x + half] > found[threadIdx.x])
            found[threadIdx.x] = found[threadIdx.x + half];
    }
    if (threadIdx.x == 0) atomicMax(largest, found[0]);
}

constexpr int HIGH_BITS = 21, MOST_LOW_BITS = 22, LARGEST_POWER = 126;

__device__ inline float power_of_two(int exponent) {  // -126 to 127
    const uint32_t bits = (uint32_t)(exponent + 127) << 23;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// The integer nearest to x, |x| below 2^22, and what is left of x. In a float near 1.5 * 2^23, the last bit is 1.
__device__ inline int nearest(float x, float *left) {
    constexpr float MIDDLE = 12582912.f;
    constexpr int MIDDLE_BITS = 0x4b400000;
    const float sum = __fadd_rn(x, MIDDLE);
    *left = __fsub_rn(x, __fsub_rn(sum, MIDDLE));
    int bits;
    memcpy(&bits, &sum, sizeof(bits));
    return bits - MIDDLE_BITS;
}

// The bits of a contribution below its HIGH_BITS: as many as the sum of 8 of each of n points leaves below 2^62.
inline int low_bits_of(long n) {
    int bits = 62 - 3 - HIGH_BITS;
    for (long points = 1; points < n; points *= 2) bits--;
    return bits < MOST_LOW_BITS ? bits : MOST_LOW_BITS;
}

// Contributions as integers: HIGH_BITS of their products with `unit`, then low_bits. The rounding error of one is at most
// largest / 2^(HIGH_BITS + low_bits): 2^-42 of the largest for n up to 2^17.
struct FixedPoint {
    float unit, low, low_back, unit_back;

    __device__ FixedPoint(unsigned largest, int low_bits) {
        const int exponent = (int)(largest >> 23) - 127 + 1;  // `largest` is below 2^exponent
        const int shift = HIGH_BITS - exponent < LARGEST_POWER ? HIGH_BITS - exponent : LARGEST_POWER;
        unit = power_of_two(shift);
        unit_back = power_of_two(-shift);
        low = power_of_two(low_bits);
        low_back = power_of_two(-low_bits);
    }
    __device__ unsigned long long of(float part) const {
        float left, lost;
        const int high = nearest(part * unit, &left), rest = nearest(left * low, &lost);
        return (unsigned long long)((long long)high * (int)low + rest);
    }
    __device__ float back(unsigned long long sum) const { return (float)(long long)sum * low_back * unit_back; }
};

// d_table from cotangents of n points.
inline void scatter(const Grid &grid, long n, const Scattered &from, float *d_table) {
    Scratch<unsigned> largest_scratch(1);
    Scratch<unsigned long long> sum_scratch(grid.size);
    unsigned *largest = largest_scratch.values;
    unsigned long long *sums = sum_scratch.values;
    clear(largest, 1);
    clear(sums, grid.size);
    const int low_bits = low_bits_of(n);
    if (n > 0 && grid.active > 0) {
        const long blocks = (n * grid.active * FEATURES + THREADS - 1) / THREADS;
        launch(largest_kernel, dim3((unsigned)(blocks < MOST_PARTS ? blocks : MOST_PARTS)), THREADS, n,
               grid, from, largest);
        each_place(grid.active, (int)n, [=] __device__(int l, int point, long) {  // neighbours in memory at once
            const long r = point;
            const FixedPoint fixed(largest[0], low_bits);
            const Cell cell(grid.level[l], from.points + r * 3);
            for (int f = 0; f < FEATURES; f++) {
                const float d = from.features[r * from.stride + l * FEATURES + f];
                const float pull = from.push ? from.pull[r * from.stride_pull + l * FEATURES + f] : 0.f;
                for (int c = 0; c < CORNERS; c++) {
                    const float part = cell.part(c, d, pull, from.push ? from.push + r * 3 : nullptr);
                    atomicAdd(sums + cell.corner[c] + f, fixed.of(part));
                }
            }
        });
    }
    each(grid.size, [=] __device__(long i) {
        const float lost = largest[0] >= EXPONENT ? NAN : 0.f;  // NaN if any contribution is not finite
        d_table[i] = FixedPoint(largest[0], low_bits).back(sums[i]) + lost;
    });
}

}  // namespace neus
