// Small dense matrix products for one thread: C (+)= A B, in tiles of ROWS x (2 vectors) held in registers.
//
// B is packed into panels of PANEL columns, so that one panel stays in the first-level cache while all rows of A pass
// by. A is read through two strides, so that it may be a transposed view. Widths are padded to multiples of PAD with
// zeros, row counts are multiples of ROWS: there are no edges to handle but a last panel of half the width.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>
#include <omp.h>

namespace neus {

#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 8;
#elif defined(__AVX__)
constexpr int LANES = 8, ROWS = 4;
#else
constexpr int LANES = 4, ROWS = 4;
#endif
constexpr int PAD = 16;
constexpr size_t SERIAL_LIMIT = 1 << 16;  // parameters below which waking the other threads takes longer than the work
constexpr int PANEL = 2 * LANES > PAD ? 2 * LANES : PAD;

typedef float Vec __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

inline int padded(int width) { return (width + PAD - 1) / PAD * PAD; }

// Row stride of an activation block: off the powers of two, whose rows would all fall into the same few cache sets.
inline int stride_of(int width) { return padded(width) + PAD; }

// One tile: rows x (vectors * LANES) of C. A(i, k) = a[i * row + k * column]; B's k-th row at b + k * ldb.
template <int VECTORS>
inline void tile(int depth, const float *a, long row, long column, const float *b, long ldb, float *c, long ldc,
                 bool accumulate) {
    Vec sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            sum[i][v] = accumulate ? *(const Vec *)(c + i * ldc + v * LANES) : Vec{};
    for (int k = 0; k < depth; k++) {
        Vec right[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) right[v] = *(const Vec *)(b + k * ldb + v * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) {
            const float left = a[i * row + k * column];
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) sum[i][v] += left * right[v];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) *(Vec *)(c + i * ldc + v * LANES) = sum[i][v];
}

// C [rows, width] (+)= A [rows, depth] B [depth, width]; `width` padded, panel p of B at b + p * panel_step.
inline void product(int rows, int width, int depth, const float *a, long row, long column, const float *b, long ldb,
                    long panel_step, float *c, long ldc, bool accumulate) {
    for (int n = 0; n < width; n += 2 * LANES) {
        const float *panel = b + n / (2 * LANES) * panel_step;
        for (int i = 0; i < rows; i += ROWS) {
            if (width - n >= 2 * LANES)
                tile<2>(depth, a + i * row, row, column, panel, ldb, c + i * ldc + n, ldc, accumulate);
            else
                tile<1>(depth, a + i * row, row, column, panel, ldb, c + i * ldc + n, ldc, accumulate);
        }
    }
}

// A matrix [depth, width] in panels of 2 * LANES columns, zero-padded to `padded(width)`.
struct Panels {
    int depth = 0, width = 0;
    std::vector<float> values;

    // source(k, n) = from[k * row + n * column].
    void pack(const float *from, int depth_, int width_, long row, long column) {
        depth = depth_;
        width = width_;
        const int step = 2 * LANES, count = (padded(width) + step - 1) / step;
        values.assign((size_t)count * step * depth, 0.f);
        for (int n = 0; n < width; n++)
            for (int k = 0; k < depth; k++)
                values[((size_t)(n / step) * depth + k) * step + n % step] = from[k * row + n * column];
    }

    // out [rows, padded(width)] = in [rows, depth] * this.
    void multiply(int rows, const float *in, long ld_in, float *out, long ld_out) const {
        product(rows, padded(width), depth, in, ld_in, 1, values.data(), 2 * LANES, (long)depth * 2 * LANES, out,
                ld_out, false);
    }
};

// gradient [padded(outputs), stride_of(inputs)] += cotangent^T input, over the rows of a block.
inline void add_outer(int rows, int outputs, int inputs, const float *cotangent, const float *input, float *gradient) {
    product(padded(outputs), padded(inputs), rows, cotangent, 1, stride_of(outputs), input, stride_of(inputs),
            2 * LANES, gradient, stride_of(inputs), true);
}

// One linear layer y = x W^T + b as the kernels need it.
struct Layer {
    int inputs, outputs;
    const float *weight, *bias;  // [outputs, inputs], [outputs]
    Panels forward, backward;    // W^T and W
    size_t gradient_offset;      // of this layer in a thread's gradient buffer

