// The colour network on all points, in tiles: ReLU layers, an optional sigmoid, and the gradient with respect to weights,
// normals and features. Hidden layers are computed again for the backward pass. The reference is ops/color_mlp.py, which
// also evaluates networks that are too large for tiles.
#pragma once
#include "layers.h"
#include "relu_tiles.h"

namespace neus {

// Constants, then normals -> x [rows, stride].
inline void color_joined(long rows, const ColorSizes &sizes, int stride, const float *fixed, const float *normals, float *x) {
    const int width = sizes.fixed, count = 3 * sizes.normals;
    each_place(rows, stride, [=] __device__(int r, int i, long at) {
        const float normal = i >= width && i < width + count ? normals[r * 3 + i - width] : 0.f;
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
        color_joined(rows, sizes, stride, fixed, normals, joined.values);
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

// rgb [n, outputs].
inline void color_forward(const ColorSizes &sizes, long n, const float *fixed, const float *normals,
                          const float *feature, const float *packed, float *rgb, float *) {
    const NetInTiles net(packed, color_shapes(sizes), false);
    ColorTiles inputs(sizes, n);
    ReluTiles<long> its = inputs.of(sizes, n, fixed, normals, feature);
    its.outputs = rgb;
    evaluate(net, its);
}

// Cotangents of normals [n, 3], feature [n, features] and packed parameters from those of rgb.
inline void color_backward(const ColorSizes &sizes, long n, const float *fixed, const float *normals,
                           const float *feature, const float *packed, const float *rgb, const float *,
                           const float *d_rgb, float *d_normals, float *d_feature, float *d_packed) {
    if (!sizes.normals) clear(d_normals, n * 3);
    const NetInTiles net(packed, color_shapes(sizes), true);
    const long most = net.at_once(n), outputs = sizes.widths.back(), stride = whole(outputs);
    ColorTiles inputs(sizes, most);
    ReluPass pass(net, most);
    Scratch<float> sums(most * stride);
    for (long begin = 0; begin < n; begin += most) {
        const long rows = part_of(n, begin, most);
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

}  // namespace neus
