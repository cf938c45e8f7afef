// Pack the linear layers of a network into one vector, and compute the gradients. One block per row of a layer. The
// reference is ops/network.py. `Vars` is a list of Jittor's variables, all float32.
#pragma once
#include "reduce.h"

namespace neus {

constexpr int LAYERS_AT_ONCE = 32;  // per launch: the kernel arguments must fit into 4 KiB

// One layer: its matrix, or direction v and length g of weight normalisation; in the backward pass also their
// cotangents.
struct Normed {
    const float *matrix, *length, *bias;  // length: null without weight normalisation
    float *d_matrix, *d_length, *d_bias;
    long offset;  // in the packed vector
    int inputs, outputs;
};
struct NormedSome {
    Normed at[LAYERS_AT_ONCE];
};

// The sum of a b along a row, in all threads.
__device__ inline float row_product(const float *a, const float *b, int width, float *shared) {
    float sum = 0.f;
    for (int i = threadIdx.x; i < width; i += THREADS) sum += a[i] * b[i];
    return block_sum(sum, shared);
}

__global__ inline void pack_kernel(NormedSome some, float *packed) {
    SHARED(float, shared, THREADS);
    const Normed &layer = some.at[blockIdx.y];
    const int row = blockIdx.x, width = layer.inputs;
    if (row >= layer.outputs) return;
    const float *from = layer.matrix + (long)row * width;
    float *to = packed + layer.offset + (long)row * width;
    float scale = 1.f;
    if (layer.length) scale = layer.length[row] / sqrtf(row_product(from, from, width, shared));
    for (int i = threadIdx.x; i < width; i += THREADS) to[i] = from[i] * scale;
    if (threadIdx.x == 0) packed[layer.offset + (long)layer.outputs * width + row] = layer.bias[row];
}

// For n = |v|, w = g v / n and its cotangent d, the cotangent of g is (d v) / n, that of v is g / n (d - v (d v) /
// n^2).
__global__ inline void pack_backward_kernel(NormedSome some, const float *d_packed) {
    SHARED(float, shared, THREADS);
    const Normed &layer = some.at[blockIdx.y];
    const int row = blockIdx.x, width = layer.inputs;
    if (row >= layer.outputs) return;
    const float *from = layer.matrix + (long)row * width, *d = d_packed + layer.offset + (long)row * width;
    float *to = layer.d_matrix + (long)row * width;
    float scale = 1.f, share = 0.f;
    if (layer.length) {
        const float square = row_product(from, from, width, shared);
        __syncthreads();
        const float along = row_product(d, from, width, shared), size = sqrtf(square);
        scale = layer.length[row] / size;
        share = along / square;
        if (threadIdx.x == 0) layer.d_length[row] = along / size;
    }
    for (int i = threadIdx.x; i < width; i += THREADS) to[i] = scale * (d[i] - from[i] * share);
    if (threadIdx.x == 0) layer.d_bias[row] = d_packed[layer.offset + (long)layer.outputs * width + row];
}

// Call run(layers, blocks) for all layers, LAYERS_AT_ONCE at a time; `outputs`: the packed vector, or the cotangents.
template <typename Vars, typename Run>
inline void each_layers(bool is_backward, const Packing &layout, const Vars &inputs, const Vars &outputs, Run run) {
    const int count = (int)layout.normed.size();
    long offset = 0;
    int part = 0;
    for (int first = 0; first < count; first += LAYERS_AT_ONCE) {
        NormedSome some{};
        int rows = 1, found = 0;
        for (int l = first; l < count && l < first + LAYERS_AT_ONCE; l++, found++) {
            const int columns = layout.widths[2 * l], height = layout.widths[2 * l + 1], normed = layout.normed[l];
            auto in = [&](int i) { return inputs[part + i]->template ptr<float>(); };
            auto out = [&](int i) { return is_backward ? outputs[part + i]->template ptr<float>() : nullptr; };
            some.at[found] = {in(0),  normed ? in(1) : nullptr,  in(1 + normed),
                              out(0), normed ? out(1) : nullptr, out(1 + normed),
                              offset, columns,                   height};
            offset += (long)(columns + 1) * height;
            part += 2 + normed;
            rows = height > rows ? height : rows;
        }
        run(some, dim3((unsigned)rows, (unsigned)found));
    }
}

// inputs = {matrix or v and g, bias of each layer}; outputs = {all in one vector}.
template <typename Vars>
inline void pack(const Packing &layout, const Vars &inputs, const Vars &outputs) {
    float *packed = outputs[0]->template ptr<float>();
    each_layers(false, layout, inputs, outputs,
                [&](const NormedSome &some, dim3 blocks) { launch(pack_kernel, blocks, THREADS, some, packed); });
}

// inputs = {as above, the cotangent of the vector}; outputs = {those of the other inputs}.
template <typename Vars>
inline void pack_backward(const Packing &layout, const Vars &inputs, const Vars &outputs) {
    const float *d_packed = inputs[inputs.size() - 1]->template ptr<float>();
    each_layers(true, layout, inputs, outputs, [&](const NormedSome &some, dim3 blocks) {
        launch(pack_backward_kernel, blocks, THREADS, some, d_packed);
    });
}

}  // namespace neus
