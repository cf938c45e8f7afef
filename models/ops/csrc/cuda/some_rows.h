// Work on rows whose number only the GPU knows: launched for the most rows that there may be; threads and blocks
// beyond the number return at once. cuBLAS needs the number on the host, so the products are computed here, in float32.
// Sums have an order that depends only on the number of rows.
#pragma once
#include "device.h"

namespace neus {

// Rows `begin` to `begin + most` of those whose number is *count.
struct SomeRows {
    long most;
    const int *count;
    long begin;
};

inline long most_of(const SomeRows &rows) { return rows.most; }

inline SomeRows part_of(const SomeRows &rows, long begin, long most) {
    return {rows.most - begin < most ? rows.most - begin : most, rows.count, rows.begin + begin};
}

// The number of rows, on the GPU.
__device__ inline long number_of(const SomeRows &rows) {
    const long left = *rows.count - rows.begin;
    return left < 0 ? 0 : left < rows.most ? left : rows.most;
}

// The tile of a product that a block computes, and the part of it that a thread keeps in registers.
constexpr int TILE_ROWS = 128, TILE_COLUMNS = 64, TILE_DEPTH = 16, TILE_THREADS = 256, OWN_ROWS = 8, OWN_COLUMNS = 4;
constexpr int TILE_PAD = 4;  // spreads a column over the banks of shared memory, and keeps rows aligned
constexpr long DEPTH_OF_A_SLICE = 64, MOST_DEPTH_SLICES = 32;

struct Matrix {
    const float *values;
    long stride;
};

struct alignas(16) Four {
    float values[4];
};

// The values of a thread of a tile [WIDTH, TILE_DEPTH] of an operand, on their way from memory to shared memory.
// IS_DEEP: the operand is [width, depth], else [depth, width]. Neighbouring threads read neighbouring values.
template <int WIDTH, bool IS_DEEP>
struct Tile {
    static constexpr int LINE = IS_DEEP ? TILE_DEPTH : WIDTH, LINES = TILE_THREADS / LINE;  // read at once
    static constexpr int COUNT = WIDTH * TILE_DEPTH / TILE_THREADS, STRIDE = WIDTH + TILE_PAD;
    int column, line;
    const float *from;
    long stride;
    float values[COUNT];

    // The tile that begins at position `first` of the width and `begin` of the depth.
    __device__ Tile(const Matrix &operand, long first, long begin)
        : column(threadIdx.x % LINE), line(threadIdx.x / LINE), stride(operand.stride) {
        from = operand.values + (IS_DEEP ? first + line : begin + line) * stride + (IS_DEEP ? begin : first) + column;
    }

    // Read it, 0 beyond the remaining width and depth, and move on to the next along the depth.
    __device__ void read(long width, long depth) {
        const bool is_in_line = column < (IS_DEEP ? depth : width);
        const int lines = (int)(IS_DEEP ? width : depth) - line;
#pragma unroll
        for (int n = 0; n < COUNT; n++) values[n] = is_in_line && n * LINES < lines ? from[n * LINES * stride] : 0.f;
        from += IS_DEEP ? TILE_DEPTH : TILE_DEPTH * stride;
    }

