// The layers of a network for tiles of points: their weights as factors, and the choice of the tile.
#pragma once
#include "aligned.h"
#include "tile.h"

namespace neus {

constexpr int FACTORS_OF_A_LAUNCH = 32;  // the kernel arguments must fit into 4 KiB
static_assert(TILE_WIDTH <= TILE_WARPS * OWN, "a row of warps has all channels of a layer");
constexpr int LEAST_WIDTH = 64;

// Where the inputs and outputs of a layer are. Its input consists of the main channels, the outputs of the layer before,
// and of those beside, which several layers may read; the columns of its weight are multiplied by `factor`. Its factors
// have `back` outputs, from `back_from` on. `weight`, `bias`: places of [outputs, inputs] and [outputs] in the packed
// parameters.
struct LayerShape {
    long weight, bias;
    int inputs, outputs;
    int main_from, main, beside_from, beside;
    int back_from, back;
    float factor;
};

// y = x W^T + b; `turned`: the factors of d x = d y W.
struct TileLayer {
    const float *weight, *bias;
    LayerShape shape;
    long recorded;  // floats of a row of the layers before in all `HiddenRows`
    Factor main, beside, main_turned, beside_turned;
};

struct TileNet {
    TileLayer layers[TILE_LAYERS];
    int last, width, beside;  // channels of the areas of a tile
};

// Matrices of the outputs of the hidden layers, one after the other, [rows, width] each, the width in whole vectors.
struct HiddenRows {
    float *values;
    long rows;
    // Outputs of layer `l` for a tile from row `begin` on; no rows if there is no matrix.
    __host__ __device__ TileRows of(const TileNet &net, int l, long begin, int rows_of_tile) const {
        const int stride = whole(net.layers[l].shape.outputs);
        return {values + rows * net.layers[l].recorded + begin * stride, stride, values ? rows_of_tile : 0};
    }
};

// Floats of a row in all of them.
inline long recorded(const TileNet &net) { return net.layers[net.last].recorded; }

// The sums of a layer's outputs at the warp's columns from `first` on, from both areas of the tile.
template <int PRODUCTS>
__device__ inline Sums outputs_at(const Tile &tile, const TileLayer &layer, int first) {
    Sums sums{};
    multiply<PRODUCTS>(tile, tile.main, layer.main, first, sums);
    multiply<PRODUCTS>(tile, tile.beside, layer.beside, first, sums);
    return sums;
}

// Those of a factor of cotangents, from the main area.
template <int PRODUCTS>
__device__ inline Sums pulled(const Tile &tile, const Factor &turned, int first) {
    Sums sums{};
    multiply<PRODUCTS>(tile, tile.main, turned, first, sums);
    return sums;
}

// work(row, output `k`) of a layer for each row of the tile that `beside` has, from the sums of the layer before, and
// what enters beside them.
template <typename Work>
__device__ inline void each_output(const Tile &tile, Sums &sums, const TileLayer &layer, int k, const TileRows &beside, Work work) {
    const LayerShape &s = layer.shape;
    const float *weight = layer.weight + (long)k * s.inputs;
    float *parts = (float *)shared_at(Tile::PARTS);  // [warps, OWN]
    const int lane = not_before(tile.lane);
    tile.together();
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float sum = 0.f;
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int column = not_before(tile.column) + 8 * n + 2 * (lane % 4) + i;
                    if (column < s.main) sum += sums.at[m][n][2 * j + i] * weight[s.main_from + column];
                }
            sum = sum_of_four(sum);
            if (lane % 4 == 0) parts[threadIdx.x / LANES * OWN + 16 * m + 8 * j + lane / 4] = sum;
        }
    tile.together();
    const int own = tile.thread_of_row(), row = not_before(tile.row) + own;
    if (own >= OWN || row >= beside.rows) return;
    float sum = 0.f;
    for (int warp = 0; warp < tile.across(); warp++) sum += parts[(tile.first_warp() + warp) * OWN + own];
    for (int i = 0; i < s.beside; i++) sum += weight[s.beside_from + i] * beside.values[row * beside.stride + i];
    work(row, sum * s.factor + layer.bias[k]);
}

// An area becomes the first `width` columns of a matrix, from column `first` on.
__device__ inline void fill_from(Tile &tile, Area &area, const TileRows &from, int first, int width) {
    fill(tile, area, rounded_up(width, STEP), [=](int row, int column) {
        return row < from.rows && column < width ? from.values[row * from.stride + first + column] : 0.f;
    });
}

// A factor whose value at (k, i) is scale from[k step_depth + i step_columns].
struct FactorSource {
    const float *from;
    int step_depth, step_columns, depth, columns;
    float scale;
    Factor to;
    __device__ float at(int k, int i) const {
        return k < depth && i < columns ? scale * from[(long)k * step_depth + (long)i * step_columns] : 0.f;
    }
};
struct SomeFactors {
    FactorSource at[FACTORS_OF_A_LAUNCH];
};

