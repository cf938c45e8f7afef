// The signed-distance network on all points: value, feature and input gradient in one forward pass, and the gradient of
// all three with respect to the weights. The reference is ops/sdf_mlp.py, the notation that of softplus_net.h. Points
// are constants. The record holds h_1 ... h_L, each [n, width], n rounded up to whole blocks, the width to whole
// vectors.
#pragma once
#include <memory>
#include "sdf_tiles.h"
#include "softplus_net.h"

namespace neus {

inline SoftplusNet sdf_net(const SdfSizes &sizes, const float *packed) {
    return {packed, sizes.widths, {sizes.encoded}, (unsigned)sizes.skips, SKIP_SCALE};
}

// The network in the form that evaluates it: in tiles of points, or layer by layer where the GPU has none for its sizes.
struct SdfNet {
    NetInTiles tiles;
    std::unique_ptr<SoftplusNet> layers;

    SdfNet(const SdfSizes &sizes, const float *packed, bool has_turned)
        : tiles(packed, sdf_shapes(sizes), has_turned),
          layers(tiles.is_there() ? nullptr : new SoftplusNet(sdf_net(sizes, packed))) {}
};

// h_0 of the points, [rows, stride].
inline void encode_points(const SdfSizes &sizes, long rows, const float *points, float *encoded) {
    const int stride = whole(sizes.encoded);
    encode(points, rows, 3, sizes.octaves, sizes.scale, encoded, stride, stride - sizes.encoded);
}

// The encoding's transposed Jacobian: `total` -> gradient [rows, 3].
inline void sdf_to_points(int octaves, long rows, const float *encoded, const float *total, long stride,
                          float *gradient) {
    each_place(rows, 3, [=] __device__(int r, int j, long at) {
        const float *e = encoded + r * stride + j, *t = total + r * stride + j;
        float sum = t[0];
        for (int f = 0; f < octaves; f++)
            sum += (float)(1 << f) * (e[6 + 6 * f] * t[3 + 6 * f] - e[3 + 6 * f] * t[6 + 6 * f]);
        gradient[at] = sum;
    });
}

// Its Jacobian: cotangents of the gradient [rows, 3] -> `hat` [rows, stride].
inline void sdf_from_points(int octaves, long rows, const float *encoded, const float *cotangent, float *hat,
                            long stride) {
    const int width = 3 * (1 + 2 * octaves);
    each_place(rows, 3, [=] __device__(int r, int j, long at) {
        const float *__restrict__ e = encoded + r * stride + j, g = cotangent[at];
        float *__restrict__ to = hat + r * stride + j;
        if (width + j < stride) to[width] = 0.f;
        to[0] = g;
        for (int f = 0; f < octaves; f++) {
            to[3 + 6 * f] = (float)(1 << f) * e[6 + 6 * f] * g;
            to[6 + 6 * f] = -(float)(1 << f) * e[3 + 6 * f] * g;
        }
    });
}

// sdf [n, 1] alone, from a network.
inline void distances(const SdfNet &of, const SdfSizes &sizes, long n, const float *points, float *sdf) {
    if (of.tiles.is_there()) {
        Scratch<float> encoded(n * whole(sizes.encoded));
        encode_points(sizes, n, points, encoded.values);
        evaluate(of.tiles, {n, encoded.values, whole(sizes.encoded), 1.f / sizes.scale, {}, sdf, nullptr, nullptr});
        return;
    }
    const SoftplusNet &net = *of.layers;
    const long most = at_once(n, net.stride);
    Scratch<float> encoded(most * net.stride_e), odd(most * net.stride), even(most * net.stride), sums(most * VECTOR);
    std::vector<Rows> h(1, {encoded.values, net.stride_e});
    for (int l = 1; l <= net.last; l++) h.push_back({l % 2 ? odd.values : even.values, net.hidden(l)});
    Layer top = net.layers[net.last];
    top.outputs = VECTOR;  // one is needed, but an aligned product is faster
    const float *bias = top.bias, *from = sums.values, scale = sizes.scale;
    for (long begin = 0; begin < n; begin += most) {
        const long rows = n - begin < most ? n - begin : most;
        float *to = sdf + begin;
        encode_points(sizes, rows, points + begin * 3, encoded.values);
        hidden_layers(net, rows, h);
        linear(top, rows, net.parts(net.last, h[net.last], h[0]), sums.values, VECTOR);
        each(rows, [=] __device__(long i) { to[i] = (from[i * VECTOR] + bias[0]) / scale; });
    }
}

// The same.
inline void sdf_distance(const SdfSizes &sizes, long n, const float *points, const float *packed, float *sdf) {
    distances(SdfNet(sizes, packed, false), sizes, n, points, sdf);
}

// `sdf_forward` of a network in tiles.
inline void forward_in_tiles(const NetInTiles &net, const SdfSizes &sizes, long n, const float *points, float *sdf,
                             float *feature, float *gradient, float *record) {
    const int stride = whole(sizes.encoded), features = sizes.widths.back() - 1;
    const long padded = rounded_to_blocks(n), most = sizes.keeps ? n : at_once(n, net.net.width);
    Scratch<float> encoded(most * stride), total(most * stride), hidden(sizes.keeps ? 0 : most * recorded(net.net));
    for (long begin = 0; begin < n; begin += most) {
        const long rows = n - begin < most ? n - begin : most;
        const HiddenRows kept = sizes.keeps ? HiddenRows{record, padded} : HiddenRows{hidden.values, most};
        encode_points(sizes, rows, points + begin * 3, encoded.values);
        evaluate(net, {rows, encoded.values, stride, 1.f / sizes.scale, kept, sdf + begin, feature + begin * features, total.values});
        sdf_to_points(sizes.octaves, rows, encoded.values, total.values, stride, gradient + begin * 3);
    }
}

// sdf [n, 1], feature [n, F], gradient [n, 3] and, where `sizes.keeps`, the record.
inline void sdf_forward(const SdfSizes &sizes, long n, const float *points, const float *packed, float *sdf,
                        float *feature, float *gradient, float *record) {
    const SdfNet of(sizes, packed, true);
    if (of.tiles.is_there()) return forward_in_tiles(of.tiles, sizes, n, points, sdf, feature, gradient, record);
    const SoftplusNet &net = *of.layers;
    const Layer &top = net.layers[net.last];
    const long most = at_once(n, net.stride), padded = rounded_to_blocks(n), stride = net.stride;
    const int features = sizes.widths.back() - 1;
    Scratch<float> encoded(most * net.stride_e), total(most * net.stride_e), a(most * stride), b(most * stride);
    Scratch<float> hidden(sizes.keeps ? 0 : most * net.recorded());
    for (long begin = 0; begin < n; begin += most) {
        const long rows = n - begin < most ? n - begin : most;
        const Rows first{encoded.values, net.stride_e};
        const std::vector<Rows> h = sizes.keeps ? rows_of_layers(net, first, record, padded, begin)
                                                : rows_of_layers(net, first, hidden.values, most, 0);
        encode_points(sizes, rows, points + begin * 3, encoded.values);
        hidden_layers(net, rows, h);
        linear(top, rows, net.parts(net.last, h[net.last], h[0]), a.values, stride);
        give_outputs(rows, features, sizes.scale, top.bias, a.values, stride, sdf + begin, feature + begin * features);
        sweep(net, rows, h, a.values, b.values, total.values);
        sdf_to_points(sizes.octaves, rows, encoded.values, total.values, net.stride_e, gradient + begin * 3);
    }
}

// `sdf_backward` of a network in tiles.
inline void backward_in_tiles(const NetInTiles &of, const SdfSizes &sizes, long n, const float *points,
                              const float *record, const float *d_sdf, const float *d_feature, const float *d_gradient,
                              float *d_packed) {
    const TileNet &net = of.net;
    const long padded = rounded_to_blocks(n), most = of.at_once(n);
    const int stride = whole(sizes.encoded), outputs = sizes.widths.back(), stride_top = whole(outputs);
    Scratch<float> encoded(most * stride), hat(most * stride), top(most * stride_top);
    Scratch<float> hats(most * recorded(net)), bars(most * recorded(net));
    WeightGradients gradients(of);
    for (long begin = 0; begin < n; begin += most) {
        const long rows = n - begin < most ? n - begin : most;
        const HiddenRows h{const_cast<float *>(record), padded};
        const TileRows first{encoded.values, stride}, first_hat{hat.values, stride}, last{top.values, stride_top};
        const SdfCotangents its{rows, begin, first_hat, last, h, {hats.values, most}, {bars.values, most}};
        encode_points(sizes, rows, points + begin * 3, encoded.values);
        sdf_from_points(sizes.octaves, rows, encoded.values, d_gradient + begin * 3, hat.values, stride);
        take_outputs(rows, outputs - 1, sizes.scale, d_sdf + begin, d_feature + begin * (outputs - 1), top.values, stride_top);
        of.run(is_reduced() ? sdf_hats_kernel<1> : sdf_hats_kernel<3>, its);
        gradients.add(rows, its.bars, {nullptr, 0, 1}, its.hats, 0, {}, [&](int) { return first_hat; }, false);
        of.run(is_reduced() ? sdf_bars_kernel<1> : sdf_bars_kernel<3>, its);
        gradients.add(rows, its.bars, {top.values, stride_top, outputs}, h, begin, {}, [&](int) { return first; }, true);
    }
    gradients.give(d_packed);
}

// Gradient of the packed parameters from the cotangents of sdf, feature and gradient.
inline void sdf_backward(const SdfSizes &sizes, long n, const float *points, const float *packed, const float *record,
                         const float *d_sdf, const float *d_feature, const float *d_gradient, float *d_packed) {
    const SdfNet of(sizes, packed, true);
    if (of.tiles.is_there())
        return backward_in_tiles(of.tiles, sizes, n, points, record, d_sdf, d_feature, d_gradient, d_packed);
    const SoftplusNet &net = *of.layers;
    const long most = at_once(n, net.stride), padded = rounded_to_blocks(n), stride = net.stride;
    const int features = sizes.widths.back() - 1;
    Scratch<float> encoded(most * net.stride_e), hat(most * net.stride_e);
    const std::vector<Scratch<float>> memory = scratch_of_layers(net, most);
    Scratch<float> a(most * stride), b(most * stride);
    Scratch<float> gradients(net.parameters.size);
    clear(gradients.values, net.parameters.size);
    for (long begin = 0; begin < n; begin += most) {
        const long rows = n - begin < most ? n - begin : most;
        const std::vector<Rows> h =
            rows_of_layers(net, {encoded.values, net.stride_e}, const_cast<float *>(record), padded, begin);
        encode_points(sizes, rows, points + begin * 3, encoded.values);
        const std::vector<Rows> carried = swept(net, rows, h, memory);
        sdf_from_points(sizes.octaves, rows, encoded.values, d_gradient + begin * 3, hat.values, net.stride_e);
        backward_sweep(net, rows, h, carried, {hat.values, net.stride_e}, a.values, b.values, gradients.values);
        take_outputs(rows, features, sizes.scale, d_sdf + begin, d_feature + begin * features, a.values, stride);
        backward_values(net, rows, h, carried, a.values, b.values, gradients.values);
    }
    net.parameters.give(gradients.values, d_packed);
}

}  // namespace neus
