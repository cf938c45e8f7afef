// One step of Adam over all parameters, and the readings by which a step is judged beforehand. `Vars` is a list of
// Jittor's variables, all float32 but the verdict.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>
#include "finite.h"

namespace neus {

template <typename Vars>
inline float *values(const Vars &vars, size_t index) {
    return vars[index]->template ptr<float>();
}

// Numbers that a thread takes at a time, and those of them that are checked while they are still in its first cache. Pieces
// lie as the sizes of the parameters say, so that no number depends on the threads.
constexpr long PIECE = 1 << 14, RUN = 1 << 10;

struct Piece {
    int index;  // whose it is
    long begin, end;
};

// The pieces of `count` variables from the `first` on, in order.
template <typename Vars>
inline std::vector<Piece> pieces_of(const Vars &vars, int first, int count) {
    std::vector<Piece> pieces;
    for (int k = 0; k < count; k++)
        for (long begin = 0; begin < vars[first + k]->num; begin += PIECE)
            pieces.push_back({k, begin, std::min<long>(begin + PIECE, vars[first + k]->num)});
    return pieces;
}

// inputs = {loss, `gradients` gradients, parameters}; readings = {the loss, each gradient's sum of squares, the sum of all
// parameters}. A square is taken in float32, where Adam takes it too: it shall overflow here as it does there.
template <typename Vars>
inline void step_readings(const Readings &layout, const Vars &inputs, const Vars &outputs) {
    const int gradients = layout.gradients;
    float *readings = values(outputs, 0);
    const std::vector<Piece> pieces = pieces_of(inputs, 1, (int)inputs.size() - 1);
    std::vector<double> parts(pieces.size()), sums(gradients + 1);
#pragma omp parallel for schedule(dynamic)
    for (size_t p = 0; p < pieces.size(); p++) {
        const Piece &piece = pieces[p];
        const float *value = values(inputs, 1 + piece.index);
        double sum = 0.0;
        for (long i = piece.begin; i < piece.end; i++) sum += piece.index < gradients ? value[i] * value[i] : value[i];
        parts[p] = sum;
    }
    for (size_t p = 0; p < pieces.size(); p++) sums[std::min(pieces[p].index, gradients)] += parts[p];
    readings[0] = values(inputs, 0)[0];
    for (int k = 0; k <= gradients; k++) readings[1 + k] = (float)sums[k];
}

// outputs = {whether all numbers of all inputs are finite}.
template <typename Vars>
inline void all_finite(const Readings &, const Vars &inputs, const Vars &outputs) {
    bool finite = true;
    for (size_t k = 0; k < inputs.size(); k++)
        for (long i = 0; i < inputs[k]->num; i++) finite &= is_finite(values(inputs, k)[i]);
    outputs[0]->template ptr<bool>()[0] = finite;
}

// Whether a number is infinite or not a number, as 0 or 1: what a loop over many can add up without branches.
inline uint32_t is_lost(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return (bits & EXPONENT) == EXPONENT;
}

// What a step reads of `size` numbers, and what it replaces.
struct Run {
    const float *parameter, *gradient, *first, *second;
    float *to, *to_first, *to_second;
};

// Take the step for some numbers; returns whether any of the new ones is lost.
inline uint32_t adam_run(const AdamStep &step, float rate, long size, const Run &at) {
#pragma omp simd
    for (long i = 0; i < size; i++) {
        const float g = at.gradient[i];
        at.to_first[i] = at.first[i] * step.beta_1 + g * (1.f - step.beta_1);
        at.to_second[i] = at.second[i] * step.beta_2 + g * g * (1.f - step.beta_2);
        at.to[i] = at.parameter[i] - at.to_first[i] * rate / (std::sqrt(at.to_second[i]) * step.root + step.epsilon);
    }
    // A loop of its own: within the one above it changes how the compiler rounds there.
    uint32_t lost = 0;
#pragma omp simd reduction(| : lost)
    for (long i = 0; i < size; i++) lost |= is_lost(at.to[i]) | is_lost(at.to_first[i]) | is_lost(at.to_second[i]);
    return lost;
}

// inputs = {verdict (bool), rates (one a parameter), parameters, gradients, first moments, second moments}; outputs =
// {parameters, first moments, second moments, final verdict}: the old numbers where the verdict is false, or where any of
// the new ones is not finite.
template <typename Vars>
inline void adam(const AdamStep &step, const Vars &inputs, const Vars &outputs) {
    const int count = (int)outputs.size() / 3;
    const bool accepted = inputs[0]->template ptr<bool>()[0];
    const std::vector<Piece> pieces = pieces_of(outputs, 0, count);
    uint32_t lost = 0;
#pragma omp parallel for schedule(dynamic) reduction(| : lost)
    for (size_t p = 0; p < pieces.size(); p++) {
        const int k = pieces[p].index;
        if (!accepted) continue;
        const float rate = values(inputs, 1)[k];
        for (long i = pieces[p].begin; i < pieces[p].end; i += RUN) {
            const Run at{values(inputs, 2 + k) + i,
                         values(inputs, 2 + count + k) + i,
                         values(inputs, 2 + 2 * count + k) + i,
                         values(inputs, 2 + 3 * count + k) + i,
                         values(outputs, k) + i,
                         values(outputs, count + k) + i,
                         values(outputs, 2 * count + k) + i};
            lost |= adam_run(step, rate, std::min(RUN, pieces[p].end - i), at);
        }
    }
    const bool is_taken = accepted && !lost;
    outputs[3 * count]->template ptr<bool>()[0] = is_taken;
    if (is_taken) return;
    for (int k = 0; k < count; k++) {
        const size_t bytes = outputs[k]->num * sizeof(float);
        std::memcpy(values(outputs, k), values(inputs, 2 + k), bytes);
        std::memcpy(values(outputs, count + k), values(inputs, 2 + 2 * count + k), bytes);
        std::memcpy(values(outputs, 2 * count + k), values(inputs, 2 + 3 * count + k), bytes);
    }
}

}  // namespace neus
