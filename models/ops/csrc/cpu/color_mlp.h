// The colour network on blocks of points: ReLU layers, an optional sigmoid, and the gradient with respect to weights,
// normals and features. The backward pass computes the layers again: cheaper than keeping them.
#pragma once
#include "layers.h"
#include "sigmoid.h"

namespace neus {

// What the layers read, row by row: the column order of the published network, given as three runs.
struct ColorInput {
    const float *fixed;    // [n, fixed]
    const float *normals;  // [n, 3]
    const float *feature;  // [n, features]
};

struct ColorBlock {
    const ColorSizes &shape;
    const std::vector<Layer> &layers;
    std::vector<float *> input;  // x_l, [BLOCK, stride_of(inputs)]
    float *wide_a, *wide_b;

    static size_t scratch(const ColorSizes &, const std::vector<Layer> &layers) {
        size_t per_point = 2 * widest(layers);
        for (const Layer &layer : layers) per_point += stride_of(layer.inputs);
        return BLOCK * per_point;
    }

    ColorBlock(const ColorSizes &shape_, const std::vector<Layer> &layers_, Arena &arena)
        : shape(shape_), layers(layers_) {
        for (const Layer &layer : layers) input.push_back(arena.take((size_t)BLOCK * stride_of(layer.inputs)));
        wide_a = arena.take(BLOCK * widest(layers));
        wide_b = arena.take(BLOCK * widest(layers));
    }

    // Fill x_0 of `count` points; rows past them keep finite leftovers.
    void read(const ColorInput &from, long begin, int count) {
        const long stride = stride_of(layers[0].inputs);
        for (int r = 0; r < count; r++) {
            float *to = input[0] + r * stride;
            std::memcpy(to, from.fixed + (begin + r) * shape.fixed, shape.fixed * sizeof(float));
            to += shape.fixed;
            if (shape.normals) std::memcpy(to, from.normals + (begin + r) * 3, 3 * sizeof(float));
            to += 3 * shape.normals;
            std::memcpy(to, from.feature + (begin + r) * shape.features, shape.features * sizeof(float));
        }
    }

    // All layers; the outputs in wide_a, [BLOCK, stride_of(outputs)].
    void forward() {
        for (int l = 0; l < shape.layers; l++) {
            const Layer &layer = layers[l];
            const long stride = stride_of(layer.outputs);
            linear(layer, input[l], wide_a);
            if (l + 1 < shape.layers) relu(layer.outputs, wide_a, stride, input[l + 1], stride);
        }
        if (!shape.squeeze) return;
        const Layer &layer = layers.back();
        for (int r = 0; r < BLOCK; r++)
            for (int o = 0; o < layer.outputs; o++) {
                float &value = wide_a[r * stride_of(layer.outputs) + o];
                value = sigmoid(value);
            }
    }

    // From the cotangents of the linear outputs, in wide_a with zero rows past the points: weight gradients, and the
    // cotangent of x_0 in wide_b.
    void backward(float *gradients) {
        for (int l = shape.layers - 1; l >= 0; l--) {
            const long stride = stride_of(layers[l].inputs);
            linear_backward(layers[l], input[l], wide_a, wide_b, gradients);
            if (l > 0) relu_backward(layers[l].inputs, input[l], wide_b, stride, wide_a, stride);
        }
    }
};

// rgb [n, outputs].
inline void color_forward(const ColorSizes &shape, long n, const float *fixed, const float *normals,
                          const float *feature, const float *packed, float *rgb) {
    const ColorInput from{fixed, normals, feature};
    const std::vector<Layer> layers = read_layers(packed, shape.widths.data(), shape.layers, false);
    const int outputs = layers.back().outputs;
    each_block<ColorBlock>(shape, layers, n, [&](ColorBlock &block, long begin, int count) {
        block.read(from, begin, count);
        block.forward();
        for (int r = 0; r < count; r++)
            std::memcpy(rgb + (begin + r) * outputs, block.wide_a + r * stride_of(outputs), outputs * sizeof(float));
    });
}

// Cotangents of normals [n, 3], feature [n, features] and packed parameters from those of rgb.
inline void color_backward(const ColorSizes &shape, long n, const float *fixed, const float *normals,
                           const float *feature, const float *packed, const float *d_rgb, float *d_normals,
                           float *d_feature, float *d_packed) {
    const ColorInput from{fixed, normals, feature};
    const std::vector<Layer> layers = read_layers(packed, shape.widths.data(), shape.layers, true);
    const int outputs = layers.back().outputs;
    const long out_stride = stride_of(outputs), in_stride = stride_of(layers[0].inputs);
    each_block<ColorBlock>(shape, layers, n, d_packed, [&](ColorBlock &block, long begin, int count, float *gradients) {
        block.read(from, begin, count);
        block.forward();
        for (int r = 0; r < BLOCK; r++)
            for (int o = 0; o < outputs; o++) {
                float &value = block.wide_a[r * out_stride + o];
                const float local = shape.squeeze ? value * (1.f - value) : 1.f;
                value = r < count ? d_rgb[(begin + r) * outputs + o] * local : 0.f;
            }
        block.backward(gradients);
        for (int r = 0; r < count; r++) {
            const float *row = block.wide_b + r * in_stride + shape.fixed;
            float *normal = d_normals + (begin + r) * 3;
            for (int j = 0; j < 3; j++) normal[j] = shape.normals ? row[j] : 0.f;
            std::memcpy(d_feature + (begin + r) * shape.features, row + 3 * shape.normals,
                        shape.features * sizeof(float));
        }
    });
}

}  // namespace neus
