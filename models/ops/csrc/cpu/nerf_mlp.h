// A NeRF on blocks of points: a trunk of ReLU layers, where a skip prepends the encoded point; one linear layer for
// feature and density together; a ReLU layer of feature and encoded view; a linear layer for the colour. Only the
// weights have gradients. The backward pass recomputes the layers, which is faster than storing them.
#pragma once
#include "layers.h"

namespace neus {

struct NerfShape : NerfSizes {
    explicit NerfShape(const NerfSizes &sizes) : NerfSizes(sizes) {}
    int layers() const { return trunk + 3; }
    int heads() const { return trunk; }
    int view() const { return trunk + 1; }
    int color() const { return trunk + 2; }
    int encoded() const { return coordinates * (1 + 2 * octaves); }
    int encoded_view() const { return 3 * (1 + 2 * view_octaves); }
    int features() const { return widths[2 * heads() + 1] - 1; }
    // Number of input columns of trunk layer l > 0 before the hidden channels: the encoded point, or none.
    int offset(int l) const { return widths[2 * l] - widths[2 * l - 1]; }
};

struct NerfBlock {
    const NerfShape &shape;
    const std::vector<Layer> &layers;
    std::vector<float *> input;  // x_l, [BLOCK, stride_of(inputs)]; x_0 is the encoded point
    float *views;                // encoded, [BLOCK, stride_of(encoded_view)]
    float *wide_a, *wide_b;

    static size_t scratch(const NerfShape &shape, const std::vector<Layer> &layers) {
        size_t per_point = stride_of(shape.encoded_view()) + 2 * widest(layers);
        for (const Layer &layer : layers) per_point += stride_of(layer.inputs);
        return BLOCK * per_point;
    }

    NerfBlock(const NerfShape &shape_, const std::vector<Layer> &layers_, Arena &arena)
        : shape(shape_), layers(layers_) {
        for (const Layer &layer : layers) input.push_back(arena.take((size_t)BLOCK * stride_of(layer.inputs)));
        views = arena.take((size_t)BLOCK * stride_of(shape.encoded_view()));
        wide_a = arena.take(BLOCK * widest(layers));
        wide_b = arena.take(BLOCK * widest(layers));
    }

    long in_stride(int l) const { return stride_of(layers[l].inputs); }
    long out_stride(int l) const { return stride_of(layers[l].outputs); }

    // All layers of `count` points [count, coordinates] seen along directions [count, 3]. `density`, unless null,
    // receives [count]; the colours are in wide_a, [BLOCK, stride_of(3)].
    void forward(const float *points, const float *directions, int count, float *density) {
        encode(points, count, shape.coordinates, shape.octaves, 1.f, input[0], in_stride(0));
        for (int l = 0; l < shape.trunk; l++) {
            linear_relu(layers[l], input[l], input[l + 1] + shape.offset(l + 1), in_stride(l + 1));
            copy(input[0], in_stride(0), shape.offset(l + 1), input[l + 1], in_stride(l + 1));
        }
        const int heads = shape.heads(), view = shape.view(), features = shape.features();
        linear(layers[heads], input[heads], wide_a);
        for (int r = 0; density && r < count; r++) density[r] = wide_a[r * out_stride(heads) + features];
        encode(directions, count, 3, shape.view_octaves, 1.f, views, stride_of(shape.encoded_view()));
        copy(wide_a, out_stride(heads), features, input[view], in_stride(view));
        copy(views, stride_of(shape.encoded_view()), shape.encoded_view(), input[view] + features, in_stride(view));
        linear_relu(layers[view], input[view], input[view + 1], in_stride(view + 1));
        linear(layers[view + 1], input[view + 1], wide_a);
    }

    // Weight gradients after `forward`, from the cotangents of density [count] and colour [count, 3].
    void backward(const float *d_density, const float *d_rgb, int count, float *gradients) {
        const int heads = shape.heads(), view = shape.view(), color = shape.color(), features = shape.features();
        std::memset(wide_a, 0, BLOCK * out_stride(color) * sizeof(float));
        for (int r = 0; r < count; r++) std::memcpy(wide_a + r * out_stride(color), d_rgb + r * 3, 3 * sizeof(float));
        linear_backward(layers[color], input[color], wide_a, wide_b, gradients);
        relu_backward(layers[view].outputs, input[color], wide_b, in_stride(color), wide_a, out_stride(view));
        linear_backward(layers[view], input[view], wide_a, wide_b, gradients);
        copy(wide_b, in_stride(view), features, wide_a, out_stride(heads));
        for (int r = 0; r < BLOCK; r++) wide_a[r * out_stride(heads) + features] = r < count ? d_density[r] : 0.f;
        linear_backward(layers[heads], input[heads], wide_a, wide_b, gradients);
        for (int l = shape.trunk; l > 0; l--) {
            const int offset = shape.offset(l);
            relu_backward(layers[l - 1].outputs, input[l] + offset, wide_b + offset, in_stride(l), wide_a,
                          out_stride(l - 1));
            linear_backward(layers[l - 1], input[l - 1], wide_a, l > 1 ? wide_b : nullptr, gradients);
        }
    }

