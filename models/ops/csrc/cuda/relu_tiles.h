// Networks of ReLU layers for tiles of points: a kernel for the outputs, and one for the cotangents of the layers, which
// computes the layers again, since that is faster than to read them. The main area of a tile holds the outputs of a layer
// or their cotangents, the area beside what enters several layers.
//
// At most one layer, `heads`, is linear. With it branches the density, one more output of the same input, and behind it
// the area beside holds `views`.
#pragma once
#include "weight_gradients.h"

namespace neus {

// The points of a launch, and matrices [points, width]; what is null is not asked for.
template <typename Points>
struct ReluTiles {
    Points points;
    TileRows first, beside, views;  // in the main area of the first layer; beside
    int heads;                      // -1: none
    bool squeezes;                  // the outputs, by a sigmoid
    HiddenRows hidden;
    float *outputs, *density;
    // Of the cotangents: those of the sums of the last layer and, in their first column, of the density; of all hidden
    // layers; of `first` and of three columns of `beside`.
    TileRows d_outputs, d_density;
    HiddenRows bars;
    float *d_first, *d_normals;
    int normals_from;
};

__device__ inline float relu(float value) { return value > 0.f ? value : 0.f; }

// All layers but the last. give(layer, the sums that are its input).
template <int PRODUCTS, typename Its, typename Give>
__device__ inline void relu_layers(Tile &tile, const TileNet &net, const Its &its, long begin, int rows, Give give) {
    if (net.layers[0].shape.main > 0) fill_from(tile, tile.main, its.first.part(begin, rows), 0, net.layers[0].shape.main);
    fill_from(tile, tile.beside, its.beside.part(begin, rows), 0, net.layers[0].shape.beside);
    for (int l = 0; l < net.last; l++) {
        const TileLayer &layer = net.layers[l];
        const bool is_linear = l == its.heads;
        Sums sums = outputs_at<PRODUCTS>(tile, layer, tile.column);
        each_pair(tile, tile.column, sums, [&](int, int column, float &a, float &b) {
            a = column < layer.shape.outputs ? a + layer.bias[column] : 0.f;
            b = column + 1 < layer.shape.outputs ? b + layer.bias[column + 1] : 0.f;
            if (!is_linear) a = relu(a), b = relu(b);
        });
        write(tile, sums, its.hidden.of(net, l, begin, rows));
        give(l + 1, sums);
        if (l + 1 < net.last) put(tile, sums);
        if (is_linear) fill_from(tile, tile.beside, its.views.part(begin, rows), 0, net.layers[l + 1].shape.beside);
    }
}

template <int PRODUCTS, typename Points>
__global__ void __launch_bounds__(TILE_BOUND, 1) relu_tiles_kernel(TileNet net, ReluTiles<Points> its) {
    Tile tile(net.width, net.beside);
    const long begin = tile.first();
    const int rows = tile.rows_of(number_of(its.points));
    if (rows <= 0) return;
    const TileLayer &top = net.layers[net.last];
    const int outputs = top.shape.outputs;
    relu_layers<PRODUCTS>(tile, net, its, begin, rows, [&](int l, Sums &sums) {
        if (l == its.heads)
            each_output(tile, sums, net.layers[net.last + 1], 0, its.beside.part(begin, rows),
                        [&](int row, float value) { its.density[begin + row] = value; });
        for (int k = 0; l == net.last && k < outputs; k++)
            each_output(tile, sums, top, k, {nullptr, 0, rows}, [&](int row, float value) {
                its.outputs[(begin + row) * outputs + k] = its.squeezes ? reciprocal(1.f + expf(-value)) : value;
            });
    });
}

// The cotangents of the inputs of the first layer, from those of its outputs in the main area.
template <int PRODUCTS, typename Its>
__device__ inline void relu_inputs(const Tile &tile, const TileLayer &bottom, const Its &its, long begin, int rows) {
    const int width = bottom.shape.main, from = its.normals_from;
    Sums sums = pulled<PRODUCTS>(tile, bottom.main_turned, tile.column);
    each_value_of(tile, tile.column, rows, width, sums,
                  [&](int row, int column, float value) { its.d_first[(begin + row) * width + column] = value; });
    for (int first = tile.column; its.d_normals && first < bottom.shape.beside; first += tile.columns) {
        sums = pulled<PRODUCTS>(tile, bottom.beside_turned, first);
        each_value_of(tile, first, rows, from + 3, sums, [&](int row, int column, float value) {
            if (column >= from) its.d_normals[(begin + row) * 3 + column - from] = value;
        });
    }
}

template <int PRODUCTS, typename Points>
__global__ void __launch_bounds__(TILE_BOUND, 1) relu_bars_kernel(TileNet net, ReluTiles<Points> its) {
    Tile tile(net.width, net.beside);
    const long begin = tile.first();
    const int rows = tile.rows_of(number_of(its.points));
    if (rows <= 0) return;
    relu_layers<PRODUCTS>(tile, net, its, begin, rows, [](int, Sums &) {});
    fill_from(tile, tile.main, its.d_outputs.part(begin, rows), 0, net.layers[net.last].shape.outputs);
    for (int l = not_before(net.last); l > 0; l--) {
        const TileRows h = its.hidden.of(net, l - 1, begin, rows), bar = its.bars.of(net, l - 1, begin, rows);
        h.fetch();
        Sums sums = pulled<PRODUCTS>(tile, net.layers[l].main_turned, tile.column);
        if (not_before(l) == its.heads) {
            const TileRows density = its.d_density.part(begin, rows);
            const LayerShape &s = net.layers[l].shape;
            const float *weight = net.layers[net.last + 1].weight + s.main_from;
            add_outer(tile, sums, [&](int row) { return density.read(row, 0).x; },
                      [&](int column) { return column < s.main ? weight[column] : 0.f; });
        }
        const bool is_linear = not_before(l) - 1 == its.heads;
        each_pair(tile, tile.column, sums, [&](int row, int column, float &a, float &b) {
            const float2 value = h.read(row, column);
            if (!is_linear && !(value.x > 0.f)) a = 0.f;
            if (!is_linear && !(value.y > 0.f)) b = 0.f;
        });
        write(tile, sums, bar);
        put(tile, sums);
    }
    if (its.d_first) relu_inputs<PRODUCTS>(tile, net.layers[0], its, begin, rows);
}

// The outputs of the points of a launch.
template <typename Points>
inline void evaluate(const NetInTiles &net, const ReluTiles<Points> &its) {
    net.run(is_reduced() ? relu_tiles_kernel<1, Points> : relu_tiles_kernel<3, Points>, its);
}

// Memory for the hidden layers of a pass of `most` points, and for the gradients.
struct ReluPass {
    Scratch<float> hidden, bars;
    WeightGradients gradients;
    ReluPass(const NetInTiles &of, long most) : hidden(most * recorded(of.net)), bars(most * recorded(of.net)), gradients(of) {}

    // The cotangents of the points of a launch, which has all but the hidden layers, added to the gradients.
    template <typename Points>
    void add(const NetInTiles &of, long most, ReluTiles<Points> its) {
        its.hidden = {hidden.values, most};
        its.bars = {bars.values, most};
        of.run(is_reduced() ? relu_bars_kernel<1, Points> : relu_bars_kernel<3, Points>, its);
        const TileNet &net = of.net;
        const Factors last{its.d_outputs.values, its.d_outputs.stride, net.layers[net.last].shape.outputs};
        const Factors density{its.d_density.values, its.d_density.stride, 1};
        if (its.heads >= 0)
            gradients.expect(net.layers[net.last + 1], density, its.hidden.of(net, its.heads - 1, 0, 0), its.beside, true);
        gradients.add(its.points, its.bars, last, its.hidden, 0, its.first,
                      [&](int l) { return its.heads >= 0 && l > its.heads ? its.views : its.beside; }, true);
    }
};

}  // namespace neus
