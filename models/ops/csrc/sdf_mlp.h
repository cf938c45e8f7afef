// The signed-distance network on all points: blocks shared out among the threads. See sdf_block.h.
#pragma once
#include "sdf_block.h"

namespace neus {

// sdf [n, 1] alone.
inline void sdf_distance(const int *spec, const float *points, long n, const float *packed, float scale, float *sdf) {
    const SdfShape shape(spec);
    const std::vector<Layer> layers = read_layers(packed, shape.widths, shape.layers, false);
#pragma omp parallel
    {
        Arena arena(SdfBlock::scratch(shape, layers));
        SdfBlock block(shape, layers, arena);
#pragma omp for schedule(static)
        for (long begin = 0; begin < n; begin += BLOCK) {
            const int count = (int)std::min<long>(BLOCK, n - begin);
            block.hidden_layers(points + begin * 3, count, scale, nullptr, false);
            for (int r = 0; r < count; r++) sdf[begin + r] = block.distance(r) / scale;
        }
    }
}

// sdf [n, 1], feature [n, F], gradient [n, 3] and the record `saved` [blocks, BLOCK * shape.saved()] for the backward
// pass; null for no record.
inline void sdf_forward(const int *spec, const float *points, long n, const float *packed, float scale, float *sdf,
                        float *feature, float *gradient, float *saved) {
    const SdfShape shape(spec);
    const std::vector<Layer> layers = read_layers(packed, shape.widths, shape.layers, true);
    const int features = layers.back().outputs - 1;
    const long stride = stride_of(layers.back().outputs);
#pragma omp parallel
    {
        Arena arena(SdfBlock::scratch(shape, layers));
        SdfBlock block(shape, layers, arena);
#pragma omp for schedule(static)
        for (long begin = 0; begin < n; begin += BLOCK) {
            const int count = (int)std::min<long>(BLOCK, n - begin);
            float *record = saved ? saved + begin * shape.saved() : nullptr;
            block.hidden_layers(points + begin * 3, count, scale, record, true);
            block.linear(block.last(), block.wide_b);
            for (int r = 0; r < count; r++) {
                sdf[begin + r] = block.wide_b[r * stride] / scale;
                std::memcpy(feature + (begin + r) * features, block.wide_b + r * stride + 1, features * sizeof(float));
            }
            block.sweep();
            block.to_points(count, gradient + begin * 3);
        }
    }
}

// Gradient of the packed parameters from the cotangents of sdf, feature and gradient.
inline void sdf_backward(const int *spec, const float *points, long n, const float *packed, float scale,
                         const float *saved, const float *d_sdf, const float *d_feature, const float *d_gradient,
                         float *d_packed) {
    const SdfShape shape(spec);
    const std::vector<Layer> layers = read_layers(packed, shape.widths, shape.layers, true);
    const int features = layers.back().outputs - 1;
    const long stride = stride_of(layers.back().outputs);
    std::vector<std::vector<float>> parts(omp_get_max_threads());
#pragma omp parallel
    {
        std::vector<float> &gradients = parts[omp_get_thread_num()];
        gradients.assign(gradient_size(layers), 0.f);
        Arena arena(SdfBlock::scratch(shape, layers) + BLOCK * (stride + stride_of(shape.encoded)));
        SdfBlock block(shape, layers, arena);
        float *bar = arena.take(BLOCK * stride), *hat = arena.take(BLOCK * stride_of(shape.encoded));
#pragma omp for schedule(static)
        for (long begin = 0; begin < n; begin += BLOCK) {
            const int count = (int)std::min<long>(BLOCK, n - begin);
            block.reload(points + begin * 3, count, scale, saved + begin * shape.saved());
            block.sweep();
            block.from_points(d_gradient + begin * 3, count, hat);
            block.backward_sweep(hat, gradients.data());
            std::memset(bar, 0, BLOCK * stride * sizeof(float));
            for (int r = 0; r < count; r++) {
                bar[r * stride] = d_sdf[begin + r] / scale;
                std::memcpy(bar + r * stride + 1, d_feature + (begin + r) * features, features * sizeof(float));
            }
            block.backward_values(bar, gradients.data());
        }
    }
    reduce_gradients(layers, parts, d_packed);
}

}  // namespace neus
