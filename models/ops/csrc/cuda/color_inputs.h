// Inputs of a colour network that have no gradient. The reference is ops/color_mlp.py.
#pragma once
#include "layers.h"

namespace neus {

// fixed [n, 3 + 3 (1 + 2 octaves)]: points, then encoded views.
inline void color_inputs(const ViewEncoding &layout, long n, const float *points, const float *views, float *fixed) {
    const long stride = 3 + 3 * (1 + 2 * layout.octaves);
    each_place(n, 3, [=] __device__(int r, int j, long at) { fixed[r * stride + j] = points[at]; });
    encode(views, n, 3, layout.octaves, 1.f, fixed + 3, stride, 0);
}

}  // namespace neus
