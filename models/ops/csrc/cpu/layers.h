// Linear layers on blocks of points: packed parameters, forward and backward passes, positional encoding, and the
// distribution of blocks over threads.
#pragma once
#include "tile.h"

namespace neus {

constexpr size_t SERIAL_LIMIT = 1 << 16;  // with fewer parameters, starting other threads takes longer than the work

// One linear layer y = x W^T + b as the kernels need it.
struct Layer {
    int inputs, outputs;
    const float *weight, *bias;  // [outputs, inputs], [outputs]
    Panels forward, backward;    // W^T and W
    std::vector<float> start;    // the bias, padded with zeros: initial value of the sums of a product
    size_t gradient_offset;      // of this layer in a gradient buffer

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
        layer.start.assign(padded(layer.outputs), 0.f);
        std::copy(layer.bias, layer.bias + layer.outputs, layer.start.begin());
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

constexpr int LINE = 64 / sizeof(float);  // numbers in a line of the cache

// Prefetch numbers that are read or written soon.
inline void expect(const float *values, long count) {
    for (long i = 0; i < count; i += LINE) __builtin_prefetch(values + i);
}

inline void expect_to_write(const float *values, long count) {
    for (long i = 0; i < count; i += LINE) __builtin_prefetch(values + i, 1);
}

// Zeroed memory of one thread, allocated piece by piece.
struct Arena {
    std::vector<float> memory;
    size_t used;
    // Aligned to a cache line: a vector that crosses two costs twice.
    explicit Arena(size_t size) : memory(size + LINE, 0.f), used(-((size_t)memory.data() / sizeof(float)) % LINE) {}
    float *take(size_t size) {
        float *piece = memory.data() + used;
        used += size;
        return piece;
    }
};

inline size_t gradient_size(const std::vector<Layer> &layers) {
    return layers.back().gradient_offset + layers.back().gradient_size();
}

// Sum of the gradients of parts of the points, in their order, unpadded, in the layout of the packed parameters.
inline void reduce_gradients(const std::vector<Layer> &layers, const std::vector<std::vector<float>> &parts,
                             float *packed) {
#pragma omp parallel for schedule(dynamic) if (gradient_size(layers) > SERIAL_LIMIT)
    for (size_t l = 0; l < layers.size(); l++) {
        const Layer &layer = layers[l];
        const long stride = stride_of(layer.inputs), inputs = layer.inputs, outputs = layer.outputs;
        float *weight = packed + (layer.weight - layers[0].weight), *bias = packed + (layer.bias - layers[0].weight);
        std::fill(weight, bias + outputs, 0.f);
        for (const auto &part : parts) {
            for (long o = 0; o < outputs; o++) {
                const float *from = part.data() + layer.gradient_offset + o * stride;
                for (long i = 0; i < inputs; i++) weight[o * inputs + i] += from[i];
                bias[o] += part[layer.bias_offset() + o];
            }
        }
    }
}

// sum [padded(width)] += the rows of a block [BLOCK, stride]; a vector of columns at a time stays in a register.
inline void add_rows(int width, const float *rows, long stride, float *sum) {
    for (int i = 0; i < width; i += LANES) {
        Vec total{};
        for (int r = 0; r < BLOCK; r++) total += *(const Unaligned *)(rows + r * stride + i);
        *(Unaligned *)(sum + i) += total;
    }
}

// y [BLOCK, stride_of(outputs)] = x W^T + b, from x [BLOCK, stride_of(inputs)].
inline void linear(const Layer &layer, const float *x, float *y) {
    layer.forward.multiply(BLOCK, x, stride_of(layer.inputs), y, stride_of(layer.outputs), FromRow{layer.start.data()});
}

// The same with ReLU, into rows `ld` apart; whole vectors are written.
inline void linear_relu(const Layer &layer, const float *x, float *y, long ld) {
    layer.forward.multiply(BLOCK, x, stride_of(layer.inputs), y, ld, FromRow{layer.start.data()}, Positive{});
}

// From the cotangent of y, zero in rows past the points: the gradients of weight and bias, and the cotangent of x
// [BLOCK, stride_of(inputs)], unless `d_x` is null; `finish` is applied last.
template <typename Finish = AsItIs>
inline void linear_backward(const Layer &layer, const float *x, const float *d_y, float *d_x, float *gradients,
                            const Finish &finish = {}) {
    const long stride = stride_of(layer.outputs);
    add_outer(BLOCK, layer.outputs, layer.inputs, d_y, x, gradients + layer.gradient_offset);
    add_rows(layer.outputs, d_y, stride, gradients + layer.bias_offset());
    if (d_x) layer.backward.multiply(BLOCK, d_y, stride, d_x, stride_of(layer.inputs), FromZero{}, finish);
}

// The cotangent of the input of ReLU from that of its values, with rows `ld` apart.
struct WherePositive {
    const float *values;
    long ld;
    Vec operator()(Vec cotangent, int i, int n) const {
        return *(const Unaligned *)(values + i * ld + n) > 0.f ? cotangent : Vec{};
    }
};

// to = d_value where value > 0, else 0: the cotangent of the input of ReLU; both have `ld`.
inline void relu_backward(int width, const float *value, const float *d_value, long ld, float *to, long ld_to) {
    for (int r = 0; r < BLOCK; r++)
        for (int i = 0; i < width; i++) to[r * ld_to + i] = value[r * ld + i] > 0.f ? d_value[r * ld + i] : 0.f;
}

constexpr int MOST_ANGLES = 128;  // of a point: the conf allows 4 coordinates of 24 octaves

// x, sin x, cos x, sin 2x, ... of scaled points [count, width], into [BLOCK, stride]; rows past `count` are points at
// the origin.
inline void encode(const float *points, int count, int width, int octaves, float scale, float *out, long stride) {
    float angle[MOST_ANGLES], sine[MOST_ANGLES], cosine[MOST_ANGLES];
    const int angles = width * octaves;
    for (int r = 0; r < BLOCK; r++) {
        float *row = out + r * stride;
        for (int j = 0; j < width; j++) row[j] = r < count ? points[r * width + j] * scale : 0.f;
        for (int f = 0; f < octaves; f++)
            for (int j = 0; j < width; j++) angle[f * width + j] = row[j] * (float)(1 << f);
        // Two loops: a sine and a cosine of one angle become a call that cannot be vectorised.
#pragma omp simd
        for (int i = 0; i < angles; i++) sine[i] = std::sin(angle[i]);
#pragma omp simd
        for (int i = 0; i < angles; i++) cosine[i] = std::cos(angle[i]);
        for (int f = 0; f < octaves; f++)
            for (int j = 0; j < width; j++) {
                row[width + 2 * f * width + j] = sine[f * width + j];
                row[width + (2 * f + 1) * width + j] = cosine[f * width + j];
            }
    }
}

// Call `work(block, begin, count)` for every block of n points, on any free thread.
template <typename Block, typename Shape, typename Work>
inline void each_block(const Shape &shape, const std::vector<Layer> &layers, long n, Work work) {
#pragma omp parallel
    {
        Arena arena(Block::scratch(shape, layers));
        Block block(shape, layers, arena);
#pragma omp for schedule(dynamic)
        for (long begin = 0; begin < n; begin += BLOCK) work(block, begin, (int)std::min<long>(BLOCK, n - begin));
    }
}

// A gradient is summed in slices of the points, which depend only on n, in their order, so that the sum does not depend
// on the number of threads. Few slices, since each needs a buffer of the size of the network; a power of two, so that
// the same number of threads shares them evenly.
constexpr long MOST_SLICES = 16, FEWEST_SLICES = 4, BLOCKS_OF_A_SLICE = 16;

inline long slices_of(long blocks) {
    long slices = 1;
    while (2 * slices <= std::min(blocks, MOST_SLICES) &&
           (2 * slices <= FEWEST_SLICES || 2 * slices * BLOCKS_OF_A_SLICE <= blocks))
        slices *= 2;
    return slices;
}

// The same with gradients, `work(block, begin, count, gradients)`; `packed` receives their sum over all blocks.
template <typename Block, typename Shape, typename Work>
inline void each_block(const Shape &shape, const std::vector<Layer> &layers, long n, float *packed, Work work) {
    const long blocks = (n + BLOCK - 1) / BLOCK, slices = slices_of(blocks);
    std::vector<std::vector<float>> parts(slices);
#pragma omp parallel
    {
        Arena arena(Block::scratch(shape, layers));
        Block block(shape, layers, arena);
#pragma omp for schedule(dynamic)
        for (long s = 0; s < slices; s++) {
            parts[s].assign(gradient_size(layers), 0.f);
            for (long b = s * blocks / slices; b < (s + 1) * blocks / slices; b++)
                work(block, b * BLOCK, (int)std::min<long>(BLOCK, n - b * BLOCK), parts[s].data());
        }
    }
    reduce_gradients(layers, parts, packed);
}

}  // namespace neus
