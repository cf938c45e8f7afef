// The signed-distance network on blocks of points that stay in the cache through all layers: value, feature and input
// gradient in one forward pass, and the gradient of all three with respect to the weights.
//
// Notation, per layer l of L + 1 (the last one is linear): x_l input, a_l = x_l W_l^T + b_l, h_{l+1} = softplus(a_l),
// s_l = softplus'(a_l). The input gradient is the sweep c_L = W_L[0], u_l = c_{l+1} s_l, (c_l, skipped) = u_l W_l.
// In the backward pass `hat` marks cotangents of the sweep (they run from the first layer to the last) and `bar` those
// of the values (from the last to the first). The points are constants: no gradient flows to them.
#pragma once
#include "layers.h"

namespace neus {

struct SdfShape : SdfSizes {
    explicit SdfShape(const SdfSizes &sizes) : SdfSizes(sizes) {}
    bool skip(int layer) const { return (unsigned)skips >> layer & 1u; }
    // Channels of h_l: the input of layer l without the encoded point that a skip appends.
    int hidden(int layer) const { return widths[2 * layer] - (layer > 0 && skip(layer) ? encoded : 0); }
    // Floats kept per point between forward and backward: h_1 ... h_L.
    long saved() const {
        long total = 0;
        for (int l = 1; l < layers; l++) total += hidden(l);
        return total;
    }
};

// softplus of a row, in place, of `width` values.
inline void softplus_row(float *row, int width) {
#pragma omp simd
    for (int i = 0; i < width; i++) {
        const float x = row[i], e = std::exp(-std::fabs(x * BETA));
        row[i] = std::max(x, 0.f) + std::log(1.f + e) * (1.f / BETA);
    }
}

// softplus' recovered from its value h: 1 - exp(-beta h).
inline float slope(float h) { return 1.f - std::exp(-BETA * h); }

// Scratch of one thread and the passes over one block.
struct SdfBlock {
    const SdfShape &shape;
    const std::vector<Layer> &layers;
    float *encoded;                      // h_0
    std::vector<float *> input;          // x_l, [BLOCK, stride_of(inputs)]
    std::vector<float *> slopes;         // s_l, [BLOCK, stride_of(outputs)]
    std::vector<float *> carried;        // c_{l+1}, likewise
    float *total;                        // d y_0 / d h_0, [BLOCK, stride_of(encoded)]
    float *hat, *bar;                            // cotangents of `total` and of the last layer's outputs, likewise
    float *wide_a, *wide_b, *wide_c, *wide_d;    // scratch, as wide as the widest layer

    static size_t scratch(const SdfShape &shape, const std::vector<Layer> &layers) {
        size_t per_point = 3 * stride_of(shape.encoded) + stride_of(layers.back().outputs) + 4 * widest(layers);
        for (const Layer &layer : layers) per_point += stride_of(layer.inputs) + 2 * stride_of(layer.outputs);
        return BLOCK * per_point;
    }

    SdfBlock(const SdfShape &shape_, const std::vector<Layer> &layers_, Arena &arena)
        : shape(shape_), layers(layers_) {
        encoded = arena.take((size_t)BLOCK * stride_of(shape.encoded));
        total = arena.take((size_t)BLOCK * stride_of(shape.encoded));
        hat = arena.take((size_t)BLOCK * stride_of(shape.encoded));
        bar = arena.take((size_t)BLOCK * stride_of(layers.back().outputs));
        for (const Layer &layer : layers) {
            input.push_back(arena.take((size_t)BLOCK * stride_of(layer.inputs)));
            slopes.push_back(arena.take((size_t)BLOCK * stride_of(layer.outputs)));
            carried.push_back(arena.take((size_t)BLOCK * stride_of(layer.outputs)));
        }
        wide_a = arena.take(BLOCK * widest(layers));
        wide_b = arena.take(BLOCK * widest(layers));
        wide_c = arena.take(BLOCK * widest(layers));
        wide_d = arena.take(BLOCK * widest(layers));
    }

    int last() const { return shape.layers - 1; }

    // Fill x_l from h_l [BLOCK, ld]: itself, or with the encoded point appended and scaled at a skip.
    void set_input(int l, const float *h, long ld) {
        const long stride = stride_of(layers[l].inputs), encoded_stride = stride_of(shape.encoded);
        const int width = shape.hidden(l);
        const bool skip = l > 0 && shape.skip(l);
        const float scale = skip ? SKIP_SCALE : 1.f;
        for (int r = 0; r < BLOCK; r++) {
            float *to = input[l] + r * stride;
            for (int i = 0; i < width; i++) to[i] = h[r * ld + i] * scale;
            if (skip)
                for (int i = 0; i < shape.encoded; i++) to[width + i] = encoded[r * encoded_stride + i] * SKIP_SCALE;
        }
    }

