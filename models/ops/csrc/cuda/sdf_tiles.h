// The network of signed distances for tiles of points: kernels for distance and feature, for the input gradient, and for
// the cotangents of both. Notation and record are those of softplus_net.h and sdf_mlp.h. The main area of a tile holds
// h_l, u_l, hat h_l or bar a_l, the area beside h_0 or hat h_0.
#pragma once
#include "softplus.h"
#include "weight_gradients.h"

namespace neus {

constexpr float NOTHING = -256.f / POWERS;  // its softplus is 0

inline std::vector<LayerShape> sdf_shapes(const SdfSizes &sizes) {
    std::vector<LayerShape> shapes;
    long weight = 0;
    for (int l = 0; l < sizes.layers; l++) {
        const int inputs = sizes.widths[2 * l], outputs = sizes.widths[2 * l + 1];
        const bool is_first = l == 0, is_last = l + 1 == sizes.layers, skips = !is_first && (sizes.skips >> l & 1);
        const int beside = is_first || skips ? sizes.encoded : 0, main = inputs - beside;
        // The cotangent of the distance, output 0 of the last layer, is one number a point, and needs no factor.
        const long bias = weight + (long)inputs * outputs;
        shapes.push_back({weight, bias, inputs, outputs, 0, main, main, beside, is_last, outputs - is_last, skips ? SKIP_SCALE : 1.f});
        weight = bias + outputs;
    }
    return shapes;
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

// The weight of the distance in the last layer for a channel of the layer before.
__device__ inline float weight_of(const TileLayer &top, int column) {
    return column < top.shape.main ? top.weight[column] * top.shape.factor : 0.f;
}

// The sums, or the weight of the distance for the last hidden layer, times the slopes of h, in the main area and in
// `to`: u_{l-1} from u_l, or hat h_{l+1} from hat x_l.
__device__ inline void times_slope(Tile &tile, Sums &sums, const TileRows &h, const TileRows &to) {
    each_pair(tile, tile.column, sums, [&](int row, int column, float &a, float &b) {
        const float2 value = h.read(row, column);
        a *= softplus_slope(value.x);
        b *= softplus_slope(value.y);
    });
    write(tile, sums, to);
    put(tile, sums);
}
__device__ inline void begin_sweep(Tile &tile, const TileLayer &top, const TileRows &h, const TileRows &u) {
    Sums sums;
    each_pair(tile, tile.column, sums, [&](int, int column, float &a, float &b) {
        a = weight_of(top, column);
        b = weight_of(top, column + 1);
    });
    times_slope(tile, sums, h, u);
}

// The weight of the distance in the last layer for a channel of h_0.
__device__ inline float top_at(const TileLayer &top, int column) {
    return column < top.shape.beside ? top.weight[top.shape.beside_from + column] * top.shape.factor : 0.f;
}

// The sweep: `total` from h_1 ... h_L.
template <int PRODUCTS>
__device__ inline void sweep_tile(Tile &tile, const TileNet &net, const SdfTiles &its, long begin, int rows) {
    const TileLayer &top = net.layers[net.last];
    const auto hidden = [&](int l) { return its.record.of(net, l, begin, rows); };
    const TileRows total{its.total + begin * its.stride, its.stride, rows};
    bool is_begun = false;
    begin_sweep(tile, top, hidden(net.last - 1), {});
    for (int l = net.last - 1; l >= 0; l--) {
        const TileLayer &layer = net.layers[l];
        if (l > 0) hidden(l - 1).fetch();
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
        if (l == 0) return;
        Sums sums = pulled<PRODUCTS>(tile, layer.main_turned, tile.column);
        times_slope(tile, sums, hidden(l - 1), {});
    }
}

// Distances, features, and the sweep of the same tile, whose record is then in the second-level cache.
template <int PRODUCTS>
__global__ void __launch_bounds__(TILE_BOUND, 1) sdf_tiles_kernel(TileNet net, SdfTiles its) {
    Tile tile(net.width, net.beside);
    const long begin = tile.first();
    const int rows = tile.rows_of(its.points);
    const TileLayer &top = net.layers[net.last];
    const TileRows encoded{const_cast<float *>(its.encoded) + begin * its.stride, its.stride, rows};
    fill_from(tile, tile.beside, encoded, 0, net.layers[0].shape.beside);
    for (int l = 0; l < net.last; l++) {
        const TileLayer &layer = net.layers[l];
        Sums sums = outputs_at<PRODUCTS>(tile, layer, tile.column);
        each_pair(tile, tile.column, sums, [&](int, int column, float &a, float &b) {
            const int width = layer.shape.outputs;
            a = softplus(column < width ? a + layer.bias[column] : NOTHING);
            b = softplus(column + 1 < width ? b + layer.bias[column + 1] : NOTHING);
        });
        write(tile, sums, its.record.of(net, l, begin, rows));
        if (l + 1 == net.last)
            each_output(tile, sums, top, 0, encoded, [&](int row, float value) { its.sdf[begin + row] = value * its.unit; });
        put(tile, sums);
    }
    const int features = top.shape.back;
    float *feature = its.feature + begin * features;
    for (int first = tile.column; its.feature && first < features; first += tile.columns) {
        Sums sums = outputs_at<PRODUCTS>(tile, top, first);
        each_pair(tile, first, sums, [&](int, int column, float &a, float &b) {
            a += column < features ? top.bias[column + 1] : 0.f;
            b += column + 1 < features ? top.bias[column + 2] : 0.f;
        });
        each_value_of(tile, first, rows, features, sums,
                      [&](int row, int column, float value) { feature[row * features + column] = value; });
    }
    if (its.total) sweep_tile<PRODUCTS>(tile, net, its, begin, rows);
}

// The cotangents of the points of a launch, from those of the outputs, `top`, and hat h_0: hat h_1 ... hat h_L, and in `bars` first u_0 ... u_{L-1}, then bar a_0 ... bar a_{L-1}. `first`: the row of the
// first point in the record.
struct SdfCotangents {
    long points, first;
    TileRows hat, top;
    HiddenRows record, hats, bars;
};

// The cotangents of the sweep, and the sweep itself.
template <int PRODUCTS>
__global__ void __launch_bounds__(TILE_BOUND, 1) sdf_hats_kernel(TileNet net, SdfCotangents its) {
    Tile tile(net.width, net.beside);
    const long begin = tile.first();
    const int rows = tile.rows_of(its.points);
    const auto of = [&](const HiddenRows &some, int l) { return some.of(net, l, begin, rows); };
    const auto hidden = [&](int l) { return its.record.of(net, l, its.first + begin, rows); };
    begin_sweep(tile, net.layers[net.last], hidden(net.last - 1), of(its.bars, net.last - 1));
    for (int l = net.last - 1; l > 0; l--) {
        hidden(l - 1).fetch();
        Sums sums = pulled<PRODUCTS>(tile, net.layers[l].main_turned, tile.column);
        times_slope(tile, sums, hidden(l - 1), of(its.bars, l - 1));
    }
    fill_from(tile, tile.beside, its.hat.part(begin, rows), 0, net.layers[0].shape.beside);
    for (int l = 0; l < net.last; l++) {
        hidden(l).fetch();
        Sums sums = outputs_at<PRODUCTS>(tile, net.layers[l], tile.column);
        times_slope(tile, sums, hidden(l), of(its.hats, l));
    }
}

// bar a_l from bar h_{l+1}: that of the sweep, t c s', is hat c BETA (1 - s) with hat = t s and c = u / s.
__device__ inline float through_softplus(float bar, float h, float hat, float u) {
    const float s = softplus_slope(h);
    return bar * s + hat * (s > 0.f ? u * reciprocal(s) : 0.f) * (BETA * (1.f - s));
}

// The cotangents of the values.
template <int PRODUCTS>
__global__ void __launch_bounds__(TILE_BOUND, 1) sdf_bars_kernel(TileNet net, SdfCotangents its) {
    Tile tile(net.width, net.beside);
    const long begin = tile.first();
    const int rows = tile.rows_of(its.points);
    const TileLayer &top = net.layers[net.last];
    const TileRows outputs = its.top.part(begin, rows);
    fill_from(tile, tile.main, outputs, top.shape.back_from, top.shape.back);
    for (int l = net.last; l > 0; l--) {
        its.record.of(net, l - 1, its.first + begin, rows).fetch();
        its.hats.of(net, l - 1, begin, rows).fetch();
        its.bars.of(net, l - 1, begin, rows).fetch();
        Sums sums = pulled<PRODUCTS>(tile, net.layers[l].main_turned, tile.column);
        const int to = not_before(l) - 1;  // whose addresses would take registers in the product
        const TileRows h = its.record.of(net, to, its.first + begin, rows), hat = its.hats.of(net, to, begin, rows);
        const TileRows bar = its.bars.of(net, to, begin, rows);
        if (l == net.last)
            add_outer(tile, sums, [&](int row) { return row < rows ? outputs.values[row * outputs.stride] : 0.f; },
                      [&](int column) { return weight_of(top, column); });
        const auto through = [&](int row, int column, float &a, float &b) {
            const bool is_there = h.has(row, column);  // in all three, which have one shape
            const float2 none{}, value = is_there ? h.at(row, column) : none;
            const float2 swept = is_there ? hat.at(row, column) : none, u = is_there ? bar.at(row, column) : none;
            a = through_softplus(a, value.x, swept.x, u.x);
            b = through_softplus(b, value.y, swept.y, u.y);
        };
        each_pair<0, 1>(tile, tile.column, sums, through);  // in halves, for want of registers
        write<0, 1>(tile, sums, bar);
        each_pair<1, 2>(tile, tile.column, sums, through);
        write<1, 2>(tile, sums, bar);
        if (l > 1) put(tile, sums);
    }
}

// Distances, and where `its` asks for them features and totals, of the points of a launch.
inline void evaluate(const NetInTiles &net, const SdfTiles &its) {
    net.run(is_reduced() ? sdf_tiles_kernel<1> : sdf_tiles_kernel<3>, its);
}

}  // namespace neus
