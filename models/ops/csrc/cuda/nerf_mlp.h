// A NeRF on all points, in tiles: a trunk of ReLU layers, where a skip prepends the encoded point; one linear layer for
// feature and density together; a ReLU layer of feature and encoded view; a linear layer for the colour. Only the weights
// have gradients. The backward pass recomputes the layers, which is faster than storing them. The reference is
// ops/nerf_mlp.py, which also evaluates networks that are too large for tiles.
#pragma once
#include "layers.h"
#include "offsets.h"
#include "relu_tiles.h"
#include "some_rows.h"

namespace neus {

// Of the layer for feature and density the part for the feature, and behind all that for the density.
inline std::vector<LayerShape> nerf_shapes(const NerfSizes &sizes) {
    const int heads = sizes.trunk, features = sizes.widths[2 * heads + 1] - 1;
    std::vector<LayerShape> shapes;
    LayerShape density{};
    long weight = 0;
    for (int l = 0; 2 * l < (int)sizes.widths.size(); l++) {
        const bool is_view = l == heads + 1;
        const int inputs = sizes.widths[2 * l], main = l == 0 ? 0 : is_view ? features : sizes.widths[2 * l - 1];
        const int outputs = sizes.widths[2 * l + 1], beside = inputs - main, used = l == heads ? features : outputs;
        const long bias = weight + (long)inputs * outputs;
        shapes.push_back({weight, bias, inputs, used, is_view ? 0 : beside, main, is_view ? main : 0, beside, 0, used, 1.f});
        if (l == heads)
            density = {weight + (long)inputs * used, bias + used, inputs, 1, beside, main, 0, beside, 0, 0, 1.f};
        weight = bias + outputs;
    }
    shapes.push_back(density);
    return shapes;
}

// The encoded inputs of a pass, in whole vectors.
struct NerfTiles {
    int stride_e, stride_v;
    Scratch<float> points, views;

