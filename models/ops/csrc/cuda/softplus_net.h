// A network of softplus layers on rows of points: hidden layers, the sweep of the input gradient, and the gradients of
// the weights from the cotangents of both.
//
// Notation, per layer l of L + 1 (the last one is linear): x_l input, a_l = x_l W_l^T + b_l, h_{l+1} = softplus(a_l),
// s_l = softplus'(a_l). h_0 is the input of the network; x_l is h_l, or at a skip (h_l, h_0) times `skip_scale`. The
// input gradient is the sweep c_L = W_L[0], u_l = c_{l+1} s_l, (c_l, skipped) = u_l W_l. In the backward pass `hat`
// marks cotangents of the sweep, which run from the first layer to the last, `bar` those of the values, from the last
// to the first. Of the sweep only u_l is kept. With hat x_l the cotangent of (c_l, skipped), and t = hat x_l W_l^T that
// of u_l, W_l receives u_l^T hat x_l, c_{l+1} receives t s_l, and a_l receives t c_{l+1} s'_l: since softplus'' is
// s' = BETA s (1 - s), that is t u_l BETA (1 - s_l), without a division by s_l.
#pragma once
#include "layers.h"
#include "softplus.h"

namespace neus {

// A row-major matrix.
struct Rows {
    float *values;
    long stride;
};

inline Read read(const Rows &rows) { return {rows.values, rows.stride}; }
inline Updated updated(const Rows &rows) { return {rows.values, rows.stride}; }

// The parts of each layer's input: those of h_0, the channels of h_l, or both.
inline Columns softplus_columns(const std::vector<int> &widths, const std::vector<int> &entering, unsigned skips) {
    Columns columns{entering};
    for (size_t l = 1; 2 * l < widths.size(); l++) {
        columns.push_back({widths[2 * l - 1]});
        if (skips >> l & 1u) columns.back().insert(columns.back().end(), entering.begin(), entering.end());
    }
    return columns;
}

struct SoftplusNet {
    Parameters parameters;
    std::vector<Layer> layers;
    int last, entering;  // layer; channels of h_0
    unsigned skips;      // bit l is set where h_0 joins the input of layer l
    float skip_scale;
    long stride, stride_e;  // of scratch as wide as the widest layer, and as h_0

    // `parts`: widths of the parts of h_0
    SoftplusNet(const float *packed, const std::vector<int> &widths, const std::vector<int> &parts, unsigned skips_,
                float skip_scale_)
        : parameters(packed, softplus_columns(widths, parts, skips_), outputs_of(widths)), layers(parameters.layers),
          last((int)layers.size() - 1), entering(layers[0].inputs), skips(skips_), skip_scale(skip_scale_),
          stride(widest(layers)), stride_e(entering) {}