// A block packs 16 columns of a factor.
__global__ inline void factors_kernel(SomeFactors some) {
    SHARED(float, largest, THREADS);
    const FactorSource &source = some.at[blockIdx.y];
    const Factor &to = source.to;
    const int first = (int)blockIdx.x * STEP;
    if (first >= to.columns) return;
    float most = 0.f;
    for (int i = threadIdx.x; i < to.depth * STEP; i += THREADS)
        most = fmaxf(most, finite_size(source.at(i / STEP, first + i % STEP)));
    largest[threadIdx.x] = most;
    __syncthreads();
    for (int i = 0; i < THREADS; i++) most = fmaxf(most, largest[i]);
    const float scale = scale_of(most), factor = inverse_of(scale);
    if (threadIdx.x == 0) const_cast<float *>(to.scales)[blockIdx.x] = scale;
    for (int i = threadIdx.x; i < to.depth / STEP * LANES; i += THREADS) {
        const int lane = i % LANES, k = i / LANES * STEP + 2 * (lane % 4), column = first + lane / 4;
        uint32_t high[4], low[4];
#pragma unroll
        for (int part = 0; part < 4; part++) {
            const int depth = k + part % 2 * 8, at = column + part / 2 * 8;
            const Split split(source.at(depth, at) * factor, source.at(depth + 1, at) * factor);
            high[part] = split.high;
            low[part] = split.low;
        }
        uint4 *place = const_cast<uint4 *>(to.fragments) + (i / LANES * (to.columns / STEP) + blockIdx.x) * LANES + lane;
        *place = {high[0], high[1], high[2], high[3]};
        place[to.plane()] = {low[0], low[1], low[2], low[3]};
    }
}

// The number of warps of a tile; 0 if the GPU has too little shared memory for one.
inline int warps_of_tile(int width, int beside) {
    int warps = TILE_WARPS;
    while (warps * OWN >= width && shared_of(warps, width, beside) > most_shared()) warps /= 2;
    return warps * OWN >= width ? warps : 0;
}

// Whether there are tiles for such layers, on any GPU.
inline bool are_for_tiles(const std::vector<LayerShape> &shapes) {
    bool is_well = shapes.size() > 1 && shapes.size() <= TILE_LAYERS;
    for (const LayerShape &shape : shapes)
        is_well &= shape.main <= TILE_WIDTH && shape.back <= TILE_WIDTH && shape.beside <= TILE_ENCODED;
    return is_well;
}

// The factors of a network in the GPU's memory.
struct NetInTiles {
    TileNet net{};
    int warps = 0, points = 0;  // of a block; no warps: there are no tiles for this network
    long size = 0;              // of the packed parameters
    std::vector<FactorSource> sources;
    std::vector<Scratch<uint4>> memory;

    // `has_turned`: with the factors of the cotangents
    // `branches`: behind the last layer there is one that reads the input of another
    NetInTiles(const float *packed, const std::vector<LayerShape> &shapes, bool has_turned, bool branches = false) {
        if (!are_for_tiles(shapes)) return;
        net.last = (int)shapes.size() - 1 - branches;
        net.width = LEAST_WIDTH;
        for (const LayerShape &s : shapes) {
            while (net.width < s.main || net.width < s.back) net.width *= 2;
            net.beside = std::max(net.beside, rounded_up(s.beside, STEP));
        }
        warps = warps_of_tile(net.width, net.beside);
        points = warps * OWN * OWN / net.width;
        if (warps == 0) return;
        for (size_t l = 0; l < shapes.size(); l++) {
            if (l > 0) net.layers[l].recorded = net.layers[l - 1].recorded + whole(shapes[l - 1].outputs);
            add(packed, shapes[l], has_turned, net.layers[l]);
            size += (long)(shapes[l].inputs + 1) * shapes[l].outputs;
        }
        pack();
    }
    bool is_there() const { return warps > 0; }
    // A kernel for the points of a launch.
    template <typename Launch>
    void run(void (*kernel)(TileNet, Launch), const Launch &its) const {
        if (most_of(its.points) <= 0) return;
        launch_sharing(kernel, dim3((unsigned)((most_of(its.points) + points - 1) / points)), warps * LANES, shared_of(warps, net.width, net.beside), net, its);
    }
    // Points of a pass through layers whose outputs are stored: all multiprocessors have registers for TILE_WARPS warps.
    long at_once(long rows) const {
        return std::max(1l, std::min(rows, (long)multiprocessors() * (TILE_WARPS / warps) * points));
    }

   private:
    void add(const float *packed, const LayerShape &s, bool has_turned, TileLayer &layer) {
        const float *main = packed + s.weight + s.main_from, *beside = packed + s.weight + s.beside_from;
        const long row = (long)s.back_from * s.inputs;
        layer.weight = packed + s.weight;
        layer.bias = packed + s.bias;
        layer.shape = s;
        add(layer.main, {main + row, 1, s.inputs, s.main, s.back, s.factor, {}});
        add(layer.beside, {beside + row, 1, s.inputs, s.beside, s.back, s.factor, {}});
        if (!has_turned) return;
        add(layer.main_turned, {main + row, s.inputs, 1, s.back, s.main, s.factor, {}});
        add(layer.beside_turned, {beside + row, s.inputs, 1, s.back, s.beside, s.factor, {}});
    }
    void add(Factor &to, FactorSource source) {
        to.depth = rounded_up(source.depth, STEP);
        to.columns = source.depth > 0 ? rounded_up(source.columns, OWN) : 0;
        if (to.columns == 0) return;
        const long vectors = 2 * to.plane();
        memory.emplace_back(vectors + to.columns / STEP);
        to.fragments = memory.back().values;
        to.scales = (const float *)(to.fragments + vectors);
        source.to = to;
        sources.push_back(source);
    }
    void pack() const {
        for (size_t first = 0; first < sources.size(); first += FACTORS_OF_A_LAUNCH) {
            SomeFactors some{};
            unsigned columns = 1, count = 0;
            for (; count < FACTORS_OF_A_LAUNCH && first + count < sources.size(); count++) {
                some.at[count] = sources[first + count];
                columns = std::max(columns, (unsigned)(some.at[count].to.columns / STEP));
            }
            launch(factors_kernel, dim3(columns, count), THREADS, some);
        }
    }
};

}  // namespace neus