    // `width` channels of a block.
    static void copy(const float *from, long ld_from, int width, float *to, long ld_to) {
        for (int r = 0; width > 0 && r < BLOCK; r++)
            std::memcpy(to + r * ld_to, from + r * ld_from, width * sizeof(float));
    }
};

// density [n, 1] and rgb [n, 3] of points [n, coordinates] seen along directions [n, 3].
inline void nerf_forward(const NerfSizes &sizes, long n, const float *points, const float *directions,
                         const float *packed, float *density, float *rgb) {
    const NerfShape shape(sizes);
    const std::vector<Layer> layers = read_layers(packed, shape.widths.data(), shape.layers(), false);
    each_block<NerfBlock>(shape, layers, n, [&](NerfBlock &block, long begin, int count) {
        block.forward(points + begin * shape.coordinates, directions + begin * 3, count, density + begin);
        for (int r = 0; r < count; r++)
            std::memcpy(rgb + (begin + r) * 3, block.wide_a + r * stride_of(3), 3 * sizeof(float));
    });
}

// Gradient of the packed parameters from the cotangents of density and rgb.
inline void nerf_backward(const NerfSizes &sizes, long n, const float *points, const float *directions,
                          const float *packed, const float *d_density, const float *d_rgb, float *d_packed) {
    const NerfShape shape(sizes);
    const std::vector<Layer> layers = read_layers(packed, shape.widths.data(), shape.layers(), true);
    each_block<NerfBlock>(shape, layers, n, d_packed, [&](NerfBlock &block, long begin, int count, float *gradients) {
        block.forward(points + begin * shape.coordinates, directions + begin * 3, count, nullptr);
        block.backward(d_density + begin, d_rgb + begin * 3, count, gradients);
    });
}

// The points with `selected`, in their order.
inline std::vector<long> selected_points(long n, const bool *selected) {
    std::vector<long> chosen;
    for (long p = 0; p < n; p++)
        if (selected[p]) chosen.push_back(p);
    return chosen;
}

// The chosen rows of values [n, width].
inline std::vector<float> gather(const std::vector<long> &chosen, const float *values, int width) {
    std::vector<float> found;
    found.reserve(chosen.size() * width);
    for (long row : chosen) found.insert(found.end(), values + row * width, values + (row + 1) * width);
    return found;
}

// `nerf_forward` at the selected points; 0 elsewhere.
inline void nerf_forward_selected(const NerfSizes &sizes, long n, const float *points, const float *directions,
                                  const float *packed, const bool *selected, float *density, float *rgb) {
    const std::vector<long> chosen = selected_points(n, selected);
    std::vector<float> some_density(chosen.size()), some_rgb(3 * chosen.size());
    nerf_forward(sizes, (long)chosen.size(), gather(chosen, points, sizes.coordinates).data(),
                 gather(chosen, directions, 3).data(), packed, some_density.data(), some_rgb.data());
    std::fill(density, density + n, 0.f);
    std::fill(rgb, rgb + 3 * n, 0.f);
    for (size_t i = 0; i < chosen.size(); i++) {
        density[chosen[i]] = some_density[i];
        std::copy_n(&some_rgb[3 * i], 3, rgb + 3 * chosen[i]);
    }
}

// `nerf_backward` from the cotangents of the selected points.
inline void nerf_backward_selected(const NerfSizes &sizes, long n, const float *points, const float *directions,
                                   const float *packed, const bool *selected, const float *d_density,
                                   const float *d_rgb, float *d_packed) {
    const std::vector<long> chosen = selected_points(n, selected);
    nerf_backward(sizes, (long)chosen.size(), gather(chosen, points, sizes.coordinates).data(),
                  gather(chosen, directions, 3).data(), packed, gather(chosen, d_density, 1).data(),
                  gather(chosen, d_rgb, 3).data(), d_packed);
}

}  // namespace neus
