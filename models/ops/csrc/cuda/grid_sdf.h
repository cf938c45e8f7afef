// A hash grid with a softplus network: value, feature and input gradient in one forward pass, and the gradients of
// table and weights from the cotangents of all three. The reference is ops/grid_sdf.py, the notation that of
// softplus_net.h, with h_0 = (point, features of the active levels), both in whole vectors. The gradient is c_0; its
// part for the features is their `pull`, which the derivatives of the features map to the point. Points are constants.
//
// The record holds, for n rounded up to whole blocks, h_1 ... h_L [n, width], then of the active levels the features
// [n, A FEATURES], their slopes along the axes [n, 3, A FEATURES] and the pull [n, A FEATURES].
#pragma once
#include "grid.h"
#include "softplus_net.h"

namespace neus {

constexpr int POINT = 3, POINT_COLUMNS = 4;  // and with padding

struct GridNet {
    SoftplusNet net;
    Grid grid;
    int width;  // channels of the active levels

    GridNet(const GridSizes &sizes, const float *packed)
        : net(packed, sizes.widths, {POINT, sizes.active * FEATURES}, 0, 1.f), grid(read_grid(sizes)),
          width(sizes.active * FEATURES) {}
    long recorded() const {
        long total = 5l * width;
        for (int l = 1; l <= net.last; l++) total += net.hidden(l);
        return total;
    }
};

// The stored values of the rows from `begin` on, in memory for `rows` of them.
struct GridRecord {
    std::vector<Rows> h;  // h_0 is not kept
    float *features, *slopes, *pull;

