// Products of a tile of points with the weights of a layer on tensor cores, to the accuracy of float32.
//
// A block keeps the inputs of a layer for its points in shared memory, where the outputs replace them. An operand v is
// held as two float16, high = v s rounded and low = v s - high rounded, with a power of two s that brings the largest to
// [2^13, 2^14); a product is high high + high low + low high. Since tensor cores cut off the digits of sums, the sum of
// every 64 channels is added to one in float32. With PRODUCTS = 1 the product is high high alone.
#pragma once
#include "device.h"

namespace neus {

constexpr int OWN = LANES;                 // a warp computes 32 points x 32 channels
constexpr int STEP = 16;                   // channels of a multiplication of fragments
constexpr int STEPS = 4;                   // multiplications that tensor cores sum up
constexpr int SKEW = 8;                    // values between rows, so that eight rows lie in all banks
constexpr int LINE = 32;                   // floats that are fetched at a time
constexpr int TILE_WARPS = 16;             // of the largest block
constexpr int LARGEST_EXPONENT = 13;
// Threads of the largest block. Below 8.0 no tile of 16 warps fits into shared memory, and the others may use all registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int TILE_BOUND = TILE_WARPS / 2 * LANES;
constexpr bool READS_AHEAD = false;  // for want of registers
#else
constexpr int TILE_BOUND = TILE_WARPS * LANES;
constexpr bool READS_AHEAD = true;
#endif

__host__ __device__ inline int rounded_up(int n, int step) { return (n + step - 1) / step * step; }

// A matrix [depth, columns] in the order in which the lanes of a warp multiply it, 16 bytes for each lane and 16 x 16
// values: first all high parts, then all low ones. `scales`: the inverse of s for every 16 columns. Depth and columns
// are rounded up with zeros, to STEP and OWN.
struct Factor {
    const uint4 *fragments;
    const float *scales;
    int depth, columns;
    __host__ __device__ int plane() const { return depth / STEP * (columns / STEP) * LANES; }
};

// Values of the points of a tile, [points, width], times 1 / scale, at places in shared memory.
struct Area {
    int high, low, stride;
    float scale;
};
__device__ inline uint16_t *shared_at(int place) {
    SHARED_OF_LAUNCH(shared);
    return (uint16_t *)shared + place;
}

// Rows [rows, stride] of a matrix in memory, from the first of a tile on; beyond them and the stride are zeros.
struct TileRows {
    float *values;
    int stride, rows;
    // From row `begin` on.
    __device__ TileRows part(long begin, int rows_of_tile) const { return {values + begin * stride, stride, rows_of_tile}; }
    __device__ bool has(int row, int column) const { return row < rows && column < stride; }
    __device__ float2 &at(int row, int column) const { return *(float2 *)(values + row * stride + column); }
    __device__ float2 read(int row, int column) const { return has(row, column) ? at(row, column) : float2{0.f, 0.f}; }
    __device__ void write(int row, int column, float a, float b) const {
        if (has(row, column)) at(row, column) = {a, b};
    }
    // Fetched by all threads of the block, to be read after a product.
    __device__ void fetch() const {
        for (int i = threadIdx.x * LINE; i < rows * stride; i += blockDim.x * LINE) fetch_ahead(values + i);
    }
};

// The sums of a lane: places (row, column) and (row, column + 1) of 32 x 32, see `each_pair`.
struct Sums {
    float at[2][4][4];
};

__device__ inline float of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
__device__ inline uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// |value|, 0 if it is not finite: such a value must not take the digits of the others.
__device__ inline float finite_size(float value) {
    return (bits_of(value) & EXPONENT) == EXPONENT ? 0.f : fabsf(value);
}

// The inverse of s for values of which the largest is `most`: a power of two.
__device__ inline float scale_of(float most) {
    const int exponent = (int)(bits_of(most) >> 23) - LARGEST_EXPONENT;
    return of_bits((uint32_t)(most == 0.f ? 127 : exponent < 1 ? 1 : exponent) << 23);
}
__device__ inline float inverse_of(float scale) { return of_bits((254u << 23) - bits_of(scale)); }

// Two neighbouring values, high and low.
struct Split {
    uint32_t high, low;
    __device__ Split(float a, float b) {
        high = halves(a, b);
        low = halves(a - lower_half(high), b - upper_half(high));
    }
};

// The points of a block, the place of a warp among its 32 x 32 parts, and shared memory.
struct Tile {
    int lane, row, column, columns, points;
    Area main, beside;

