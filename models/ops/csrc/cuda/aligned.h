// The parameters of a network in aligned memory: every layer, every row of a weight and every part of a row begins at a
// whole vector of 16 bytes, and the rows and columns between are zeros. cuBLAS has its fastest kernels only for such
// operands, and kernels by vectors need no remainders. The gradients lie likewise, but those of a bias as sums over
// slices of the points, [MOST_SLICES, outputs], which are added when they are copied back.
#pragma once
#include "reduce.h"

namespace neus {

constexpr int PARTS_OF_A_ROW = 3, LAYERS_OF_A_COPY = 32;  // the kernel arguments must fit into 4 KiB

// A width in whole vectors.
__host__ __device__ inline int whole(int width) { return (width + VECTOR - 1) / VECTOR * VECTOR; }

// One linear layer y = x W^T + b, widths in whole vectors.
struct Layer {
    int inputs, outputs;
    const float *weight, *bias;  // [outputs, inputs], [outputs]
    long offset;                 // of the weight in aligned memory
    long bias_offset() const { return offset + (long)inputs * outputs; }
};

// A layer in the packed parameters, which hold a weight, then a bias, layer by layer, and in the aligned ones.
struct Placement {
    long packed, aligned;
    int inputs, outputs;        // packed
    int columns, rows;          // aligned
    int parts[PARTS_OF_A_ROW];  // widths of the parts of a row, packed
    // The packed column at an aligned one, -1 where that is between parts.
    __device__ int column(int at) const {
        int from = 0;
#pragma unroll
        for (int width : parts) {
            if (at < width) return from + at;
            from += width;
            at -= whole(width);
            if (at < 0) return -1;
        }
        return -1;
    }
};
struct SomePlacements {
    Placement at[LAYERS_OF_A_COPY];
};

__device__ inline void copy_parameter(bool is_back, bool is_packed, float *packed, float *aligned) {
    if (!is_back)
        *aligned = is_packed ? *packed : 0.f;
    else if (is_packed)
        *packed = *aligned;
}

// A block copies a row of a weight and its bias, from the packed parameters, or their gradients back.
__global__ inline void copy_kernel(SomePlacements some, bool is_back, float *packed, float *aligned) {
    SHARED(float, shared, THREADS);
    static_assert(THREADS >= MOST_SLICES, "a thread takes one slice");
    const Placement layer = some.at[blockIdx.y];
    const int row = blockIdx.x;
    if (row >= layer.rows) return;
    const bool is_packed = row < layer.outputs;
    float *from = packed + layer.packed, *to = aligned + layer.aligned;
    for (int i = threadIdx.x; i < layer.columns; i += THREADS) {
        const int column = layer.column(i);
        copy_parameter(is_back, is_packed && column >= 0, from + (long)row * layer.inputs + column,
                       to + (long)row * layer.columns + i);
    }
    float *bias = to + (long)layer.rows * layer.columns + row;
    if (is_back) {
        const float sum = block_sum(threadIdx.x < MOST_SLICES ? bias[(long)threadIdx.x * layer.rows] : 0.f, shared);
        if (threadIdx.x == 0) *bias = sum;
    }
    if (threadIdx.x == 0) copy_parameter(is_back, is_packed, from + (long)layer.outputs * layer.inputs + row, bias);
}

// The widths of the parts of each layer's input, adjacent in the columns of its packed weight.
using Columns = std::vector<std::vector<int>>;

inline std::vector<Placement> placements(const Columns &columns, const std::vector<int> &outputs) {
    std::vector<Placement> found;
    long packed = 0, aligned = 0;
    for (size_t l = 0; l < columns.size(); l++) {
        Placement one{packed, aligned, 0, outputs[l], 0, whole(outputs[l]), {}};
        for (size_t part = 0; part < columns[l].size(); part++) {
            one.parts[part] = columns[l][part];
            one.inputs += columns[l][part];
            one.columns += whole(columns[l][part]);
        }
        found.push_back(one);
        packed += (long)(one.inputs + 1) * one.outputs;
        aligned += (long)(one.columns + MOST_SLICES) * one.rows;
    }
    return found;
}

// The layers of a network, copied to aligned memory.
struct Parameters {
    std::vector<Placement> placed;
    long size;  // floats
    Scratch<float> memory;
    std::vector<Layer> layers;

    Parameters(const float *packed, const Columns &columns, const std::vector<int> &outputs)
        : placed(placements(columns, outputs)),
          size(placed.back().aligned + (placed.back().columns + MOST_SLICES) * placed.back().rows), memory(size) {
        for (const Placement &one : placed) {
            const float *weight = memory.values + one.aligned;
            layers.push_back({one.columns, one.rows, weight, weight + (long)one.columns * one.rows, one.aligned});
        }
        copy(false, const_cast<float *>(packed), memory.values);
    }
    // Gradients in aligned memory -> d_packed.
    void give(float *gradients, float *d_packed) const { copy(true, d_packed, gradients); }

   private:
    void copy(bool is_back, float *packed, float *aligned) const {
        for (size_t first = 0; first < placed.size(); first += LAYERS_OF_A_COPY) {
            SomePlacements some{};
            unsigned rows = 1, count = 0;
            for (; count < LAYERS_OF_A_COPY && first + count < placed.size(); count++) {
                some.at[count] = placed[first + count];
                rows = (unsigned)some.at[count].rows > rows ? some.at[count].rows : rows;
            }
            launch(copy_kernel, dim3(rows, count), THREADS, some, is_back, packed, aligned);
        }
    }
};

}  // namespace neus
