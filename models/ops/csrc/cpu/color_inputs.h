// Inputs of a colour network that have no gradient. The reference is ops/color_mlp.py.
#pragma once
#include <algorithm>
#include <cmath>

namespace neus {

// fixed [n, 3 + 3 (1 + 2 octaves)]: points, then encoded views.
inline void color_inputs(const ViewEncoding &is, long n, const float *points, const float *views, float *fixed) {
    const long stride = 3 + 3 * (1 + 2 * is.octaves);
#pragma omp parallel for schedule(static)
    for (long begin = 0; begin < n; begin += BLOCK) {
        const int count = 3 * (int)std::min<long>(BLOCK, n - begin);
        const float *point = points + 3 * begin, *view = views + 3 * begin;
        float sine[3 * BLOCK], cosine[3 * BLOCK], *to = fixed + begin * stride;
        for (int i = 0; i < count; i++) {
            to[i / 3 * stride + i % 3] = point[i];
            to[i / 3 * stride + 3 + i % 3] = view[i];
        }
        for (int f = 0; f < is.octaves; f++) {
            // Two loops: a sine and a cosine of one angle become a call that cannot be vectorised.
#pragma omp simd
            for (int i = 0; i < count; i++) sine[i] = std::sin(view[i] * (float)(1 << f));
#pragma omp simd
            for (int i = 0; i < count; i++) cosine[i] = std::cos(view[i] * (float)(1 << f));
            for (int i = 0; i < count; i++) {
                float *row = to + i / 3 * stride + 6 + 6 * f + i % 3;
                row[0] = sine[i];
                row[3] = cosine[i];
            }
        }
    }
}

}  // namespace neus
