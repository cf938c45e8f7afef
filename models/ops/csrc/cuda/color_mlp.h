// The colour network on all points: ReLU layers, an optional sigmoid, and the gradient with respect to weights, normals
// and features. The reference is ops/color_mlp.py. In tiles hidden layers are computed again for the backward pass. Else
// they are kept for it where `keeps`; the record holds them one after the other, [n, kept_stride] with n rounded up to
// whole blocks.
#pragma once
#include "layers.h"
#include "relu_tiles.h"
#include "sigmoid.h"

namespace neus {

// The parts of each layer's input.
inline Columns color_columns(const ColorSizes &sizes) {
    Columns columns{{sizes.fixed, 3 * sizes.normals, sizes.features}};
    for (size_t l = 2; l < sizes.widths.size(); l += 2) columns.push_back({sizes.widths[l]});
    return columns;
}

struct ColorNet {
    int last, fixed, normals, features, outputs;
    Parameters parameters;
    std::vector<Layer> layers;
    long stride, stride_x;  // of scratch, and of constants and normals

    ColorNet(const ColorSizes &sizes, const float *packed)
        : last(sizes.layers - 1), fixed(sizes.fixed), normals(3 * sizes.normals), features(sizes.features),
          outputs(sizes.widths.back()), parameters(packed, color_columns(sizes), outputs_of(sizes.widths)),
          layers(parameters.layers), stride(widest(layers)), stride_x(whole(fixed) + whole(normals)) {}

    long kept_stride(int l) const { return (layers[l].inputs + PAD - 1) / PAD * PAD + PAD; }
    long recorded() const {
        long total = 0;
        for (int l = 1; l <= last; l++) total += kept_stride(l);
        return total;
    }
};

// Constants, and normals from column `from` on -> x [rows, stride].
inline void color_joined(long rows, const ColorSizes &sizes, int from, int stride, const float *fixed,
                         const float *normals, float *x) {
    const int width = sizes.fixed, count = 3 * sizes.normals;
    each_place(rows, stride, [=] __device__(int r, int i, long at) {
        const float normal = i >= from && i < from + count ? normals[r * 3 + i - from] : 0.f;
        x[at] = i < width ? fixed[(long)r * width + i] : normal;
    });
}

// The cotangents of the last layer's sums [rows, stride] from those of rgb, in whole vectors.
inline void color_sums(long rows, const ColorSizes &sizes, const float *rgb, const float *d_rgb, float *sums, long stride) {
    const int outputs = sizes.widths.back();
    const bool squeezes = sizes.squeeze;
    each_place(rows, whole(outputs), [=] __device__(int r, int i, long) {
        const long at = (long)r * outputs + i;
        sums[r * stride + i] = i < outputs ? d_rgb[at] * (squeezes ? rgb[at] * (1.f - rgb[at]) : 1.f) : 0.f;
    });
}

inline std::vector<LayerShape> color_shapes(const ColorSizes &sizes) {
    std::vector<LayerShape> shapes;
    long weight = 0;
    for (size_t l = 0; l < sizes.widths.size(); l += 2) {
        const int inputs = sizes.widths[l], outputs = sizes.widths[l + 1], beside = l == 0 ? inputs - sizes.features : 0;
        const long bias = weight + (long)inputs * outputs;
        shapes.push_back({weight, bias, inputs, outputs, beside, inputs - beside, 0, beside, 0, outputs, 1.f});
        weight = bias + outputs;
    }
    return shapes;
}

// The inputs of a pass in whole vectors: constants and normals, and features, which are copied unless they are.
struct ColorTiles {
    int stride, stride_f;
    Scratch<float> joined, copied;

