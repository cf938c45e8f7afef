// The sharpness of a density, one number. The reference is ops/volrend.py. In double: a relative error of the
// exponential grows with the exponent.
#pragma once
#include "device.h"

namespace neus {

inline void sharpness(const SharpnessEnds &layout, long count, const float *variance, float *inv_s) {
    const SharpnessEnds is = layout;
    each(count, [=] __device__(long i) {
        const float exponent = fminf(fmaxf(variance[i] * is.scale, -is.most), is.most);
        inv_s[i] = fminf(fmaxf((float)exp((double)exponent), is.low), is.high);
    });
}

inline void sharpness_backward(const SharpnessEnds &layout, long count, const float *variance, const float *d_inv_s,
                               float *d_variance) {
    const SharpnessEnds is = layout;
    each(count, [=] __device__(long i) {
        const float exponent = variance[i] * is.scale, value = (float)exp((double)fminf(exponent, is.most));
        const bool is_within = fabsf(exponent) <= is.most && value >= is.low && value <= is.high;
        d_variance[i] = is_within ? d_inv_s[i] * value * is.scale : 0.f;
    });
}

}  // namespace neus
