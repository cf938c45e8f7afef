// The network of signed distances for tiles of points, in one kernel for distance, feature and input gradient, and one
// for the cotangents of the layers. Notation and record are those of softplus_net.h and sdf_mlp.h. The main area of a
// tile holds h_l, u_l, hat h_l or bar a_l, the area beside h_0 or hat h_0.
#pragma once
#include "softplus.h"
#include "tile_layers.h"

namespace neus {

constexpr float NOTHING = -256.f / POWERS;  // its softplus is 0

inline std::vector<LayerShape> sdf_shapes(const SdfSizes &sizes) {
    std::vector<LayerShape> shapes;
    for (int l = 0; l < sizes.layers; l++) {
        const int inputs = sizes.widths[2 * l], outputs = sizes.widths[2 * l + 1];
        const bool is_first = l == 0, is_last = l + 1 == sizes.layers, skips = !is_first && (sizes.skips >> l & 1);
        const int beside = is_first || skips ? sizes.encoded : 0, main = inputs - beside;
        // The cotangent of the distance, output 0 of the last layer, is one number a point, and needs no factor.
        shapes.push_back({inputs, outputs, 0, main, main, beside, is_last, outputs - is_last, skips ? SKIP_SCALE : 1.f});
    }
    return shapes;
}

// Matrices of the outputs of the hidden layers, one after the other, [rows, width] each, the width in whole vectors.
struct HiddenRows {
    float *values;
    long rows;
    // Outputs of layer `l` for a tile from row `begin` on; no rows if there is no matrix.
    __device__ TileRows of(const TileNet &net, int l, long begin, int rows_of_tile) const {
        long before = 0;
        for (int k = 0; k < l; k++) before += rows * whole(net.layers[k].shape.outputs);
        const int stride = whole(net.layers[l].shape.outputs);
        return {values + before + begin * stride, stride, values ? rows_of_tile : 0};
    }
};

// Floats of a row in all of them.
inline long recorded(const TileNet &net) {
    long total = 0;
    for (int l = 0; l < net.last; l++) total += whole(net.layers[l].shape.outputs);
    return total;
}

// The points of a launch; what is null is not asked for.
struct SdfTiles {
    long points;
    const float *encoded;  // h_0 [points, stride]
    int stride;
    float unit;  // of a distance
    HiddenRows record;  // h_1 ... h_L
    float *sdf, *feature;
    float *total;  // d y_0 / d h_0 [points, stride]
};

// u_l = c_{l+1} s_l for the last hidden layer in the main area.
__device__ inline void begin_sweep(Tile &tile, const TileLayer &top, const TileRows &h) {
    Sums sums;
    each_pair(tile, tile.column, sums, [&](int row, int column, float &a, float &b) {
        const float2 value = h.read(row, column);
        const int width = top.shape.main;
        a = column < width ? top.weight[column] * top.shape.factor * softplus_slope(value.x) : 0.f;
        b = column + 1 < width ? top.weight[column + 1] * top.shape.factor * softplus_slope(value.y) : 0.f;
    });
    put(tile, sums);
}

// u_{l-1} from u_l.
template <int PRODUCTS>
__device__ inline void continue_sweep(Tile &tile, const TileLayer &layer, const TileRows &h) {
    Sums sums = pulled<PRODUCTS>(tile, layer.main_turned, tile.column);
    each_pair(tile, tile.column, sums, [&](int row, int column, float &a, float &b) {
        const float2 value = h.read(row, column);
        a *= softplus_slope(value.x);
        b *= softplus_slope(value.y);
    });
    put(tile, sums);
}

template <int PRODUCTS>
__global__ void __launch_bounds__(TILE_BOUND) sdf_tiles_kernel(TileNet net, SdfTiles its) {
    Tile tile(net.width, net.beside);
    const long begin = (long)blockIdx.x * tile.points;
    const int rows = (int)(its.points - begin < tile.points ? its.points - begin : tile.points);
    fill_beside(tile, its.encoded + begin * its.stride, its.stride, rows, net.layers[0].shape.beside);
    for (int l = 0; l < net.last; l++) {
        const TileLayer &layer = net.layers[l];
        const TileRows record = its.record.of(net, l, begin, rows);
        Sums sums = outputs_at<PRODUCTS>(tile, layer, tile.column);
        each_pair(tile, tile.column, sums, [&](int row, int column, float &a, float &b) {
            const int width = layer.shape.outputs;
            a = softplus(column < width ? a + layer.bias[column] : NOTHING);
            b = softplus(column + 1 < width ? b + layer.bias[column + 1] : NOTHING);
            record.write(row, column, a, b);
        });
        put(tile, sums);
    }
    const TileLayer &top = net.layers[net.last];
    const int outputs = its.feature ? top.shape.outputs : 1;
    float *sdf = its.sdf + begin, *feature = its.feature + begin * (outputs - 1);
    for (int first = tile.column; first < outputs; first += tile.columns) {
        Sums sums = outputs_at<PRODUCTS>(tile, top, first);
        each_value_of(tile, first, rows, outputs, sums, [&](int row, int column, float value) {
            value += top.bias[column];
            if (column == 0)
                sdf[row] = value * its.unit;
            else
                feature[row * (outputs - 1) + column - 1] = value;
        });
    }
}

// The weight of the distance in the last layer for a channel of h_0.
__device__ inline float top_at(const TileLayer &top, int column) {
    return column < top.shape.beside ? top.weight[top.shape.beside_from + column] * top.shape.factor : 0.f;
}

// The sweep: `total` from h_1 ... h_L.
template <int PRODUCTS>
__global__ void __launch_bounds__(TILE_BOUND) sdf_sweep_kernel(TileNet net, SdfTiles its) {
    Tile tile(net.width, net.beside);
    const long begin = (long)blockIdx.x * tile.points;
    const int rows = (int)(its.points - begin < tile.points ? its.points - begin : tile.points);
    const TileLayer &top = net.layers[net.last];
    const auto hidden = [&](int l) { return its.record.of(net, l, begin, rows); };
    const TileRows total{its.total + begin * its.stride, its.stride, rows};
    bool is_begun = false;
    begin_sweep(tile, top, hidden(net.last - 1));
    for (int l = net.last - 1; l >= 0; l--) {
        const TileLayer &layer = net.layers[l];
        // What reaches h_0 is added up; each lane reads and writes its own places only.
        for (int first = tile.column; first < layer.beside_turned.columns; first += tile.columns) {
            Sums sums;
            each_pair(tile, first, sums, [&](int row, int column, float &a, float &b) {
                const float2 before = is_begun ? total.read(row, column) : float2{top_at(top, column), top_at(top, column + 1)};
                a = before.x;
                b = before.y;
            });
            multiply<PRODUCTS>(tile, tile.main, layer.beside_turned, first, sums);
            each_pair(tile, first, sums, [&](int row, int column, float a, float b) { total.write(row, column, a, b); });
        }
        is_begun |= layer.beside_turned.columns > 0;
        if (l > 0) continue_sweep<PRODUCTS>(tile, layer, hidden(l - 1));
    }
}

inline void sweep(const NetInTiles &net, const SdfTiles &its) {
    launch_sharing(is_reduced() ? sdf_sweep_kernel<1> : sdf_sweep_kernel<3>, net.blocks(its.points), net.threads(),
                   net.shared(), net.net, its);
}

// Distances, and where `its` asks for them features and totals, of the points of a launch.
inline void evaluate(const NetInTiles &net, const SdfTiles &its) {
    if (its.points <= 0) return;
    launch_sharing(is_reduced() ? sdf_tiles_kernel<1> : sdf_tiles_kernel<3>, net.blocks(its.points), net.threads(),
                   net.shared(), net.net, its);
    if (its.total) sweep(net, its);
}

}  // namespace neus