    // Behind the largest values of each warp, of up to two areas, are its parts of sums, and behind these the areas.
    static constexpr int PARTS = 2 * 2 * TILE_WARPS, AREAS = PARTS + 2 * TILE_WARPS * OWN;

    // `width`: channels of the main area, a power of two from OWN on; `beside`: of the other, in STEP.
    __device__ Tile(int width, int beside_width) : lane(threadIdx.x % LANES), columns(width) {
        const int warp = threadIdx.x / LANES, across = width / OWN;
        points = (int)blockDim.x / LANES / across * OWN;
        row = warp / across * OWN;
        column = warp % across * OWN;
        int from = AREAS;
        main = area(from, points, width);
        beside = area(from, points, beside_width);
    }

    // The first point of this block, and the number of its points among `all`; not positive behind the last.
    __device__ long first() const { return (long)blockIdx.x * points; }
    __device__ int rows_of(long all) const { return (int)(all - first() < points ? all - first() : points); }

    // The warps with the same rows, which share nothing with others: one row computes while another one stores.
    __device__ int across() const { return columns / OWN; }
    __device__ int first_warp() const { return row / OWN * across(); }
    __device__ int thread_of_row() const { return threadIdx.x % columns; }
    __device__ void together() const { wait_for(row / OWN + 1, columns); }

    // The inverse of s for values of which `most` is the largest of this thread, common to `warps` warps from the first
    // one on. They have left the areas then. Calls of the same number must have another barrier between them.
    __device__ float common_scale(float most, int first, int warps, int number = 0) const {
        float *largest = (float *)shared_at(0) + number * TILE_WARPS;
        most = largest_of_warp(most);
        if (lane == 0) largest[threadIdx.x / LANES] = most;
        wait_for(first / warps + 1, warps * LANES);
        for (int warp = first; warp < first + warps; warp++) most = fmaxf(most, largest[warp]);
        return scale_of(most);
    }
    __device__ float scale_of_row(float most) const { return common_scale(most, first_warp(), across()); }

