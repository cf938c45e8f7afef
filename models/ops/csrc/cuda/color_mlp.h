// The colour network on all points: ReLU layers, an optional sigmoid, and the gradient with respect to weights, normals
// and features. The reference is ops/color_mlp.py. Hidden layers are kept for the backward pass where `keeps`, else
// computed again; the record holds them one after the other, [n, kept_stride] with n rounded up to whole blocks.
#pragma once
#include "layers.h"
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

// Constants and normals -> x [rows, stride_x], in whole vectors.
inline void color_joined(const ColorNet &net, long rows, const float *fixed, const float *normals, float *x) {
    const int width = net.fixed, from = whole(width), count = net.normals;
    each_place(rows, (int)net.stride_x, [=] __device__(int r, int i, long at) {
        const float normal = i >= from && i < from + count ? normals[r * 3 + i - from] : 0.f;
        x[at] = i < width ? fixed[(long)r * width + i] : normal;
    });
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
        color_joined(net, rows, fixed + begin * net.fixed, normals + begin * 3, joined.values);
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
    const ColorNet net(sizes, packed);
    const long most = at_once(n, net.stride), padded = rounded_to_blocks(n), stride = net.stride;
    Scratch<float> hidden(sizes.keeps ? 0 : most * net.recorded()), first(most * stride), second(most * stride);
    Scratch<float> joined(most * net.stride_x), gradients(net.parameters.size);
    const bool squeezes = sizes.squeeze;
    const int outputs = net.outputs, columns = net.layers[net.last].outputs;
    clear(gradients.values, net.parameters.size);
    if (!sizes.normals) clear(d_normals, n * 3);
    for (long begin = 0; begin < n; begin += most) {
        const long rows = n - begin < most ? n - begin : most;
        const std::vector<Parts> x =
            sizes.keeps
                ? color_inputs(net, joined.values, feature, begin, const_cast<float *>(kept), padded, begin)
                : color_inputs(net, joined.values, feature, begin, hidden.values, most, 0);
        color_joined(net, rows, fixed + begin * net.fixed, normals + begin * 3, joined.values);
        if (!sizes.keeps) color_hidden(net, rows, x);
        float *d = first.values, *other = second.values;
        const float *value = rgb + begin * outputs, *from = d_rgb + begin * outputs;
        float *to = d;
        each_place(rows, columns, [=] __device__(int r, int i, long) {
            const long at = (long)r * outputs + i;
            to[r * stride + i] = i < outputs ? from[at] * (squeezes ? value[at] * (1.f - value[at]) : 1.f) : 0.f;
        });
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