    size_t bias_offset() const { return gradient_offset + (size_t)padded(outputs) * stride_of(inputs); }
    size_t gradient_size() const { return (size_t)padded(outputs) * stride_of(inputs) + padded(outputs); }
};

// The layers of a packed parameter vector: for each (inputs, outputs) of `widths` a weight, then a bias.
inline std::vector<Layer> read_layers(const float *packed, const int *widths, int count, bool with_backward) {
    std::vector<Layer> layers(count);
    size_t offset = 0, gradient_offset = 0;
    for (int l = 0; l < count; l++) {
        Layer &layer = layers[l];
        layer.inputs = widths[2 * l];
        layer.outputs = widths[2 * l + 1];
        layer.weight = packed + offset;
        layer.bias = layer.weight + (size_t)layer.inputs * layer.outputs;
        layer.gradient_offset = gradient_offset;
        offset += (size_t)(layer.inputs + 1) * layer.outputs;
        gradient_offset += layer.gradient_size();
    }
#pragma omp parallel for schedule(dynamic) if (offset > SERIAL_LIMIT)
    for (int l = 0; l < count; l++) {
        Layer &layer = layers[l];
        layer.forward.pack(layer.weight, layer.inputs, layer.outputs, 1, layer.inputs);
        if (with_backward) layer.backward.pack(layer.weight, layer.outputs, layer.inputs, layer.inputs, 1);
    }
    return layers;
}

// Row stride that every layer's inputs and outputs fit into.
inline long widest(const std::vector<Layer> &layers) {
    long width = 0;
    for (const Layer &layer : layers)
        width = std::max<long>(width, std::max(stride_of(layer.inputs), stride_of(layer.outputs)));
    return width;
}

// Zeroed memory of one thread, handed out piece by piece.
struct Arena {
    std::vector<float> memory;
    size_t used = 0;
    explicit Arena(size_t size) : memory(size, 0.f) {}
    float *take(size_t size) {
        float *piece = memory.data() + used;
        used += size;
        return piece;
    }
};

inline size_t gradient_size(const std::vector<Layer> &layers) {
    return layers.back().gradient_offset + layers.back().gradient_size();
}

// Sum of the threads' gradients, unpadded, in the layout of the packed parameters. The order of the sum is that of the
// threads: the same result in every run.
inline void reduce_gradients(const std::vector<Layer> &layers, const std::vector<std::vector<float>> &parts,
                             float *packed) {
#pragma omp parallel for schedule(dynamic) if (gradient_size(layers) > SERIAL_LIMIT)
    for (size_t l = 0; l < layers.size(); l++) {
        const Layer &layer = layers[l];
        const long stride = stride_of(layer.inputs), inputs = layer.inputs, outputs = layer.outputs;
        float *weight = packed + (layer.weight - layers[0].weight), *bias = packed + (layer.bias - layers[0].weight);
        std::fill(weight, bias + outputs, 0.f);
        for (const auto &part : parts) {
            if (part.empty()) continue;  // a thread that had no block
            for (long o = 0; o < outputs; o++) {
                const float *from = part.data() + layer.gradient_offset + o * stride;
                for (long i = 0; i < inputs; i++) weight[o * inputs + i] += from[i];
                bias[o] += part[layer.bias_offset() + o];
            }
        }
    }
}

// Add the column sums of a cotangent block [rows, outputs] to a bias gradient.
inline void add_columns(int rows, int outputs, const float *cotangent, float *bias_gradient) {
    const long stride = stride_of(outputs);
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < outputs; o++) bias_gradient[o] += cotangent[r * stride + o];
}

}  // namespace neus