    GridRecord(const GridNet &own, const Rows &entering, float *memory, long rows, long begin)
        : h(rows_of_layers(own.net, entering, memory, rows, begin)) {
        for (int l = 1; l <= own.net.last; l++) memory += rows * own.net.hidden(l);
        features = memory + begin * own.width;
        slopes = memory + (rows + begin * 3) * own.width;
        pull = memory + (rows * 4 + begin) * own.width;
    }
};

// The features and, if requested, their derivatives.
inline void grid_features(const GridNet &own, long rows, const float *points, const float *table,
                          const GridRecord &record, bool with_slopes) {
    const Grid grid = own.grid;
    const int width = own.width;
    float *features = record.features, *slopes = record.slopes;
    each_place(rows, grid.active, [=] __device__(int r, int l, long at) {
        const Cell cell(grid.level[l], points + r * 3);
        float *to_slopes = slopes + (long)r * 3 * width + l * FEATURES;
        for (int f = 0; f < FEATURES; f++)
            features[at * FEATURES + f] = cell.interpolate(table, f, with_slopes ? to_slopes + f : nullptr, width);
    });
}

// h_0 from points and features.
inline void grid_enter(const GridNet &own, long rows, const float *points, const GridRecord &record) {
    const int width = own.width;
    const float *features = record.features;
    const Rows to = record.h[0];
    each_place(rows, own.net.entering, [=] __device__(int r, int i, long) {
        const int k = i - POINT_COLUMNS;
        const float feature = k >= 0 && k < width ? features[(long)r * width + k] : 0.f;
        to.values[r * to.stride + i] = i < POINT ? points[r * POINT + i] : feature;
    });
}

// The gradient [rows, 3] and the pull from c_0 in `total`.
inline void grid_to_points(const GridNet &own, long rows, const float *total, const GridRecord &record, float *gradient) {
    const int width = own.width;
    const long stride = own.net.stride_e;
    float *slopes = record.slopes, *pull = record.pull;
    each_place(rows, width, [=] __device__(int r, int i, long at) { pull[at] = total[r * stride + POINT_COLUMNS + i]; });
    each_place(rows, POINT, [=] __device__(int r, int axis, long at) {
        float sum = total[r * stride + axis];
        for (int i = 0; i < width; i++)
            sum += total[r * stride + POINT_COLUMNS + i] * slopes[((long)r * 3 + axis) * width + i];
        gradient[at] = sum;
    });
}

// The cotangents of c_0 from those of the gradient [rows, 3].
inline void grid_from_points(const GridNet &own, long rows, const float *push, const GridRecord &record, float *hat) {
    const int width = own.width;
    const long stride = own.net.stride_e;
    const float *slopes = record.slopes;
    each_place(rows, own.net.entering, [=] __device__(int r, int i, long) {
        const int k = i - POINT_COLUMNS;
        float sum = i < POINT ? push[r * POINT + i] : 0.f;
        for (int axis = 0; k >= 0 && k < width && axis < 3; axis++)
            sum += push[r * POINT + axis] * slopes[((long)r * 3 + axis) * width + k];
        hat[r * stride + i] = sum;
    });
}

// Outputs [n, O] alone, and the record for the backward pass where `sizes.keeps`.
inline void grid_values(const GridSizes &sizes, long n, const float *points, const float *table, const float *packed,
                        float *values, float *kept) {
    const GridNet own(sizes, packed);
    const SoftplusNet &net = own.net;
    const Layer &top = net.layers[net.last];
    const long most = at_once(n, net.stride), padded = rounded_to_blocks(n), stride = net.stride;
    const int outputs = sizes.widths.back();
    Scratch<float> entering(most * net.stride_e), memory(sizes.keeps ? 0 : most * own.recorded()), a(most * stride);
    for (long begin = 0; begin < n; begin += most) {
        const long rows = n - begin < most ? n - begin : most;
        const Rows first{entering.values, net.stride_e};
        const GridRecord record = sizes.keeps ? GridRecord(own, first, kept, padded, begin)
                                              : GridRecord(own, first, memory.values, most, 0);
        grid_features(own, rows, points + begin * POINT, table, record, false);
        grid_enter(own, rows, points + begin * POINT, record);
        hidden_layers(net, rows, record.h);
        float *to = values + begin * outputs;
        const float *bias = top.bias, *sums = a.values;
        linear(top, rows, net.parts(net.last, record.h[net.last], record.h[0]), a.values, stride);
        each_place(rows, outputs, [=] __device__(int r, int i, long at) { to[at] = sums[r * stride + i] + bias[i]; });
    }
}

// Gradients of table and packed parameters from the cotangents of the outputs. `left` is scratch, [blocks, ...].
inline void grid_values_backward(const GridSizes &sizes, long n, const float *points, const float *table,
                                 const float *packed, const float *kept, const float *d_values, float *d_table,
                                 float *d_packed, float *left) {
    const GridNet own(sizes, packed);
    const SoftplusNet &net = own.net;
    const long most = at_once(n, net.stride), padded = rounded_to_blocks(n), stride = net.stride;
    const int outputs = sizes.widths.back(), width = own.width;
    Scratch<float> entering(most * net.stride_e), a(most * stride), b(most * stride);
    Scratch<float> gradients(net.parameters.size);
    clear(gradients.values, net.parameters.size);
    for (long begin = 0; begin < n; begin += most) {
        const long rows = n - begin < most ? n - begin : most;
        const GridRecord record(own, {entering.values, net.stride_e}, const_cast<float *>(kept), padded, begin);
        grid_enter(own, rows, points + begin * POINT, record);
        const float *from = d_values + begin * outputs;
        float *bar = a.values;
        each_place(rows, whole(outputs), [=] __device__(int r, int i, long) {
            bar[r * stride + i] = i < outputs ? from[(long)r * outputs + i] : 0.f;
        });
        const float *d = backward_values(net, rows, record.h, {}, bar, b.values, gradients.values);
        linear_backward(net.layers[0], rows, d, stride, POINT_COLUMNS, width, 1.f, 0.f, left + begin * width, width);
    }
    net.parameters.give(gradients.values, d_packed);
    scatter(own.grid, n, {points, left, width, nullptr, 0, nullptr}, d_table);
}

// sdf [n, 1], feature [n, F], gradient [n, 3] and, where `sizes.keeps`, the record for the backward pass.
inline void grid_forward(const GridSizes &sizes, long n, const float *points, const float *table, const float *packed,
                         float *sdf, float *feature, float *gradient, float *kept) {
    const GridNet own(sizes, packed);
    const SoftplusNet &net = own.net;
    const Layer &top = net.layers[net.last];
    const long most = at_once(n, net.stride), padded = rounded_to_blocks(n), stride = net.stride;
    const int features = sizes.widths.back() - 1;
    Scratch<float> entering(most * net.stride_e), total(most * net.stride_e), a(most * stride), b(most * stride);
    Scratch<float> memory(sizes.keeps ? 0 : most * own.recorded());
    for (long begin = 0; begin < n; begin += most) {
        const long rows = n - begin < most ? n - begin : most;
        const Rows first{entering.values, net.stride_e};
        const GridRecord record = sizes.keeps ? GridRecord(own, first, kept, padded, begin)
                                              : GridRecord(own, first, memory.values, most, 0);
        grid_features(own, rows, points + begin * POINT, table, record, true);
        grid_enter(own, rows, points + begin * POINT, record);
        hidden_layers(net, rows, record.h);
        linear(top, rows, net.parts(net.last, record.h[net.last], record.h[0]), a.values, stride);
        give_outputs(rows, features, 1.f, top.bias, a.values, stride, sdf + begin, feature + begin * features);
        sweep(net, rows, record.h, a.values, b.values, total.values);
        grid_to_points(own, rows, total.values, record, gradient + begin * POINT);
    }
}

// Gradients of table and packed parameters from the cotangents of sdf, feature and gradient. `left` is scratch.
inline void grid_backward(const GridSizes &sizes, long n, const float *points, const float *table, const float *packed,
                          const float *kept, const float *d_sdf, const float *d_feature, const float *d_gradient,
                          float *d_table, float *d_packed, float *left) {
    const GridNet own(sizes, packed);
    const SoftplusNet &net = own.net;
    const long most = at_once(n, net.stride), padded = rounded_to_blocks(n), stride = net.stride;
    const int features = sizes.widths.back() - 1, width = own.width;
    Scratch<float> entering(most * net.stride_e), hat(most * net.stride_e);
    const std::vector<Scratch<float>> memory = scratch_of_layers(net, most);
    Scratch<float> a(most * stride), b(most * stride);
    Scratch<float> gradients(net.parameters.size);
    clear(gradients.values, net.parameters.size);
    for (long begin = 0; begin < n; begin += most) {
        const long rows = n - begin < most ? n - begin : most;
        const GridRecord record(own, {entering.values, net.stride_e}, const_cast<float *>(kept), padded, begin);
        grid_enter(own, rows, points + begin * POINT, record);
        const std::vector<Rows> carried = swept(net, rows, record.h, memory);
        grid_from_points(own, rows, d_gradient + begin * POINT, record, hat.values);
        backward_sweep(net, rows, record.h, carried, {hat.values, net.stride_e}, a.values, b.values, gradients.values);
        take_outputs(rows, features, 1.f, d_sdf + begin, d_feature + begin * features, a.values, stride);
        const float *d = backward_values(net, rows, record.h, carried, a.values, b.values, gradients.values);
        linear_backward(net.layers[0], rows, d, stride, POINT_COLUMNS, width, 1.f, 0.f, left + begin * width, width);
    }
    const float *pull = GridRecord(own, {nullptr, 0}, const_cast<float *>(kept), padded, 0).pull;
    net.parameters.give(gradients.values, d_packed);
    scatter(own.grid, n, {points, left, width, pull, width, d_gradient}, d_table);
}

}  // namespace neus
