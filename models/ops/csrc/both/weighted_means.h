// The terms of a loss as means, and their weighted sum. The reference is ops/loss_sums.py. `Vars` is a list of
// Jittor's variables, all float32 [1].
#pragma once
#include "device.h"
#ifndef __CUDACC__
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")  // as the reference, which computes each product by itself
#endif

namespace neus {

struct MeanOf {
    const float *total, *count;  // count: null if it is `known`
    float *mean;                 // in the backward pass, the cotangent of the total
    const float *d_mean;         // null if no loss depends on it
    float known, margin, weight;

    __device__ float size() const { return (count ? count[0] : known) + margin; }
};
struct MeansOf {
    int terms;
    MeanOf at[MOST_TERMS];
};

// The inputs of the terms; `counts` are the inputs from `begin` on.
template <typename Vars>
inline MeansOf means_of(const WeightedMeans &layout, const Vars &inputs, size_t begin) {
    MeansOf some{};
    some.terms = (int)layout.weights.size();
    for (int k = 0; k < some.terms; k++) {
        MeanOf &at = some.at[k];
        at.known = layout.counts[k];
        at.margin = layout.margins[k];
        at.weight = layout.weights[k];
        if (!layout.known[k]) at.count = inputs[begin++]->template ptr<float>();
    }
    return some;
}

// inputs = {totals, counts that are not known}; outputs = {the weighted sum, the means}.
template <typename Vars>
inline void weighted_means(const WeightedMeans &layout, const Vars &inputs, const Vars &outputs) {
    MeansOf some = means_of(layout, inputs, layout.weights.size());
    for (int k = 0; k < some.terms; k++) {
        some.at[k].total = inputs[k]->template ptr<float>();
        some.at[k].mean = outputs[1 + k]->template ptr<float>();
    }
    float *sum = outputs[0]->template ptr<float>();
    each(1, [=] __device__(long) {
        float all = 0.f;
        for (int k = 0; k < some.terms; k++) {
            const MeanOf &at = some.at[k];
            const float mean = at.total[0] / at.size();
            at.mean[0] = mean;
            all += mean * at.weight;
        }
        sum[0] = all;
    });
}

// inputs = {cotangents of the outputs marked in `given`, counts that are not known}; outputs = {cotangents of the
// totals}.
template <typename Vars>
inline void weighted_means_backward(const WeightedMeans &layout, const Vars &inputs, const Vars &outputs) {
    const int terms = (int)layout.weights.size();
    const float *d_outputs[MOST_TERMS + 1] = {};
    size_t begin = 0;
    for (int k = 0; k <= terms; k++)
        if (layout.given >> k & 1) d_outputs[k] = inputs[begin++]->template ptr<float>();
    MeansOf some = means_of(layout, inputs, begin);
    for (int k = 0; k < terms; k++) {
        some.at[k].mean = outputs[k]->template ptr<float>();
        some.at[k].d_mean = d_outputs[1 + k];
    }
    const float *d_sum = d_outputs[0];
    each(terms, [=] __device__(long k) {
        const MeanOf &at = some.at[k];
        at.mean[0] = ((d_sum ? d_sum[0] * at.weight : 0.f) + (at.d_mean ? at.d_mean[0] : 0.f)) / at.size();
    });
}

}  // namespace neus
#ifndef __CUDACC__
#pragma GCC pop_options
#endif