    // The hidden layers of a block of `count` points. `saved`, if any, receives each h_{l+1}, [BLOCK, outputs];
    // `with_slopes` also fills s_l.
    void hidden_layers(const float *points, int count, float scale, float *saved, bool with_slopes) {
        encode(points, count, 3, shape.octaves, scale, encoded, stride_of(shape.encoded));
        set_input(0, encoded, stride_of(shape.encoded));
        for (int l = 0; l < last(); l++) {
            const int width = layers[l].outputs;
            const long stride = stride_of(width);
            linear(layers[l], input[l], wide_a);
            for (int r = 0; r < BLOCK; r++) softplus_row(wide_a + r * stride, width);
            set_input(l + 1, wide_a, stride);
            if (with_slopes) set_slopes(l, wide_a);
            if (!saved) continue;
            for (int r = 0; r < count; r++)
                std::memcpy(saved + (long)r * width, wide_a + r * stride, width * sizeof(float));
            saved += (long)BLOCK * width;
        }
    }

    // The first output of a point's last layer, before the division by scale; LANES sums, each short.
    float distance(int r) const {
        const Layer &layer = layers[last()];
        const float *x = input[last()] + (long)r * stride_of(layer.inputs);
        const int whole = layer.inputs / LANES * LANES;
        Vec parts{};
        for (int i = 0; i < whole; i += LANES) parts += *(const Unaligned *)(x + i) * *(const Unaligned *)(layer.weight + i);
        float sum = 0.f;
        for (int k = 0; k < LANES; k++) sum += parts[k];
        for (int i = whole; i < layer.inputs; i++) sum += x[i] * layer.weight[i];
        return sum + layer.bias[0];
    }

    // Restore x_l and s_l from what `hidden_layers` stored; h is 0 in rows past `count`, so their cotangents are zero.
    void reload(const float *points, int count, float scale, const float *saved) {
        encode(points, count, 3, shape.octaves, scale, encoded, stride_of(shape.encoded));
        set_input(0, encoded, stride_of(shape.encoded));
        for (int l = 0; l < last(); l++) {
            const int width = layers[l].outputs;
            const long stride = stride_of(width);
            for (int r = 0; r < count; r++)
                std::memcpy(wide_a + r * stride, saved + (long)r * width, width * sizeof(float));
            std::memset(wide_a + count * stride, 0, (BLOCK - count) * stride * sizeof(float));
            set_input(l + 1, wide_a, stride);
            set_slopes(l, wide_a);
            saved += (long)BLOCK * width;
        }
    }

    // s_l of h_{l+1}, [BLOCK, stride_of(outputs)].
    void set_slopes(int l, const float *h) {
        const long stride = stride_of(layers[l].outputs);
        for (int r = 0; r < BLOCK; r++) {
            float *to = slopes[l] + r * stride;
            const float *from = h + r * stride;
#pragma omp simd
            for (int i = 0; i < layers[l].outputs; i++) to[i] = slope(from[i]);
        }
    }

    // The sweep of the input gradient: fills carried[l] = c_{l+1}, and `total`.
    void sweep() {
        const long encoded_stride = stride_of(shape.encoded);
        std::memset(total, 0, BLOCK * encoded_stride * sizeof(float));
        const float *from = layers[last()].weight;  // the row of the distance, the same for every point
        long ld = 0;
        for (int l = last(); l >= 0; l--) {
            if (l < last()) {
                const Layer &layer = layers[l];
                const long stride = stride_of(layer.outputs);
                times_slopes(l, carried[l], wide_a);
                layer.backward.multiply(BLOCK, wide_a, stride, wide_c, stride_of(layer.inputs));
                from = wide_c;
                ld = stride_of(layer.inputs);
            }
            const bool skip = l > 0 && shape.skip(l);
            const int width = shape.hidden(l);
            const float scale = skip ? SKIP_SCALE : 1.f;
            float *to = l > 0 ? carried[l - 1] : total;
            const long to_stride = l > 0 ? stride_of(layers[l - 1].outputs) : encoded_stride;
            for (int r = 0; r < BLOCK; r++) {
                for (int i = 0; i < width; i++) {
                    const float value = from[r * ld + i] * scale;
                    to[r * to_stride + i] = l > 0 ? value : to[r * to_stride + i] + value;
                }
                if (skip)
                    for (int i = 0; i < shape.encoded; i++)
                        total[r * encoded_stride + i] += from[r * ld + width + i] * SKIP_SCALE;
            }
        }
    }

