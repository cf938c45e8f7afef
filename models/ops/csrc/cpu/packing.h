// Copy linear layers into one vector, and its cotangent back. The reference is ops/network.py; weight normalisation is
// applied before. `Vars` is a list of Jittor's variables, all float32.
#pragma once
#include <algorithm>

namespace neus {

// Call copy(row, its end, its place in the vector, packed numbers) for the rows of matrices and biases.
template <typename Vars, typename Copy>
inline void each_row(const Packing &layout, const Vars &parts, Copy copy) {
    long place = 0;
    for (size_t part = 0; part < layout.widths.size(); part++) {
        const bool is_bias = part % 2;
        const long outputs = layout.widths[part | 1], rows = is_bias ? 1 : outputs;
        const long packed = is_bias ? outputs : layout.widths[part], stride = parts[part]->num / rows;
        float *values = parts[part]->template ptr<float>();
        for (long r = 0; r < rows; r++, place += packed)
            copy(values + r * stride, values + (r + 1) * stride, place, packed);
    }
}

// inputs = {matrix, bias of each layer}; outputs = {all in one vector}.
template <typename Vars>
inline void pack(const Packing &layout, const Vars &inputs, const Vars &outputs) {
    float *to = outputs[0]->template ptr<float>();
    each_row(layout, inputs, [=](const float *row, const float *, long place, long packed) {
        std::copy(row, row + packed, to + place);
    });
}

// inputs = {as above, the cotangent of the vector}; outputs = {those of the other inputs}.
template <typename Vars>
inline void pack_backward(const Packing &layout, const Vars &inputs, const Vars &outputs) {
    const float *from = inputs[inputs.size() - 1]->template ptr<float>();
    each_row(layout, outputs, [=](float *row, float *end, long place, long packed) {
        std::fill(std::copy(from + place, from + place + packed, row), end, 0.f);
    });
}

}  // namespace neus
