// Absolute differences and structural dissimilarity of two images, with the gradient, one thread per value of an image.
// The reference is ops/picture_loss.py.
#pragma once
#include "likeness.h"
#include "reduce.h"

namespace neus {

constexpr int COLORS = 3;

// A value of one of the five maps that are convolved with the window: x, y, x x, y y, x y.
__device__ inline float map_value(int map, float x, float y) {
    return map == 0 ? x : map == 1 ? y : map == 2 ? x * x : map == 3 ? y * y : x * y;
}

// Convolution along a row, zeros outside the image; `at(index)` is a value of the image.
template <typename At>
__device__ inline float along_row(const Taps &taps, long width, long i, const At &at) {
    const long x = i / COLORS % width;
    float sum = 0.f;
    for (int k = -RADIUS; k <= RADIUS; k++)
        if (x + k >= 0 && x + k < width) sum += taps.weights[k + RADIUS] * at(i + k * COLORS);
    return sum;
}

// Convolution along a column of a map.
__device__ inline float along_column(const Taps &taps, long height, long width, long i, const float *map) {
    const long row = width * COLORS, y = i / row;
    float sum = 0.f;
    for (int k = -RADIUS; k <= RADIUS; k++)
        if (y + k >= 0 && y + k < height) sum += taps.weights[k + RADIUS] * map[i + k * row];
    return sum;
}

inline void picture_loss(const Pictures &is, long height, const float *picture, const float *photograph, float *loss,
                         float *slope) {
    const long width = is.width, size = height * width * COLORS;
    const float share = is.share, part = 1.f / size;
    const Taps taps = window_taps();
    Scratch<float> map_scratch(5 * size), derivative_scratch(3 * size), value_scratch(2 * size), sum_scratch(2);
    float *maps = map_scratch.values, *derivatives = derivative_scratch.values, *values = value_scratch.values;
    float *sums = sum_scratch.values;
    each(5 * size, [=] __device__(long place) {
        const int map = (int)(place / size);
        const auto at = [=](long i) { return map_value(map, picture[i], photograph[i]); };
        maps[place] = along_row(taps, width, place % size, at);
    });
    each(size, [=] __device__(long i) {
        float mean[5], d[3];
        for (int map = 0; map < 5; map++) mean[map] = along_column(taps, height, width, i, maps + map * size);
        values[2 * i] = alike(mean[0], mean[1], mean[2], mean[3], mean[4], d);
        values[2 * i + 1] = fabsf(picture[i] - photograph[i]);
        for (int k = 0; k < 3; k++) derivatives[k * size + i] = d[k];
    });
    each(3 * size, [=] __device__(long place) {
        const float *from = derivatives + place / size * size;
        maps[place] = along_row(taps, width, place % size, [=](long i) { return from[i]; });
    });
    each(size, [=] __device__(long i) {
        float d[3];
        for (int k = 0; k < 3; k++) d[k] = along_column(taps, height, width, i, maps + k * size);
        const float x = picture[i], y = photograph[i], sign = x > y ? 1.f : x < y ? -1.f : 0.f;
        slope[i] = -share * part * (d[0] + 2 * x * d[1] + y * d[2]) + (1.f - share) * part * sign;
    });
    clear(sums, 2);
    add_columns(size, 2, part, values, 2, sums);
    each(1, [=] __device__(long) { loss[0] = (1.f - share) * sums[1] + share * (1.f - sums[0]); });
}

}  // namespace neus