    bool skip(int l) const { return l > 0 && (skips >> l & 1u); }
    int hidden(int l) const { return layers[l].inputs - (skip(l) ? entering : 0); }  // channels of h_l
    float factor(int l) const { return skip(l) ? skip_scale : 1.f; }
    long recorded() const {
        long total = 0;
        for (int l = 1; l <= last; l++) total += hidden(l);
        return total;
    }
    // x_l, or values with its columns, from the part with the columns of h_l and that with the columns of h_0.
    Parts parts(int l, const Rows &h, const Rows &e) const {
        return {{h.values, h.stride, hidden(l), factor(l)}, {e.values, e.stride, skip(l) ? entering : 0, skip_scale}};
    }
};

// h_0 ... h_L of the rows from `begin` on; `record` holds h_1 ... h_L of `rows` rows, one after the other.
inline std::vector<Rows> rows_of_layers(const SoftplusNet &net, const Rows &entering, float *record, long rows, long begin) {
    std::vector<Rows> h(1, entering);
    for (int l = 1; l <= net.last; l++) {
        h.push_back({record + begin * net.hidden(l), net.hidden(l)});
        record += rows * net.hidden(l);
    }
    return h;
}

// h_1 ... h_L from h_0.
inline void hidden_layers(const SoftplusNet &net, long rows, const std::vector<Rows> &h) {
    for (int l = 0; l < net.last; l++) {
        const Layer &layer = net.layers[l];
        const Rows &to = h[l + 1];
        linear(layer, rows, net.parts(l, h[l], h[0]), to.values, to.stride);
        each_value(
            rows, layer.outputs, [] __device__(float &y, float b) { y = softplus(y + b); }, updated(to),
            Read{layer.bias, 0});
    }
}

// u_{L-1}, [rows, width].
inline void first_pull(const SoftplusNet &net, long rows, const Rows &h, const Rows &u) {
    const float factor = net.factor(net.last);
    each_value(
        rows, net.hidden(net.last),
        [=] __device__(float &u, float weight, float h) { u = weight * factor * softplus_slope(h); },
        Written{u.values, u.stride}, Read{net.layers[net.last].weight, 0}, read(h));
}

// u_{l-1} from u_l, both [rows, stride].
inline void pull_back(const SoftplusNet &net, int l, long rows, const Rows &h, const Rows &u, const Rows &below) {
    linear_backward(net.layers[l], rows, u.values, u.stride, 0, net.hidden(l), net.factor(l), 0.f, below.values, below.stride);
    each_value(
        rows, net.hidden(l), [] __device__(float &u, float h) { u *= softplus_slope(h); }, updated(below), read(h));
}

// The sweep: d y_0 / d h_0 in `total` [rows, stride_e]; `a` and `b` are scratch, [rows, stride].
inline void sweep(const SoftplusNet &net, long rows, const std::vector<Rows> &h, float *a, float *b, float *total) {
    const long stride = net.stride, stride_e = net.stride_e;
    const int last = net.last;
    const float *top = net.layers[last].weight, factor = net.factor(last);
    const int from = net.skip(last) ? net.hidden(last) : 0;
    const bool is_read = last == 0 || net.skip(last);
    each_place(rows, net.entering, [=] __device__(int r, int i, long) {
        total[r * stride_e + i] = is_read ? top[from + i] * factor : 0.f;
    });
    if (last > 0) first_pull(net, rows, h[last], {a, stride});
    for (int l = last - 1; l >= 0; l--) {
        const Layer &layer = net.layers[l];
        const int width = net.hidden(l);
        if (net.skip(l)) linear_backward(layer, rows, a, stride, width, net.entering, net.skip_scale, 1.f, total, stride_e);
        if (l == 0) {
            linear_backward(layer, rows, a, stride, 0, width, 1.f, 1.f, total, stride_e);
            return;
        }
        pull_back(net, l, rows, h[l], {a, stride}, {b, stride});
        std::swap(a, b);
    }
}

// Scratch for values of all hidden layers. One piece each: Jittor's pool then reuses what other operations freed.
inline std::vector<Scratch<float>> scratch_of_layers(const SoftplusNet &net, long most) {
    std::vector<Scratch<float>> memory;
    for (int l = 1; l <= net.last; l++) memory.emplace_back(most * net.hidden(l));
    return memory;
}

// u_l of the hidden layers, [rows, width] each, in `memory`.
inline std::vector<Rows> swept(const SoftplusNet &net, long rows, const std::vector<Rows> &h,
                               const std::vector<Scratch<float>> &memory) {
    std::vector<Rows> u;
    for (int l = 0; l < net.last; l++) u.push_back({memory[l].values, net.hidden(l + 1)});
    if (net.last > 0) first_pull(net, rows, h[net.last], u.back());
    for (int l = net.last - 1; l > 0; l--) pull_back(net, l, rows, h[l], u[l], u[l - 1]);
    return u;
}

// The cotangents of the sweep, from `hat`, first layer to last: weight gradients, and carried[l], at first u_l, becomes
// the cotangent of a_l through s_l. `into` and `next` are scratch, [rows, stride].
inline void backward_sweep(const SoftplusNet &net, long rows, const std::vector<Rows> &h,
                           const std::vector<Rows> &carried, const Rows &hat, float *into, float *next,
                           float *gradients) {
    Rows x = hat;
    for (int l = 0; l < net.last; l++) {
        const Layer &layer = net.layers[l];
        const int width = layer.outputs;
        const Rows &u = carried[l], to{next, width};
        add_outer(layer, rows, u.values, u.stride, net.parts(l, x, hat), gradients);
        linear(layer, rows, net.parts(l, x, hat), to.values, to.stride);
        each_value(
            rows, width,
            [] __device__(float &u, float &t, float h) {
                const float s = softplus_slope(h);
                u *= t * BETA * (1.f - s);
                t *= s;
            },
            updated(u), updated(to), read(h[l + 1]));
        x = to;
        std::swap(into, next);
    }
    float *row = gradients + net.layers[net.last].offset;
    for (const Part &part : net.parts(net.last, x, hat)) {
        if (part.width > 0) add_columns(rows, part.width, part.scale, part.values, part.stride, row);
        row += part.width;
    }
}

// The cotangents of the values, from those of the last layer's outputs in `bar` [rows, stride], last layer to first.
// Those in `carried`, from the sweep, are added unless it is empty. `other` is scratch, [rows, stride]. Returns the
// buffer of the cotangents of layer 0's outputs.
inline float *backward_values(const SoftplusNet &net, long rows, const std::vector<Rows> &h,
                              const std::vector<Rows> &carried, float *bar, float *other, float *gradients) {
    const long stride = net.stride;
    for (int l = net.last; l >= 0; l--) {
        const Layer &layer = net.layers[l];
        add_gradients(layer, rows, bar, stride, net.parts(l, h[l], h[0]), gradients);
        if (l == 0) break;
        const int width = net.hidden(l);
        linear_backward(layer, rows, bar, stride, 0, width, net.factor(l), 0.f, other, stride);
        const Updated d{other, stride};
        if (carried.empty())
            each_value(rows, width, [] __device__(float &d, float h) { d *= softplus_slope(h); }, d, read(h[l]));
        else
            each_value(
                rows, width, [] __device__(float &d, float h, float joins) { d = d * softplus_slope(h) + joins; }, d,
                read(h[l]), read(carried[l - 1]));
        std::swap(bar, other);
    }
    return bar;
}

// The outputs from the last layer's sums [rows, stride] and its bias: the distance [rows], divided by `scale`, and the
// feature [rows, features].
inline void give_outputs(long rows, int features, float scale, const float *bias, const float *sums, long stride,
                         float *sdf, float *feature) {
    each_place(rows, features + 1, [=] __device__(int r, int i, long) {
        const float value = sums[r * stride + i] + bias[i];
        if (i == 0)
            sdf[r] = value / scale;
        else
            feature[(long)r * features + i - 1] = value;
    });
}

// The cotangents of the same sums.
inline void take_outputs(long rows, int features, float scale, const float *d_sdf, const float *d_feature, float *bar,
                         long stride) {
    each_place(rows, whole(features + 1), [=] __device__(int r, int i, long) {
        const float feature = i > 0 && i <= features ? d_feature[(long)r * features + i - 1] : 0.f;
        bar[r * stride + i] = i == 0 ? d_sdf[r] / scale : feature;
    });
}

}  // namespace neus
