// One step of Adam over all parameters, and the readings by which a step is judged beforehand. `Vars` is a list of
// Jittor's variables, all float32 but the verdict.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace neus {

constexpr uint32_t EXPONENT = 0x7f800000u;  // all ones in what is infinite or not a number

template <typename Vars>
inline float *values(const Vars &vars, size_t index) {
    return vars[index]->template ptr<float>();
}

// Seen by the bits: the fast maths that kernels are built with takes every number for finite.
inline bool is_finite(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return (bits & EXPONENT) != EXPONENT;
}

// inputs = {loss, `gradients` gradients, parameters}; readings = {the loss, each gradient's sum of squares, the sum of all
// parameters}. A square is taken in float32, where Adam takes it too: it shall overflow here as it does there.
template <typename Vars>
inline void step_readings(const Vars &inputs, int gradients, float *readings) {
    const int parts = (int)inputs.size() - 1;
    std::vector<double> sums(parts);
#pragma omp parallel for schedule(dynamic)
    for (int k = 0; k < parts; k++) {
        const float *value = values(inputs, 1 + k);
        double sum = 0.0;
        for (long i = 0; i < inputs[1 + k]->num; i++) sum += k < gradients ? value[i] * value[i] : value[i];
        sums[k] = sum;
    }
    readings[0] = values(inputs, 0)[0];
    for (int k = 0; k < gradients; k++) readings[1 + k] = (float)sums[k];
    double weights = 0.0;
    for (int k = gradients; k < parts; k++) weights += sums[k];
    readings[1 + gradients] = (float)weights;
}

// Whether all numbers of all inputs are finite.
template <typename Vars>
inline bool all_finite(const Vars &inputs) {
    bool finite = true;
    for (size_t k = 0; k < inputs.size(); k++)
        for (long i = 0; i < inputs[k]->num; i++) finite &= is_finite(values(inputs, k)[i]);
    return finite;
}

// Whether a number is infinite or not a number, as 0 or 1: what a loop over many can add up without branches.
inline uint32_t is_lost(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return (bits & EXPONENT) == EXPONENT;
}

struct AdamStep {
    float rate;  // learning rate over the bias correction of the first moment
    float root;  // 1 over the root of the bias correction of the second
    float beta_1, beta_2, epsilon;
};

// inputs = {verdict (bool), parameters, gradients, first moments, second moments}; outputs = {parameters, first moments,
// second moments, final verdict}: the old numbers where the verdict is false, or where any of the new ones is not finite.
template <typename Vars>
inline void adam(const Vars &inputs, const Vars &outputs, AdamStep step) {
    const int count = (int)outputs.size() / 3;
    const bool accepted = inputs[0]->template ptr<bool>()[0];
    uint32_t lost = 0;
#pragma omp parallel for schedule(dynamic) reduction(| : lost)
    for (int k = 0; k < count; k++) {
        const long size = outputs[k]->num;
        const float *parameter = values(inputs, 1 + k), *gradient = values(inputs, 1 + count + k);
        const float *first = values(inputs, 1 + 2 * count + k), *second = values(inputs, 1 + 3 * count + k);
        float *to = values(outputs, k);
        float *to_first = values(outputs, count + k), *to_second = values(outputs, 2 * count + k);
        if (!accepted) continue;
#pragma omp simd
        for (long i = 0; i < size; i++) {
            const float g = gradient[i];
            to_first[i] = first[i] * step.beta_1 + g * (1.f - step.beta_1);
            to_second[i] = second[i] * step.beta_2 + g * g * (1.f - step.beta_2);
            to[i] = parameter[i] - to_first[i] * step.rate / (std::sqrt(to_second[i]) * step.root + step.epsilon);
        }
        // A loop of its own: within the one above it changes how the compiler rounds there.
        uint32_t lost_here = 0;
#pragma omp simd reduction(| : lost_here)
        for (long i = 0; i < size; i++) lost_here |= is_lost(to[i]) | is_lost(to_first[i]) | is_lost(to_second[i]);
        lost |= lost_here;
    }
    const bool is_taken = accepted && !lost;
    outputs[3 * count]->template ptr<bool>()[0] = is_taken;
    if (is_taken) return;
    for (int k = 0; k < count; k++) {
        const size_t bytes = outputs[k]->num * sizeof(float);
        std::memcpy(values(outputs, k), values(inputs, 1 + k), bytes);
        std::memcpy(values(outputs, count + k), values(inputs, 1 + 2 * count + k), bytes);
        std::memcpy(values(outputs, 2 * count + k), values(inputs, 1 + 3 * count + k), bytes);
    }
}

}  // namespace neus