    ColorTiles(const ColorSizes &sizes, long most)
        : stride(whole(sizes.fixed + 3 * sizes.normals)), stride_f(whole(sizes.features)), joined(most * stride),
          copied(stride_f > sizes.features ? most * stride_f : 0) {}
    ReluTiles<long> of(const ColorSizes &sizes, long rows, const float *fixed, const float *normals, const float *feature) {
        ReluTiles<long> its{rows};
        color_joined(rows, sizes, sizes.fixed, stride, fixed, normals, joined.values);
        const int width = sizes.features;
        float *to = copied.values;
        if (stride_f > width)
            each_place(rows, stride_f, [=] __device__(int r, int i, long at) {
                to[at] = i < width ? feature[(long)r * width + i] : 0.f;
            });
        its.first = {stride_f > width ? to : const_cast<float *>(feature), stride_f};
        its.beside = {joined.values, stride};
        its.heads = -1;
        its.squeezes = sizes.squeeze;
        its.normals_from = sizes.fixed;
        return its;
    }
};

inline void color_forward_in_tiles(const NetInTiles &net, const ColorSizes &sizes, long n, const float *fixed,
                                   const float *normals, const float *feature, float *rgb) {
    const long most = net.at_once(n);
    ColorTiles inputs(sizes, most);
    for (long begin = 0; begin < n; begin += most) {
        const long rows = n - begin < most ? n - begin : most;
        ReluTiles<long> its =
            inputs.of(sizes, rows, fixed + begin * sizes.fixed, normals + begin * 3, feature + begin * sizes.features);
        its.outputs = rgb + begin * sizes.widths.back();
        evaluate(net, its);
    }
}

inline void color_backward_in_tiles(const NetInTiles &net, const ColorSizes &sizes, long n, const float *fixed,
                                    const float *normals, const float *feature, const float *rgb, const float *d_rgb,
                                    float *d_normals, float *d_feature, float *d_packed) {
    const long most = net.at_once(n), outputs = sizes.widths.back(), stride = whole(outputs);
    ColorTiles inputs(sizes, most);
    ReluPass pass(net, most);
    Scratch<float> sums(most * stride);
    for (long begin = 0; begin < n; begin += most) {
        const long rows = n - begin < most ? n - begin : most;
        ReluTiles<long> its =
            inputs.of(sizes, rows, fixed + begin * sizes.fixed, normals + begin * 3, feature + begin * sizes.features);
        color_sums(rows, sizes, rgb + begin * outputs, d_rgb + begin * outputs, sums.values, stride);
        its.d_outputs = {sums.values, (int)stride};
        its.d_first = d_feature + begin * sizes.features;
        its.d_normals = sizes.normals ? d_normals + begin * 3 : nullptr;
        pass.add(net, most, its);
    }
    pass.gradients.give(d_packed);
}

// Inputs of the layers for the rows from `begin` on: x_0 in the column order of the published network, of which
// `joined` has the first columns, then x_1, x_2, ...
inline std::vector<Parts> color_inputs(const ColorNet &net, const float *joined, const float *feature, long begin,
                                       float *record, long rows, long first) {
    std::vector<Parts> x{{{joined, net.stride_x, (int)net.stride_x, 1.f},
                          {feature + begin * net.features, net.features, net.features, 1.f}}};
    for (int l = 1; l <= net.last; l++) {
        x.push_back({{record + first * net.kept_stride(l), net.kept_stride(l), net.layers[l].inputs, 1.f}});
        record += rows * net.kept_stride(l);
    }
    return x;
}

inline void color_hidden(const ColorNet &net, long rows, const std::vector<Parts> &x) {
    for (int l = 0; l < net.last; l++) {
        float *to = const_cast<float *>(x[l + 1][0].values);
        linear(net.layers[l], rows, x[l], to, x[l + 1][0].stride);
        bias_relu(net.layers[l], rows, to, x[l + 1][0].stride);
    }
}

// rgb [n, outputs], and the record where `sizes.keeps`.
inline void color_forward(const ColorSizes &sizes, long n, const float *fixed, const float *normals,
                          const float *feature, const float *packed, float *rgb, float *kept) {
    const NetInTiles tiles(packed, color_shapes(sizes), false);
    if (tiles.is_there()) return color_forward_in_tiles(tiles, sizes, n, fixed, normals, feature, rgb);
    const ColorNet net(sizes, packed);
    const Layer &top = net.layers[net.last];
    const long most = at_once(n, net.stride), padded = rounded_to_blocks(n);
    Scratch<float> hidden(sizes.keeps ? 0 : most * net.recorded()), joined(most * net.stride_x);
    Scratch<float> sums(most * top.outputs);
    const bool squeezes = sizes.squeeze;
    for (long begin = 0; begin < n; begin += most) {
        const long rows = n - begin < most ? n - begin : most;
        const std::vector<Parts> x =
            sizes.keeps ? color_inputs(net, joined.values, feature, begin, kept, padded, begin)
                        : color_inputs(net, joined.values, feature, begin, hidden.values, most, 0);
        color_joined(rows, sizes, whole(net.fixed), net.stride_x, fixed + begin * net.fixed, normals + begin * 3, joined.values);
        color_hidden(net, rows, x);
        float *to = rgb + begin * net.outputs;
        const float *bias = top.bias, *from = sums.values;
        const long stride = top.outputs;
        linear(top, rows, x[net.last], sums.values, stride);
        each_place(rows, net.outputs, [=] __device__(int r, int i, long at) {
            const float value = from[r * stride + i] + bias[i];
            to[at] = squeezes ? sigmoid(value) : value;
        });
    }
}

// Cotangents of normals [n, 3], feature [n, features] and packed parameters from those of rgb.
inline void color_backward(const ColorSizes &sizes, long n, const float *fixed, const float *normals,
                           const float *feature, const float *packed, const float *rgb, const float *kept,
                           const float *d_rgb, float *d_normals, float *d_feature, float *d_packed) {
    if (!sizes.normals) clear(d_normals, n * 3);
    const NetInTiles tiles(packed, color_shapes(sizes), true);
    if (tiles.is_there())
        return color_backward_in_tiles(tiles, sizes, n, fixed, normals, feature, rgb, d_rgb, d_normals, d_feature, d_packed);
    const ColorNet net(sizes, packed);
    const long most = at_once(n, net.stride), padded = rounded_to_blocks(n), stride = net.stride;
    Scratch<float> hidden(sizes.keeps ? 0 : most * net.recorded()), first(most * stride), second(most * stride);
    Scratch<float> joined(most * net.stride_x), gradients(net.parameters.size);
    clear(gradients.values, net.parameters.size);
    for (long begin = 0; begin < n; begin += most) {
        const long rows = n - begin < most ? n - begin : most;
        const std::vector<Parts> x =
            sizes.keeps
                ? color_inputs(net, joined.values, feature, begin, const_cast<float *>(kept), padded, begin)
                : color_inputs(net, joined.values, feature, begin, hidden.values, most, 0);
        color_joined(rows, sizes, whole(net.fixed), net.stride_x, fixed + begin * net.fixed, normals + begin * 3, joined.values);
        if (!sizes.keeps) color_hidden(net, rows, x);
        float *d = first.values, *other = second.values;
        color_sums(rows, sizes, rgb + begin * net.outputs, d_rgb + begin * net.outputs, d, stride);
        for (int l = net.last; l > 0; l--) {
            const Part &h = x[l][0];
            add_gradients(net.layers[l], rows, d, stride, x[l], gradients.values);
            linear_backward(net.layers[l], rows, d, stride, 0, h.width, 1.f, 0.f, other, stride);
            relu_backward(rows, h.width, h.values, h.stride, other, stride);
            std::swap(d, other);
        }
        const Layer &bottom = net.layers[0];
        add_gradients(bottom, rows, d, stride, x[0], gradients.values);
        linear_backward(bottom, rows, d, stride, whole(net.fixed), net.normals, 1.f, 0.f, d_normals + begin * 3, 3);
        linear_backward(bottom, rows, d, stride, (int)net.stride_x, net.features, 1.f, 0.f,
                        d_feature + begin * net.features, net.features);
    }
    net.parameters.give(gradients.values, d_packed);
}

}  // namespace neus
