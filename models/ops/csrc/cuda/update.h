// One step of Adam over all parameters, and the readings of the guard. The reference is ops/update.py. `Vars` is a list
// of Jittor's variables, all float32 except the bool `taken`. Pointers and sizes of variables are kernel arguments, so
// that nothing is copied to the GPU.
#pragma once
#include <algorithm>
#include "adam.h"
#include "reduce.h"

namespace neus {

constexpr int AT_ONCE = 32;  // variables per launch: the kernel arguments must fit into 4 KiB
constexpr long MOST_PARTS = 1024, NUMBERS_OF_A_THREAD = 4;

// Number of blocks for the largest of the variables.
template <typename Vars>
inline long parts_of(const Vars &vars, int begin, int end) {
    long most = 1;
    for (int k = begin; k < end; k++) most = std::max(most, (vars[k]->num - 1) / (THREADS * NUMBERS_OF_A_THREAD) + 1);
    return std::min(most, MOST_PARTS);
}

struct Viewed {
    const float *values;
    long size;
};
struct ViewedSome {
    Viewed at[AT_ONCE];
};

template <typename Vars>
inline ViewedSome view(const Vars &vars, int begin, int end) {
    ViewedSome some{};
    for (int k = begin; k < end; k++) some.at[k - begin] = {values(vars, k), vars[k]->num};
    return some;
}

// sums [variables, parts]: of magnitudes for the first `gradients` variables, of values for the others.
__global__ inline void sums_kernel(ViewedSome some, int gradients, double *sums) {
    SHARED(double, shared, THREADS);
    const Viewed &at = some.at[blockIdx.y];
    if (blockIdx.x * (long)THREADS >= at.size) return;
    double sum = 0.0;
    for (long i = blockIdx.x * (long)THREADS + threadIdx.x; i < at.size; i += (long)gridDim.x * THREADS)
        sum += (int)blockIdx.y < gradients ? fabsf(at.values[i]) : at.values[i];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) sums[blockIdx.y * MOST_PARTS + blockIdx.x] = sum;
}

// readings = {the loss, each gradient's sum, the sum of the others}, a block each, from sums [count, parts].
__global__ inline void readings_kernel(int gradients, int count, const double *sums, const float *loss, float *readings) {
    SHARED(double, shared, THREADS);
    const long first = (int)blockIdx.x - 1, last = first < gradients ? first + 1 : count;
    double sum = 0.0;
    for (long k = first * MOST_PARTS + threadIdx.x; first >= 0 && k < last * MOST_PARTS; k += THREADS) sum += sums[k];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) readings[blockIdx.x] = first < 0 ? loss[0] : (float)sum;
}

// inputs = {loss, `gradients` gradients, parameters}; outputs = {{the loss, each gradient's sum of magnitudes, the sum of
// all parameters}, whether these are finite}.
template <typename Vars>
inline void step_readings(const Readings &layout, const Vars &inputs, const Vars &outputs) {
    const int gradients = layout.gradients, count = (int)inputs.size() - 1;
    Scratch<double> scratch(count * MOST_PARTS);
    double *sums = scratch.values;
    clear(sums, count * MOST_PARTS);
    for (int k = 0; k < count; k += AT_ONCE) {
        const int end = std::min(k + AT_ONCE, count);
        launch(sums_kernel, dim3((unsigned)parts_of(inputs, 1 + k, 1 + end), end - k), THREADS,
               view(inputs, 1 + k, 1 + end), gradients - k, sums + k * MOST_PARTS);
    }
    float *readings = values(outputs, 0);
    bool *is_finite = outputs[1]->template ptr<bool>();
    launch(readings_kernel, dim3(gradients + 2), THREADS, gradients, count, sums, values(inputs, 0), readings);
    each(1, [=] __device__(long) {
        bool all = true;
        for (int k = 0; k < gradients + 2; k++) all &= (bool)isfinite(readings[k]);
        *is_finite = all;
    });
}

struct SteppedSome {
    AdamStep step;
    Stepped at[AT_ONCE];
};

// Take the step if it is accepted; sets `lost` if any new value is not finite.
__global__ inline void adam_kernel(SteppedSome some, const float *rates, const bool *accepted, int *lost) {
    if (!accepted[0]) return;
    const AdamStep &step = some.step;
    const Stepped &at = some.at[blockIdx.y];
    const float rate = rates[blockIdx.y];
    bool any = false;
    for (long i = blockIdx.x * (long)THREADS + threadIdx.x; i < at.size; i += (long)gridDim.x * THREADS) {
        // In float32: double is up to 64 times slower on many GPUs.
        const Entry entry = adam_entry<float>(step, rate, {at.parameter[i], at.first[i], at.second[i]}, at.gradient[i]);
        at.to[i] = entry.parameter;
        at.to_first[i] = entry.exp_avg;
        at.to_second[i] = entry.exp_avg_sq;
        any |= gap(entry.parameter, entry.exp_avg, entry.exp_avg_sq) != 0.f;
    }
    if (any) atomicOr(lost, 1);
}

// Restore the old values if the step was not taken.
__global__ inline void restore_kernel(SteppedSome some, const bool *accepted, const int *lost) {
    if (accepted[0] && lost[0] == 0) return;
    const Stepped &at = some.at[blockIdx.y];
    for (long i = blockIdx.x * (long)THREADS + threadIdx.x; i < at.size; i += (long)gridDim.x * THREADS) {
        at.to[i] = at.parameter[i];
        at.to_first[i] = at.first[i];
        at.to_second[i] = at.second[i];
    }
}

// Inputs and outputs as in `stepped`: the old values if not accepted, or if any new one is not finite.
template <typename Vars>
inline void adam(const AdamStep &step, const Vars &inputs, const Vars &outputs) {
    const int count = (int)outputs.size() / 3;
    const bool *accepted = inputs[0]->template ptr<bool>();
    Scratch<int> scratch(1);
    int *lost = scratch.values;
    clear(lost, 1);
    for (const bool restores : {false, true})
        for (int k = 0; k < count; k += AT_ONCE) {
            const int end = std::min(k + AT_ONCE, count);
            SteppedSome some{step, {}};
            for (int l = k; l < end; l++) some.at[l - k] = stepped(inputs, outputs, l);
            const dim3 blocks((unsigned)parts_of(outputs, k, end), end - k);
            if (restores)
                launch(restore_kernel, blocks, THREADS, some, accepted, lost);
            else
                launch(adam_kernel, blocks, THREADS, some, values(inputs, 1) + k, accepted, lost);
        }
    bool *taken = outputs[3 * count]->template ptr<bool>();
    each(1, [=] __device__(long) { taken[0] = accepted[0] && lost[0] == 0; });
}

}  // namespace neus