    __device__ static Area area(int &from, int rows, int width) {
        const int stride = width + SKEW;
        Area made{from, from + rows * stride, stride, 1.f};
        from += 2 * rows * stride;
        return made;
    }
};

// Bytes of shared memory, and the points, of a tile of `warps` warps.
inline long shared_of(int warps, int width, int beside) {
    return Tile::AREAS * sizeof(uint16_t) + (warps * OWN * OWN / width) * 4l * (width + beside + 2 * SKEW);
}

// work(row, column, value, next value) for pairs of sums at rows of the tile and columns from `first` on; of these BEGIN
// to END of the halves of the rows.
template <int BEGIN = 0, int END = 2, typename Work>
__device__ inline void each_pair(const Tile &tile, int first, Sums &sums, Work work) {
    const int lane = not_before(tile.lane);
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int m = BEGIN; m < END; m++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                work(tile.row + 16 * m + lane / 4 + 8 * j, first + 8 * n + 2 * (lane % 4), sums.at[m][n][2 * j],
                     sums.at[m][n][2 * j + 1]);
}

// sums += of_row(row) of_column(column).
template <typename OfRow, typename OfColumn>
__device__ inline void add_outer(const Tile &tile, Sums &sums, OfRow of_row, OfColumn of_column) {
    const int lane = not_before(tile.lane);
    float left[4];
#pragma unroll
    for (int r = 0; r < 4; r++) left[r] = of_row(tile.row + 8 * r + lane / 4);
#pragma unroll
    for (int n = 0; n < 8; n++) {
        const float right = of_column(tile.column + n / 2 * 8 + 2 * (lane % 4) + n % 2);
#pragma unroll
        for (int r = 0; r < 4; r++) sums.at[r / 2][n / 2][r % 2 * 2 + n % 2] += left[r] * right;
    }
}

// work(row, column, value) for those of a matrix [rows, width].
template <typename Work>
__device__ inline void each_value_of(const Tile &tile, int first, int rows, int width, Sums &sums, Work work) {
    each_pair(tile, first, sums, [&](int row, int column, float a, float b) {
        if (row < rows && column < width) work(row, column, a);
        if (row < rows && column + 1 < width) work(row, column + 1, b);
    });
}

__device__ inline void store_split(const Area &area, int row, int column, float a, float b) {
    const float factor = inverse_of(area.scale);
    const Split split(a * factor, b * factor);
    uint16_t *to = shared_at(area.high + row * area.stride + column);
    *(uint32_t *)to = split.high;
    *(uint32_t *)(to + area.low - area.high) = split.low;
}

// To memory. What is read after it waits for it, since it may be the same memory: so all is read before.
template <int BEGIN = 0, int END = 2>
__device__ inline void write(const Tile &tile, Sums &sums, const TileRows &to) {
    each_pair<BEGIN, END>(tile, tile.column, sums,
                          [&](int row, int column, float a, float b) { to.write(row, column, a, b); });
}

// The main area becomes the sums of all warps, each at its columns.
__device__ inline void put(Tile &tile, Sums &sums) {
    float most = 0.f;
    each_pair(tile, tile.column, sums,
              [&](int, int, float a, float b) { most = fmaxf(most, fmaxf(finite_size(a), finite_size(b))); });
    tile.main.scale = tile.scale_of_row(most);
    each_pair(tile, tile.column, sums,
              [&](int row, int column, float a, float b) { store_split(tile.main, row, column, a, b); });
    tile.together();
}

// An area becomes value(row, column) for `width` columns, in STEP.
template <typename Value>
__device__ inline void fill(Tile &tile, Area &area, int width, Value value) {
    float most = 0.f;
    for (int i = tile.thread_of_row(); i < OWN * width; i += tile.columns)
        most = fmaxf(most, finite_size(value(tile.row + i / width, i % width)));
    area.scale = tile.scale_of_row(most);
    for (int i = 2 * tile.thread_of_row(); i < OWN * width; i += 2 * tile.columns) {
        const int row = tile.row + i / width, column = i % width;
        store_split(area, row, column, value(row, column), value(row, column + 1));
    }
    tile.together();
}

// Fragments of 32 rows and 16 columns of an area at a place in shared memory.
__device__ inline void load_rows(const Area &area, int place, uint32_t (&x)[2][4]) {
#pragma unroll
    for (int m = 0; m < 2; m++) load_matrices<false>(x[m], shared_at(place + 16 * m * area.stride));
}

// The sums of 16 columns += fragments of rows times a fragment of a factor.
__device__ inline void multiply_columns(const uint32_t (&x)[2][4], const uint4 &w, int n, Sums &sums) {
#pragma unroll
    for (int m = 0; m < 2; m++) {
        multiply_matrices(sums.at[m][2 * n], x[m], w.x, w.y);
        multiply_matrices(sums.at[m][2 * n + 1], x[m], w.z, w.w);
    }
}

// sums += part times a factor for the first 16 columns and one for the others.
__device__ inline void add_scaled(const Sums &part, float first, float second, Sums &sums) {
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums.at[m][n][i] += part.at[m][n][i] * (n < 2 ? first : second);
}

// sums += the columns of an area times 32 columns of a factor, from `first` on; nothing where it has none there.
template <int PRODUCTS>
__device__ inline void multiply(const Tile &tile, const Area &area, const Factor &factor, int first, Sums &sums) {
    if (first >= factor.columns) return;
    const int lane = not_before(tile.lane), plane = factor.plane(), row = factor.columns / STEP * LANES;
    const uint4 *b = factor.fragments + first / STEP * LANES + lane;
    int a = area.high + (tile.row + lane % 16) * area.stride + lane / 16 * 8;
    Sums part{};
#pragma unroll 1
    for (int k = STEP; k <= factor.depth; k += STEP, a += STEP, b += row) {
        uint32_t high[2][4], low[2][4];
        load_rows(area, a, high);
        if (PRODUCTS > 1) load_rows(area, a + area.low - area.high, low);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const uint4 w = b[n * LANES];
            multiply_columns(high, w, n, part);
            if (PRODUCTS == 1) continue;
            const uint4 rest = b[n * LANES + plane];  // by value: one load of 16 bytes
            multiply_columns(high, rest, n, part);
            multiply_columns(low, w, n, part);
        }
        if (k % (STEPS * STEP) > 0 && k < factor.depth) continue;
        add_scaled(part, area.scale * factor.scales[first / STEP], area.scale * factor.scales[first / STEP + 1], sums);
        part = {};
    }
}

}  // namespace neus
