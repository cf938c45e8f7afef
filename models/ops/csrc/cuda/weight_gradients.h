// Gradients of the weights of a network in tiles: sums over points of products of the cotangents and the inputs of its
// layers. A block computes SIDE x SIDE of them over a slice of the points, and the slices are added in their order. Of a
// launch one block adds to a place, so that the result does not depend on the order of blocks.
#pragma once
#include "tile_layers.h"

namespace neus {

constexpr int SIDE = 128;    // rows and columns of a block: a row of four warps has all columns
constexpr int CHUNK = 32;    // points in shared memory at a time
constexpr int SLICES = 8;    // at most
constexpr int CHUNKS_TO_START = 2;  // that take as long as the start and the end of a block
constexpr int PARTS_OF_A_LAUNCH = 32;  // the kernel arguments must fit into 4 KiB

// A matrix [points, width]; null: ones in its first column.
struct Factors {
    const float *values;
    int stride, width;
};

// left^T right times `factor`, a part of the gradient of a weight, and sums over the points of `left`. Places of their
// first values in the packed gradients; no sums where that is negative.
struct GradientPart {
    Factors left, right;
    float factor;
    int stride;  // of a row of the weight
    long weight, bias;
};
struct SomeParts {
    GradientPart at[PARTS_OF_A_LAUNCH];
};

// Of a chunk of one side, in shared memory and of the next one, what a thread has read: four columns of some points.
struct ChunkOf {
    static constexpr int POINTS = CHUNK / TILE_WARPS;
    Factors side;
    int column;  // of all, of the thread
    Area area;
    float4 next[POINTS];

    __device__ ChunkOf(const Factors &side_, int first, int &place)
        : side(side_), column(first + threadIdx.x % LANES * VECTOR), area(Tile::area(place, CHUNK, SIDE)) {}
    __device__ void read(long begin, long end) {
#pragma unroll
        for (int i = 0; i < POINTS; i++) {
            const long point = begin + threadIdx.x / LANES + i * TILE_WARPS;
            next[i] = {};
            if (point >= end || column >= side.width) continue;
            next[i] = side.values ? *(const float4 *)(side.values + point * side.stride + column) : float4{1.f, 0.f, 0.f, 0.f};
        }
    }
    __device__ float most() const {
        float most = 0.f;
#pragma unroll
        for (const float4 &v : next)
            for (float value : {v.x, v.y, v.z, v.w}) most = fmaxf(most, finite_size(value));
        return most;
    }
    __device__ void store() const {
        const int at = threadIdx.x % LANES * VECTOR;
#pragma unroll
        for (int i = 0; i < POINTS; i++) {
            const int row = threadIdx.x / LANES + i * TILE_WARPS;
            store_split(area, row, at, next[i].x, next[i].y);
            store_split(area, row, at + 2, next[i].z, next[i].w);
        }
    }
};

// Fragments of 16 points of 32 columns of the left side, turned.
__device__ inline void load_turned(const Area &area, int place, uint32_t (&x)[2][4]) {
#pragma unroll
    for (int m = 0; m < 2; m++) load_matrices<true>(x[m], shared_at(place + 16 * m));
}
__device__ inline uint4 load_factor(int place) {
    uint32_t w[4];
    load_matrices<true>(w, shared_at(place));
    return {w[0], w[1], w[2], w[3]};
}

// sums += the columns of the warp of a chunk, turned, times those of another.
template <int PRODUCTS>
__device__ inline void multiply_turned(const Tile &tile, const Area &left, const Area &right, Sums &sums) {
    const int lane = not_before(tile.lane), point = lane % 8;
    int a = left.high + (point + lane / 16 * 8) * left.stride + tile.row + lane / 8 % 2 * 8;
    int b = right.high + (point + lane / 8 % 2 * 8) * right.stride + tile.column + lane / 16 * 8;
    Sums part{};
#pragma unroll 1
    for (int k = 0; k < CHUNK; k += STEP, a += STEP * left.stride, b += STEP * right.stride) {
        uint32_t high[2][4], low[2][4];
        load_turned(left, a, high);
        if (PRODUCTS > 1) load_turned(left, a + left.low - left.high, low);
#pragma unroll
        for (int n = 0; n < 2; n++) {
            const uint4 w = load_factor(b + 16 * n);
            multiply_columns(high, w, n, part);
            if (PRODUCTS == 1) continue;
            multiply_columns(high, load_factor(b + 16 * n + right.low - right.high), n, part);
            multiply_columns(low, w, n, part);
        }
    }
    add_scaled(part, left.scale * right.scale, left.scale * right.scale, sums);
}

// to[column] += the sums of all warps, four columns of each lane, for the first `width` columns.
__device__ inline void add_over_warps(const float4 &sums, int width, float *to) {
    float *all = (float *)shared_at(Tile::AREAS);  // [warps, SIDE]
    *(float4 *)(all + VECTOR * threadIdx.x) = sums;
    __syncthreads();
    const int column = threadIdx.x;
    if (column >= SIDE || column >= width) return;
    float sum = 0.f;
    for (int warp = 0; warp < TILE_WARPS; warp++) sum += all[warp * SIDE + column];
    to[column] += sum;
}

// The slices with which a GPU with room for `at_once` blocks is done first, if each slice of `chunks` has `blocks`.
inline int slices_of(long blocks, long chunks, long at_once) {
    const auto time = [=](long slices) {
        return (blocks * slices + at_once - 1) / at_once * ((chunks + slices - 1) / slices + CHUNKS_TO_START);
    };
    int best = 1;
    for (int slices = 2; slices <= SLICES; slices++)
        if (time(slices) < time(best)) best = slices;
    return best;
}

// A block has rows and columns of a part, and a slice of the points.
template <int PRODUCTS, typename Points>
__global__ void __launch_bounds__(TILE_WARPS * LANES)
    gradients_kernel(SomeParts some, Points all, long size, float *slices) {
    const long points = number_of(all);
    const GradientPart &part = some.at[blockIdx.y];
    const int across = (part.right.width + SIDE - 1) / SIDE;
    const int row = (int)blockIdx.x / across * SIDE, column = (int)blockIdx.x % across * SIDE;
    const unsigned chunks = (unsigned)((points + CHUNK - 1) / CHUNK);
    const long length = (long)((chunks + gridDim.z - 1) / gridDim.z) * CHUNK, begin = blockIdx.z * length;
    const long end = begin + length < points ? begin + length : points;
    if (row >= part.left.width || begin >= end) return;
    const Tile tile(SIDE, 0);
    int place = Tile::AREAS;
    ChunkOf left(part.left, row, place), right(part.right, column, place);
    const int rows = part.left.width - row, columns = part.right.width - column;
    Sums sums{};
    float4 biases{};
    left.read(begin, end);
    right.read(begin, end);
#pragma unroll 1
    for (long next = begin + CHUNK; next < end + CHUNK; next += CHUNK) {
        for (const float4 &v : left.next) biases = {biases.x + v.x, biases.y + v.y, biases.z + v.z, biases.w + v.w};
        left.area.scale = tile.common_scale(left.most(), 0, TILE_WARPS, 0);
        right.area.scale = tile.common_scale(right.most(), 0, TILE_WARPS, 1);
        left.store();
        right.store();
        __syncthreads();
        if (READS_AHEAD) left.read(next, end), right.read(next, end);
        if (tile.row < rows && tile.column < columns) multiply_turned<PRODUCTS>(tile, left.area, right.area, sums);
        if (!READS_AHEAD) left.read(next, end), right.read(next, end);
    }
    float *to = slices + blockIdx.z * size;
    each_value_of(tile, tile.column, rows, columns, sums, [&](int r, int c, float value) {
        atomicAdd(to + part.weight + (long)(row + r) * part.stride + column + c, part.factor * value);  // without waiting
    });
    __syncthreads();
    if (part.bias >= 0 && column == 0) add_over_warps(biases, rows, to + part.bias + row);
}

// The gradients of a network's packed parameters.
struct WeightGradients {
    const TileNet &net;
    long size;
    Scratch<float> slices;