    __device__ void write(float *shared) const {
        shared += IS_DEEP ? column * STRIDE + line : line * STRIDE + column;
#pragma unroll
        for (int n = 0; n < COUNT; n++) shared[n * LINES * (IS_DEEP ? 1 : STRIDE)] = values[n];
    }
};

// C [rows, columns] = scale A B + keep C. If the depth is `Depth` SomeRows, each slice of it (blockIdx.z) has its C,
// `size` values apart.
template <bool IS_DEEP_A, bool IS_DEEP_B, typename Rows, typename Depth>
__global__ void __launch_bounds__(TILE_THREADS, 2)
    product_kernel(Rows rows_, int columns, Depth depth_, float scale, Matrix a, Matrix b, float keep, float *c,
                   long stride_c, long size) {
    using TileA = Tile<TILE_ROWS, IS_DEEP_A>;
    using TileB = Tile<TILE_COLUMNS, IS_DEEP_B>;
    SHARED(Four, shared_a, TILE_DEPTH * TileA::STRIDE / 4);
    SHARED(Four, shared_b, TILE_DEPTH * TileB::STRIDE / 4);
    const long rows = number_of(rows_), depth = number_of(depth_);
    const long row = (long)blockIdx.x * TILE_ROWS, column = (long)blockIdx.y * TILE_COLUMNS;
    const long begin = depth * blockIdx.z / gridDim.z, end = depth * (blockIdx.z + 1) / gridDim.z;
    if (row >= rows || depth == 0) return;
    constexpr int ACROSS = TILE_COLUMNS / OWN_COLUMNS;
    const int own_row = threadIdx.x / ACROSS * OWN_ROWS, own_column = threadIdx.x % ACROSS * OWN_COLUMNS;
    float sums[OWN_ROWS][OWN_COLUMNS] = {};
    TileA next_a(a, row, begin);
    TileB next_b(b, column, begin);
    next_a.read(rows - row, end - begin);
    next_b.read(columns - column, end - begin);
    for (long k = begin; k < end; k += TILE_DEPTH) {
        next_a.write((float *)shared_a);
        next_b.write((float *)shared_b);
        __syncthreads();
        next_a.read(rows - row, end - k - TILE_DEPTH);
        next_b.read(columns - column, end - k - TILE_DEPTH);
#pragma unroll
        for (int d = 0; d < TILE_DEPTH; d++) {
            const Four *of_a = shared_a + (d * TileA::STRIDE + own_row) / 4;
            const Four low = of_a[0], high = of_a[1], right = shared_b[(d * TileB::STRIDE + own_column) / 4];
#pragma unroll
            for (int i = 0; i < OWN_ROWS; i++)
#pragma unroll
                for (int j = 0; j < OWN_COLUMNS; j++)
                    sums[i][j] += (i < 4 ? low.values[i % 4] : high.values[i % 4]) * right.values[j];
        }
        __syncthreads();
    }
    c += blockIdx.z * size;
    for (int i = 0; i < OWN_ROWS; i++)
        for (int j = 0; j < OWN_COLUMNS; j++) {
            const long r = row + own_row + i, k = column + own_column + j;
            if (r >= rows || k >= columns) continue;
            float &to = c[r * stride_c + k];
            to = scale * sums[i][j] + (keep != 0.f ? keep * to : 0.f);
        }
}

inline dim3 tiles_of(long rows, long columns, long slices) {
    return dim3((unsigned)((rows + TILE_ROWS - 1) / TILE_ROWS), (unsigned)((columns + TILE_COLUMNS - 1) / TILE_COLUMNS),
                (unsigned)slices);
}

// See `product` of device.h: A is [rows, depth].
inline void product(const SomeRows &rows, long columns, long depth, float scale, const float *a, long stride_a, bool,
                    const float *b, long stride_b, bool turn_b, float keep, float *c, long stride_c) {
    const auto kernel = turn_b ? product_kernel<true, true, SomeRows, long> : product_kernel<true, false, SomeRows, long>;
    launch(kernel, tiles_of(rows.most, columns, 1), TILE_THREADS, rows, columns, depth, scale, Matrix{a, stride_a},
           Matrix{b, stride_b}, keep, c, stride_c, 0l);
}

// A is [depth, rows] and B is [depth, columns].
inline void product(long rows, long columns, const SomeRows &depth, float scale, const float *a, long stride_a, bool,
                    const float *b, long stride_b, bool, float keep, float *c, long stride_c) {
    const long most = (depth.most + DEPTH_OF_A_SLICE - 1) / DEPTH_OF_A_SLICE, size = rows * columns;
    const long slices = most < MOST_DEPTH_SLICES ? most : MOST_DEPTH_SLICES;
    Scratch<float> scratch(slices * size);
    float *parts = scratch.values;
    launch(product_kernel<false, false, long, SomeRows>, tiles_of(rows, columns, slices), TILE_THREADS, rows, columns,
           depth, scale, Matrix{a, stride_a}, Matrix{b, stride_b}, 0.f, parts, columns, size);
    const SomeRows some = depth;
    each_place(rows, (int)columns, [=] __device__(int r, int i, long at) {
        if (number_of(some) == 0) return;
        float sum = 0.f;
        for (long slice = 0; slice < slices; slice++) sum += parts[slice * size + at];
        float &to = c[r * stride_c + i];
        to = sum + (keep != 0.f ? keep * to : 0.f);
    });
}

}  // namespace neus
