// One step of Adam over all parameters, and the readings of the guard. `Vars` is a list of Jittor's variables, all
// float32 except the bool `taken`.
#pragma once
#include <vector>
#include "adam.h"

namespace neus {

// Numbers per task. Tasks depend only on the sizes of the parameters, so that results do not depend on the number of
// threads.
constexpr long PIECE = 1 << 14;

struct Piece {
    int index;  // index of the variable
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

// inputs = {loss, `gradients` gradients, parameters}; outputs = {{the loss, each gradient's sum of magnitudes, the sum of
// all parameters}, whether these are finite}.
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
        double sum = 0.0, magnitudes = 0.0;
#pragma omp simd reduction(+ : sum, magnitudes)
        for (long i = piece.begin; i < piece.end; i++) sum += value[i], magnitudes += std::fabs(value[i]);
        parts[p] = piece.index < gradients ? magnitudes : sum;
    }
    for (size_t p = 0; p < pieces.size(); p++) sums[std::min(pieces[p].index, gradients)] += parts[p];
    readings[0] = values(inputs, 0)[0];
    for (int k = 0; k <= gradients; k++) readings[1 + k] = (float)sums[k];
    bool &is_finite = outputs[1]->template ptr<bool>()[0] = true;
    for (int k = 0; k < gradients + 2; k++) is_finite &= std::isfinite(readings[k]);
}

// Update the entries from `begin` to `end`; returns whether any new number is not finite.
inline int adam_run(const AdamStep &step, float rate, long begin, long end, const Stepped &at) {
    int lost = 0;
#pragma omp simd reduction(| : lost)
    for (long i = begin; i < end; i++) {
        const Entry entry =
            adam_entry<double>(step, rate, {at.parameter[i], at.first[i], at.second[i]}, at.gradient[i]);
        at.to[i] = entry.parameter;
        at.to_first[i] = entry.exp_avg;
        at.to_second[i] = entry.exp_avg_sq;
        lost |= gap(entry.parameter, entry.exp_avg, entry.exp_avg_sq) != 0.f;
    }
    return lost;
}

// Inputs and outputs as in `stepped`: the old numbers if not accepted, or if any new one is not finite.
template <typename Vars>
inline void adam(const AdamStep &step, const Vars &inputs, const Vars &outputs) {
    const int count = (int)outputs.size() / 3;
    const bool accepted = inputs[0]->template ptr<bool>()[0];
    const std::vector<Piece> pieces = pieces_of(outputs, 0, count);
    int lost = 0;
#pragma omp parallel for schedule(dynamic) reduction(| : lost)
    for (size_t p = 0; p < pieces.size(); p++) {
        if (!accepted) continue;
        const int k = pieces[p].index;
        lost |= adam_run(step, values(inputs, 1)[k], pieces[p].begin, pieces[p].end, stepped(inputs, outputs, k));
    }
    const bool is_taken = accepted && !lost;
    outputs[3 * count]->template ptr<bool>()[0] = is_taken;
    if (is_taken) return;
    for (int k = 0; k < 3 * count; k++)  // the old values, of which the gradients are the second `count`
        std::memcpy(values(outputs, k), values(inputs, 2 + k + (k < count ? 0 : count)), outputs[k]->num * sizeof(float));
}

}  // namespace neus
