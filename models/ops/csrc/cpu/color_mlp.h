// The colour network on blocks of points: ReLU layers, an optional sigmoid, and the gradient with respect to weights,
// normals and features. The hidden layers are kept for the backward pass where `keeps`, else computed again.
#pragma once
#include "layers.h"
#include "sigmoid.h"

namespace neus {

// Input of the network in three parts, in the column order of the published network.
struct ColorInput {
    const float *fixed;    // [n, fixed]
    const float *normals;  // [n, 3]
    const float *feature;  // [n, features]
};

// Number of values stored for a block: x_1, x_2, ..., [BLOCK, stride_of(inputs)] each.
inline long color_recorded(const std::vector<Layer> &layers) {
    long per_point = 0;
    for (size_t l = 1; l < layers.size(); l++) per_point += stride_of(layers[l].inputs);
    return BLOCK * per_point;
}

struct ColorBlock {
    const ColorSizes &shape;
    const std::vector<Layer> &layers;
    std::vector<float *> input;  // x_l, [BLOCK, stride_of(inputs)]; from x_1 on in the record, where there is one
    float *scratch_record, *wide_a, *wide_b;

    static size_t scratch(const ColorSizes &, const std::vector<Layer> &layers) {
        return color_recorded(layers) + BLOCK * (stride_of(layers[0].inputs) + 2 * widest(layers));
    }

    ColorBlock(const ColorSizes &shape_, const std::vector<Layer> &layers_, Arena &arena)
        : shape(shape_), layers(layers_), input(layers.size()) {
        input[0] = arena.take((size_t)BLOCK * stride_of(layers[0].inputs));
        scratch_record = arena.take(color_recorded(layers));
        wide_a = arena.take(BLOCK * widest(layers));
        wide_b = arena.take(BLOCK * widest(layers));
    }

    // Set the buffers of x_1, x_2, ... of the block at `begin`: in the record of all blocks, or in scratch.
    void place(float *kept, long begin) {
        float *at = shape.keeps ? kept + begin / BLOCK * color_recorded(layers) : scratch_record;
        for (size_t l = 1; l < layers.size(); at += (long)BLOCK * stride_of(layers[l].inputs), l++) input[l] = at;
    }

    // Fill x_0 of `count` points; later rows keep finite values of earlier blocks.
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

    void hidden_layers() {
        for (int l = 0; l + 1 < shape.layers; l++)
            linear_relu(layers[l], input[l], input[l + 1], stride_of(layers[l].outputs));
    }

    // The last layer: `to` receives the outputs of `count` points, [count, outputs].
    void outputs(int count, float *to) {
        const int last = shape.layers - 1, width = layers[last].outputs;
        const long stride = stride_of(width);
        linear(layers[last], input[last], wide_a);
        for (int r = 0; r < count; r++)
            for (int o = 0; o < width; o++) to[r * width + o] = wide_a[r * stride + o];
        if (!shape.squeeze) return;
#pragma omp simd
        for (int i = 0; i < count * width; i++) to[i] = sigmoid(to[i]);
    }

    // From the cotangents of the linear outputs, in wide_a with zero rows past the points: weight gradients, and the
    // cotangent of x_0, [BLOCK, stride_of(inputs)], which is returned.
    const float *backward(float *gradients) {
        float *d_outputs = wide_a, *d_inputs = wide_b;
        for (int l = shape.layers - 1; l > 0; l--) {
            linear_backward(layers[l], input[l], d_outputs, d_inputs, gradients,
                            WherePositive{input[l], stride_of(layers[l].inputs)});
            std::swap(d_outputs, d_inputs);
        }
        linear_backward(layers[0], input[0], d_outputs, d_inputs, gradients);
        return d_inputs;
    }
};

// rgb [n, outputs], and the record for the backward pass where `sizes.keeps`.
inline void color_forward(const ColorSizes &shape, long n, const float *fixed, const float *normals,
                          const float *feature, const float *packed, float *rgb, float *kept) {
    const ColorInput from{fixed, normals, feature};
    const std::vector<Layer> layers = read_layers(packed, shape.widths.data(), shape.layers, false);
    const int outputs = layers.back().outputs;
    each_block<ColorBlock>(shape, layers, n, [&](ColorBlock &block, long begin, int count) {
        block.place(kept, begin);
        block.read(from, begin, count);
        block.hidden_layers();
        block.outputs(count, rgb + begin * outputs);
    });
}

// Cotangents of normals [n, 3], feature [n, features] and packed parameters from those of rgb.
inline void color_backward(const ColorSizes &shape, long n, const float *fixed, const float *normals,
                           const float *feature, const float *packed, const float *rgb, const float *kept,
                           const float *d_rgb, float *d_normals, float *d_feature, float *d_packed) {
    const ColorInput from{fixed, normals, feature};
    const std::vector<Layer> layers = read_layers(packed, shape.widths.data(), shape.layers, true);
    const int outputs = layers.back().outputs;
    const long out_stride = stride_of(outputs), in_stride = stride_of(layers[0].inputs);
    each_block<ColorBlock>(shape, layers, n, d_packed, [&](ColorBlock &block, long begin, int count, float *gradients) {
        block.place(const_cast<float *>(kept), begin);
        block.read(from, begin, count);
        if (shape.keeps)
            expect(kept + (begin / BLOCK + 1) * color_recorded(layers), color_recorded(layers));  // the next block's
        else
            block.hidden_layers();
        for (int r = 0; r < BLOCK; r++)
            for (int o = 0; o < outputs; o++) {
                const long i = (begin + std::min(r, count - 1)) * outputs + o;
                const float local = shape.squeeze ? rgb[i] * (1.f - rgb[i]) : 1.f;
                block.wide_a[r * out_stride + o] = r < count ? d_rgb[i] * local : 0.f;
            }
        const float *d_input = block.backward(gradients);
        for (int r = 0; r < count; r++) {
            const float *row = d_input + r * in_stride + shape.fixed;
            float *normal = d_normals + (begin + r) * 3;
            for (int j = 0; j < 3; j++) normal[j] = shape.normals ? row[j] : 0.f;
            std::memcpy(d_feature + (begin + r) * shape.features, row + 3 * shape.normals,
                        shape.features * sizeof(float));
        }
    });
}

}  // namespace neus