    NerfTiles(const NerfSizes &sizes, long most)
        : stride_e(whole(sizes.widths[0])), stride_v(whole(3 * (1 + 2 * sizes.view_octaves))), points(most * stride_e),
          views(most * stride_v) {}
    template <typename Rows>
    ReluTiles<Rows> of(const Rows &rows, const NerfSizes &sizes, const float *from, const float *directions) {
        encode(from, rows, sizes.coordinates, sizes.octaves, 1.f, points.values, stride_e, stride_e - sizes.widths[0]);
        encode(directions, rows, 3, sizes.view_octaves, 1.f, views.values, stride_v, stride_v - 3 * (1 + 2 * sizes.view_octaves));
        ReluTiles<Rows> its{rows};
        its.beside = {points.values, stride_e};
        its.views = {views.values, stride_v};
        its.heads = sizes.trunk;
        return its;
    }
};

// density [n, 1] and rgb [n, 3] of points [n, coordinates] seen along directions [n, 3].
template <typename Rows>
inline void values_of(const Rows &n, const NerfSizes &sizes, const float *points, const float *directions,
                      const float *packed, float *density, float *rgb) {
    const NetInTiles net(packed, nerf_shapes(sizes), false, true);
    NerfTiles inputs(sizes, most_of(n));
    ReluTiles<Rows> its = inputs.of(n, sizes, points, directions);
    its.density = density;
    its.outputs = rgb;
    evaluate(net, its);
}

// Gradient of the packed parameters from the cotangents of density and rgb.
template <typename Rows>
inline void gradients_of(const Rows &n, const NerfSizes &sizes, const float *points, const float *directions,
                         const float *packed, const float *d_density, const float *d_rgb, float *d_packed) {
    const NetInTiles net(packed, nerf_shapes(sizes), true, true);
    const long most = net.at_once(most_of(n));
    NerfTiles inputs(sizes, most);
    ReluPass pass(net, most);
    Scratch<float> sums(most * 2 * VECTOR);
    float *to_rgb = sums.values, *to_density = to_rgb + most * VECTOR;
    for (long begin = 0; begin < most_of(n); begin += most) {
        const Rows rows = part_of(n, begin, most);
        const float *from_rgb = d_rgb + begin * 3, *from_density = d_density + begin;
        ReluTiles<Rows> its = inputs.of(rows, sizes, points + begin * sizes.coordinates, directions + begin * 3);
        each_place(rows, VECTOR, [=] __device__(int r, int i, long at) {
            to_rgb[at] = i < 3 ? from_rgb[r * 3 + i] : 0.f;
            to_density[at] = i == 0 ? from_density[r] : 0.f;
        });
        its.d_outputs = {to_rgb, VECTOR};
        its.d_density = {to_density, VECTOR};
        pass.add(net, most, its);
    }
    pass.gradients.give(d_packed);
}

constexpr long GROUP = 128;  // points of which a thread counts the selected ones

// The selected points in their order; the host does not know their number.
struct SelectedPoints {
    Scratch<int> chosen, offsets;  // offsets: where those of each group begin
    SomeRows rows;
};

inline SelectedPoints selected_points(long n, const bool *selected) {
    const long groups = (n + GROUP - 1) / GROUP;
    Scratch<int> chosen_scratch(n), offsets_scratch(groups + 1), counts_scratch(groups), all(1);
    int *counts = counts_scratch.values, *chosen = chosen_scratch.values, *offsets = offsets_scratch.values;
    each(groups, [=] __device__(long g) {
        int count = 0;
        for (long p = g * GROUP; p < n && p < (g + 1) * GROUP; p++) count += selected[p];
        counts[g] = count;
    });
    launch(offsets_kernel, dim3(1), THREADS, groups, n, counts, offsets, all.values);
    each(groups, [=] __device__(long g) {
        int to = offsets[g];
        for (long p = g * GROUP; p < n && p < (g + 1) * GROUP; p++)
            if (selected[p]) chosen[to++] = (int)p;
    });
    return {std::move(chosen_scratch), std::move(offsets_scratch), {n, offsets + groups, 0}};
}

// The rows of values [n, width] of the selected points, and zeros behind them: layer by layer all rows are computed.
inline Scratch<float> gather(const SelectedPoints &some, const float *values, int width) {
    Scratch<float> gathered(some.rows.most * width);
    clear(gathered.values, some.rows.most * width);
    const int *from = some.chosen.values;
    float *to = gathered.values;
    each_place(some.rows, width, [=] __device__(int r, int i, long at) { to[at] = values[(long)from[r] * width + i]; });
    return gathered;
}

// values [n, width] from the rows of the selected points; 0 for other points.
inline void scatter(const SelectedPoints &some, const float *rows, int width, float *values) {
    const int *to = some.chosen.values;
    clear(values, some.rows.most * width);
    each_place(some.rows, width, [=] __device__(int r, int i, long at) { values[(long)to[r] * width + i] = rows[at]; });
}

inline void nerf_forward(const NerfSizes &sizes, long n, const float *points, const float *directions,
                         const float *packed, float *density, float *rgb) {
    values_of(n, sizes, points, directions, packed, density, rgb);
}

inline void nerf_backward(const NerfSizes &sizes, long n, const float *points, const float *directions,
                          const float *packed, const float *d_density, const float *d_rgb, float *d_packed) {
    gradients_of(n, sizes, points, directions, packed, d_density, d_rgb, d_packed);
}

// `nerf_forward` at the selected points; 0 elsewhere.
inline void nerf_forward_selected(const NerfSizes &sizes, long n, const float *points, const float *directions,
                                  const float *packed, const bool *selected, float *density, float *rgb) {
    const SelectedPoints some = selected_points(n, selected);
    Scratch<float> some_density(n), some_rgb(3 * n);
    values_of(some.rows, sizes, gather(some, points, sizes.coordinates).values, gather(some, directions, 3).values,
              packed, some_density.values, some_rgb.values);
    scatter(some, some_density.values, 1, density);
    scatter(some, some_rgb.values, 3, rgb);
}

// `nerf_backward` from the cotangents of the selected points.
inline void nerf_backward_selected(const NerfSizes &sizes, long n, const float *points, const float *directions,
                                   const float *packed, const bool *selected, const float *d_density,
                                   const float *d_rgb, float *d_packed) {
    const SelectedPoints some = selected_points(n, selected);
    gradients_of(some.rows, sizes, gather(some, points, sizes.coordinates).values, gather(some, directions, 3).values,
                 packed, gather(some, d_density, 1).values, gather(some, d_rgb, 3).values, d_packed);
}

}  // namespace neus