    explicit WeightGradients(const NetInTiles &of) : net(of.net), size(of.size), slices(SLICES * size) {
        clear(slices.values, SLICES * size);
    }
    // Expects those of a layer, from the cotangents of its outputs and what belongs to them of its input.
    void expect(const TileLayer &layer, const Factors &outputs, const TileRows &main, const TileRows &beside, bool has_bias) {
        const LayerShape &s = layer.shape;
        long bias = has_bias ? s.bias : -1;
        if (s.main > 0) {
            parts.push_back({outputs, {main.values, main.stride, s.main}, s.factor, s.inputs, s.weight + s.main_from, bias});
            bias = -1;
        }
        if (s.beside > 0)
            parts.push_back({outputs, {beside.values, beside.stride, s.beside}, s.factor, s.inputs, s.weight + s.beside_from, bias});
    }
    // Adds what is expected, and those of all layers, from the cotangents of the outputs of the hidden layers and of the
    // last one, and the inputs that belong to them: hidden ones from a row on, those in the main area of the first layer,
    // and those beside(layer).
    template <typename Points, typename Beside>
    void add(const Points &points, const HiddenRows &cotangents, const Factors &last, const HiddenRows &hidden, long row,
             const TileRows &first, Beside beside, bool has_bias) {
        for (int l = 0; l <= net.last; l++) {
            const TileRows own = l < net.last ? cotangents.of(net, l, 0, 0) : TileRows{};
            const Factors left = l < net.last ? Factors{own.values, own.stride, net.layers[l].shape.outputs} : last;
            expect(net.layers[l], left, l > 0 ? hidden.of(net, l - 1, row, 0) : first, beside(l), has_bias);
        }
        const auto kernel = is_reduced() ? gradients_kernel<1, Points> : gradients_kernel<3, Points>;
        for (size_t first = 0; first < parts.size(); first += PARTS_OF_A_LAUNCH) {
            SomeParts some{};
            int blocks = 1, all = 0, count = 0;
            for (; count < PARTS_OF_A_LAUNCH && first + count < parts.size(); count++) {
                const GradientPart &part = some.at[count] = parts[first + count];
                const int own = sides(part.left.width) * sides(part.right.width);
                blocks = std::max(blocks, own);
                all += own;
            }
            const int some_slices = slices_of(all, (most_of(points) + CHUNK - 1) / CHUNK, multiprocessors());
            launch_sharing(kernel, dim3(blocks, count, some_slices), TILE_WARPS * LANES, BYTES, some, points, size, slices.values);
        }
        parts.clear();
    }
    void give(float *d_packed) const {
        const float *from = slices.values;
        const long step = size;
        each(size, [=] __device__(long i) {
            float sum = 0.f;
            for (int slice = 0; slice < SLICES; slice++) sum += from[slice * step + i];
            d_packed[i] = sum;
        });
    }

   private:
    static constexpr long BYTES = sizeof(uint16_t) * (Tile::AREAS + 2 * 2 * CHUNK * (SIDE + SKEW));
    static int sides(int width) { return (width + SIDE - 1) / SIDE; }
    std::vector<GradientPart> parts;
};

}  // namespace neus
