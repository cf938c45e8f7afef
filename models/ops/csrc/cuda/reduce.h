// Sums whose order depends only on their length: bit-identical on all GPUs.
#pragma once
#include "device.h"

namespace neus {

constexpr int SUM_COLUMNS = 32, SUM_ROWS = 8;  // of a block's threads
constexpr long ROWS_OF_A_SLICE = 256, MOST_SLICES = 64;

// Sum of the block's THREADS values, in thread 0; `shared` has room for them.
template <typename T>
__device__ inline T block_sum(T value, T *shared) {
    const int t = threadIdx.x;
    shared[t] = value;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) shared[t] += shared[t + half];
    }
    __syncthreads();
    return shared[0];
}

// parts [slices, width], added to if `keeps`: sums of the columns over a slice of the rows each.
__global__ inline void column_sums_kernel(long rows, int width, const float *values, long stride, bool keeps, float *parts) {
    SHARED(float, sums, SUM_ROWS * SUM_COLUMNS);
    const long rows_of_a_slice = (rows + gridDim.y - 1) / gridDim.y;
    const int column = threadIdx.x % SUM_COLUMNS, row = threadIdx.x / SUM_COLUMNS;
    const int at = blockIdx.x * SUM_COLUMNS + column;
    const long slice = blockIdx.y, begin = slice * rows_of_a_slice;
    const long end = begin + rows_of_a_slice < rows ? begin + rows_of_a_slice : rows;
    float sum = 0.f;
    if (at < width)
        for (long r = begin + row; r < end; r += SUM_ROWS) sum += values[r * stride + at];
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (row > 0 || at >= width) return;
    for (int other = 1; other < SUM_ROWS; other++) sum += sums[other * SUM_COLUMNS + column];
    parts[slice * width + at] = keeps ? parts[slice * width + at] + sum : sum;
}

inline long slices_of(long rows) {
    const long slices = (rows + ROWS_OF_A_SLICE - 1) / ROWS_OF_A_SLICE;
    return slices < 1 ? 1 : slices > MOST_SLICES ? MOST_SLICES : slices;
}

// Sums over slices of values [rows, width] -> parts [slices_of(rows), width].
inline void column_sums(long rows, int width, const float *values, long stride, bool keeps, float *parts) {
    const dim3 blocks((width + SUM_COLUMNS - 1) / SUM_COLUMNS, (unsigned)slices_of(rows));
    launch(column_sums_kernel, blocks, SUM_ROWS * SUM_COLUMNS, rows, width, values, stride, keeps, parts);
}

// sums [width] += scale times the columns of values [rows, width].
inline void add_columns(long rows, int width, float scale, const float *values, long stride, float *sums) {
    const long slices = slices_of(rows);
    Scratch<float> scratch(slices * width);
    float *parts = scratch.values;
    column_sums(rows, width, values, stride, false, parts);
    each(width, [=] __device__(long i) {
        float sum = 0.f;
        for (long slice = 0; slice < slices; slice++) sum += parts[slice * width + i];
        sums[i] += scale * sum;
    });
}

// first, second [1]: the sums of the two numbers of work(i, number, other number) for i = 0 ... n - 1.
template <typename Work>
inline void sum_pairs(long n, float *first, float *second, Work work) {
    Scratch<float> scratch(2 * n), sums(2);
    float *pairs = scratch.values, *found = sums.values;
    each(n, [=] __device__(long i) { work(i, pairs[2 * i], pairs[2 * i + 1]); });
    clear(found, 2);
    add_columns(n, 2, 1.f, pairs, 2, found);
    each(1, [=] __device__(long) {
        *first = found[0];
        *second = found[1];
    });
}

}  // namespace neus
