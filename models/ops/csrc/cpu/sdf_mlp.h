// The signed-distance network on all points: blocks are distributed over threads. See sdf_block.h.
#pragma once
#include "sdf_block.h"

namespace neus {

// sdf [n, 1] alone.
inline void sdf_distance(const SdfSizes &sizes, long n, const float *points, const float *packed, float *sdf) {
    const SdfShape shape(sizes);
    const float scale = sizes.scale;
    const std::vector<Layer> layers = read_layers(packed, shape.widths.data(), shape.layers, false);
    each_block<SdfBlock>(shape, layers, n, [&](SdfBlock &block, long begin, int count) {
        block.hidden_layers(points + begin * 3, count, scale, nullptr, false);
        for (int r = 0; r < count; r++) sdf[begin + r] = block.distance(r) / scale;
    });
}

// sdf [n, 1], feature [n, F], gradient [n, 3] and, where `sizes.keeps`, the record `saved` for the backward pass,
// [blocks, BLOCK * shape.saved()].
inline void sdf_forward(const SdfSizes &sizes, long n, const float *points, const float *packed, float *sdf,
                        float *feature, float *gradient, float *saved) {
    const SdfShape shape(sizes);
    const float scale = sizes.scale;
    const std::vector<Layer> layers = read_layers(packed, shape.widths.data(), shape.layers, true);
    const int features = layers.back().outputs - 1;
    const long stride = stride_of(layers.back().outputs);
    each_block<SdfBlock>(shape, layers, n, [&](SdfBlock &block, long begin, int count) {
        float *record = sizes.keeps ? saved + begin * shape.saved() : nullptr;
        block.hidden_layers(points + begin * 3, count, scale, record, true);
        linear(layers.back(), block.input.back(), block.wide_b);
        for (int r = 0; r < count; r++) {
            sdf[begin + r] = block.wide_b[r * stride] / scale;
            std::memcpy(feature + (begin + r) * features, block.wide_b + r * stride + 1, features * sizeof(float));
        }
        block.sweep();
        block.to_points(count, gradient + begin * 3);
    });
}

// Gradient of the packed parameters from the cotangents of sdf, feature and gradient.
inline void sdf_backward(const SdfSizes &sizes, long n, const float *points, const float *packed, const float *saved,
                         const float *d_sdf, const float *d_feature, const float *d_gradient, float *d_packed) {
    const SdfShape shape(sizes);
    const float scale = sizes.scale;
    const std::vector<Layer> layers = read_layers(packed, shape.widths.data(), shape.layers, true);
    const int features = layers.back().outputs - 1;
    const long stride = stride_of(layers.back().outputs);
    each_block<SdfBlock>(shape, layers, n, d_packed, [&](SdfBlock &block, long begin, int count, float *gradients) {
        block.reload(points + begin * 3, count, scale, saved + begin * shape.saved());
        block.sweep();
        block.from_points(d_gradient + begin * 3, count);
        block.backward_sweep(gradients);
        std::memset(block.bar, 0, BLOCK * stride * sizeof(float));
        for (int r = 0; r < count; r++) {
            block.bar[r * stride] = d_sdf[begin + r] / scale;
            std::memcpy(block.bar + r * stride + 1, d_feature + (begin + r) * features, features * sizeof(float));
        }
        block.backward_values(gradients);
    });
}

}  // namespace neus
