// Linear layers on rows of points. The input may consist of several parts, adjacent in the layer's columns, so that
// nothing is concatenated.
#pragma once
#include "aligned.h"

namespace neus {

inline long rounded_to_blocks(long n) { return (n + BLOCK - 1) / BLOCK * BLOCK; }

// The outputs of each layer from (inputs, outputs) of each.
inline std::vector<int> outputs_of(const std::vector<int> &widths) {
    std::vector<int> outputs;
    for (size_t l = 1; l < widths.size(); l += 2) outputs.push_back(widths[l]);
    return outputs;
}

inline long widest(const std::vector<Layer> &layers) {
    long width = 0;
    for (const Layer &layer : layers) width = width > layer.outputs ? width : layer.outputs;
    return width;
}

// A range of the columns that a layer reads, [rows, width], multiplied by `scale`; may be empty.
struct Part {
    const float *values;
    long stride;
    int width;
    float scale;
};
using Parts = std::vector<Part>;

// y [rows, outputs] = x W^T, without the bias, which the next operation adds.
inline void linear(const Layer &layer, long rows, const Parts &x, float *y, long stride) {
    int column = 0;
    for (const Part &part : x) {
        if (part.width == 0) continue;
        product(rows, layer.outputs, part.width, part.scale, part.values, part.stride, false, layer.weight + column,
                layer.inputs, true, column > 0 ? 1.f : 0.f, y, stride);
        column += whole(part.width);
    }
}

// The gradient of W, in `gradients` as in the aligned parameters, += d_y^T x.
inline void add_outer(const Layer &layer, long rows, const float *d_y, long stride, const Parts &x,
                      float *gradients) {
    int column = 0;
    for (const Part &part : x) {
        if (part.width == 0) continue;
        product(layer.outputs, part.width, rows, part.scale, d_y, stride, true, part.values, part.stride, false, 1.f,
                gradients + layer.offset + column, layer.inputs);
        column += whole(part.width);
    }
}

// The gradients of W and b += those of d_y.
inline void add_gradients(const Layer &layer, long rows, const float *d_y, long stride, const Parts &x,
                          float *gradients) {
    add_outer(layer, rows, d_y, stride, x, gradients);
    column_sums(rows, layer.outputs, d_y, stride, true, gradients + layer.bias_offset());
}

// d_x [rows, width] = scale d_y W + keep d_x, of the columns from `column` on.
inline void linear_backward(const Layer &layer, long rows, const float *d_y, long stride, int column, int width,
                            float scale, float keep, float *d_x, long stride_x) {
    product(rows, width, layer.outputs, scale, d_y, stride, false, layer.weight + column, layer.inputs, false, keep, d_x,
            stride_x);
}

// gamma(scale x) of x [rows, width], see models/ops/sizes.py. In double, because the error of fast sines is
// proportional to the argument, and an octave multiplies that by up to 2^23. `blank` columns behind it, at most `width`,
// become zero.
template <typename Rows>
inline void encode(const float *x, const Rows &rows, int width, int octaves, float scale, float *encoded, long stride,
                   int blank) {
    each_place(rows, width * (octaves + 1) + blank, [=] __device__(int r, int k, long) {
        const int j = k % width, octave = k / width - 1;
        float *to = encoded + r * stride + j;
        if (octave == octaves) {
            to[(1 + 2 * octaves) * width] = 0.f;
            return;
        }
        const float value = x[r * width + j] * scale;
        if (octave < 0) {
            to[0] = value;
            return;
        }
        double sine, cosine;
        sincos((double)value * (double)(1 << octave), &sine, &cosine);
        to[(1 + 2 * octave) * width] = (float)sine;
        to[(2 + 2 * octave) * width] = (float)cosine;
    });
}

}  // namespace neus