    // The encoding's transposed Jacobian: `total` -> gradient [count, 3].
    void to_points(int count, float *gradient) const {
        const long stride = stride_of(shape.encoded);
        for (int r = 0; r < count; r++)
            for (int j = 0; j < 3; j++) {
                const float *e = encoded + r * stride, *t = total + r * stride;
                float sum = t[j];
                for (int f = 0; f < shape.octaves; f++)
                    sum += (float)(1 << f) * (e[6 + 6 * f + j] * t[3 + 6 * f + j] - e[3 + 6 * f + j] * t[6 + 6 * f + j]);
                gradient[r * 3 + j] = sum;
            }
    }

    // Its Jacobian: cotangents of the gradient [count, 3] -> `hat`; rows past `count` are zero.
    void from_points(const float *cotangent, int count) {
        const long stride = stride_of(shape.encoded);
        std::memset(hat, 0, BLOCK * stride * sizeof(float));
        for (int r = 0; r < count; r++)
            for (int j = 0; j < 3; j++) {
                const float *e = encoded + r * stride, g = cotangent[r * 3 + j];
                float *to = hat + r * stride;
                to[j] = g;
                for (int f = 0; f < shape.octaves; f++) {
                    to[3 + 6 * f + j] = (float)(1 << f) * e[6 + 6 * f + j] * g;
                    to[6 + 6 * f + j] = -(float)(1 << f) * e[3 + 6 * f + j] * g;
                }
            }
    }

    // The cotangents of the sweep, first layer to last: weight gradients, and carried[l] becomes the cotangent of a_l
    // through s_l.
    void backward_sweep(float *gradients) {
        const long encoded_stride = stride_of(shape.encoded);
        const float *into = hat;
        float *next = wide_c, *other = wide_d;
        for (int l = 0; l < last(); l++) {
            const Layer &layer = layers[l];
            const long stride = stride_of(layer.outputs), next_stride = stride_of(layers[l + 1].inputs);
            times_slopes(l, carried[l], wide_a);
            add_outer(BLOCK, layer.outputs, layer.inputs, wide_a, into, gradients + layer.gradient_offset);
            layer.forward.multiply(BLOCK, into, stride_of(layer.inputs), wide_b, stride);
            const bool skip = shape.skip(l + 1);
            const float scale = skip ? SKIP_SCALE : 1.f;
            for (int r = 0; r < BLOCK; r++) {
                float *c = carried[l] + r * stride, *to = next + r * next_stride;
                const float *s = slopes[l] + r * stride, *u = wide_b + r * stride;
                for (int o = 0; o < layer.outputs; o++) {
                    to[o] = u[o] * s[o] * scale;
                    c[o] *= u[o] * BETA * s[o] * (1.f - s[o]);
                }
                if (skip)
                    for (int i = 0; i < shape.encoded; i++)
                        to[layer.outputs + i] = hat[r * encoded_stride + i] * SKIP_SCALE;
            }
            into = next;
            std::swap(next, other);
        }
        const Layer &layer = layers[last()];
        add_rows(layer.inputs, into, stride_of(layer.inputs), gradients + layer.gradient_offset);
    }

    // The cotangents of the values, last layer to first, from `bar`; its rows past the block's points are zero.
    void backward_values(float *gradients) {
        const float *d_values = bar;
        for (int l = last(); l >= 0; l--) {
            const Layer &layer = layers[l];
            linear_backward(layer, input[l], d_values, l > 0 ? wide_b : nullptr, gradients);
            if (l == 0) return;
            const int width = shape.hidden(l);
            const float scale = shape.skip(l) ? SKIP_SCALE : 1.f;
            const long stride = stride_of(width), from_stride = stride_of(layer.inputs);
            for (int r = 0; r < BLOCK; r++)
                for (int i = 0; i < width; i++)
                    wide_a[r * stride + i] = wide_b[r * from_stride + i] * scale * slopes[l - 1][r * stride + i] +
                                             carried[l - 1][r * stride + i];
            d_values = wide_a;
        }
    }

    // to = values * s_l, both [BLOCK, stride_of(outputs)].
    void times_slopes(int l, const float *values, float *to) const {
        const long stride = stride_of(layers[l].outputs);
        for (int r = 0; r < BLOCK; r++)
            for (int o = 0; o < layers[l].outputs; o++)
                to[r * stride + o] = values[r * stride + o] * slopes[l][r * stride + o];
    }
};

}  // namespace neus
