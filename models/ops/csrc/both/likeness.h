// The window of structural similarity, and its value at a pixel.
#pragma once
#include "device.h"

namespace neus {

constexpr int TAPS = 2 * RADIUS + 1;

struct Taps {
    float weights[TAPS];
};

inline Taps window_taps() {
    Taps taps;
    double sum = 0;
    const auto height = [](int k) { return std::exp(-0.5 * k * k / (SIGMA * SIGMA)); };
    for (int k = -RADIUS; k <= RADIUS; k++) sum += height(k);
    for (int k = -RADIUS; k <= RADIUS; k++) taps.weights[k + RADIUS] = (float)(height(k) / sum);
    return taps;
}

// The SSIM at a pixel, and its derivatives with respect to the mean, the mean square and the mean product.
__device__ inline float alike(float u, float v, float xx, float yy, float xy, float *d) {
    const float a = 2 * u * v + STABLE_MEAN, b = 2 * (xy - u * v) + STABLE_VARIANCE;
    const float c = 1.f / (u * u + v * v + STABLE_MEAN), e = 1.f / (xx - u * u + yy - v * v + STABLE_VARIANCE);
    const float found = a * b * c * e;
    d[0] = 2 * (v * (b - a) * c * e + u * found * (e - c));
    d[1] = -found * e;
    d[2] = 2 * a * c * e;
    return found;
}

}  // namespace neus
