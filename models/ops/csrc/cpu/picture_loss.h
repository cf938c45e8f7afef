// Absolute differences and structural dissimilarity of two images, with the gradient. The reference is
// ops/picture_loss.py. Each channel is one plane. Sums are taken by rows, so that they do not depend on the threads.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>
#include "likeness.h"

namespace neus {

// Convolve a plane with the window in place; zeros outside the plane.
inline void blur(const Taps &window, long height, long width, std::vector<float> &plane) {
    std::vector<float> across(height * width), row(width + 2 * RADIUS);
    for (long y = 0; y < height; y++) {
        std::copy(plane.begin() + y * width, plane.begin() + (y + 1) * width, row.begin() + RADIUS);
        float *to = across.data() + y * width;
#pragma omp simd
        for (long x = 0; x < width; x++) {
            float sum = 0.f;
            for (int k = 0; k <= 2 * RADIUS; k++) sum += window.weights[k] * row[x + k];
            to[x] = sum;
        }
    }
    for (long y = 0; y < height; y++) {
        float *to = plane.data() + y * width;
        std::fill(to, to + width, 0.f);
        for (long k = std::max(0L, y - RADIUS); k <= std::min(height - 1, y + RADIUS); k++) {
            const float weight = window.weights[k - y + RADIUS], *from = across.data() + k * width;
            for (long x = 0; x < width; x++) to[x] += weight * from[x];
        }
    }
}

// The sum of the SSIM of one channel over its pixels, and its gradient times `scale`.
inline double likeness(const Taps &window, long height, long width, float scale, const std::vector<float> &x,
                       const std::vector<float> &y, std::vector<float> &slope) {
    const long size = height * width;
    std::vector<float> mean_x = x, mean_y = y, xx(size), yy(size), xy(size);
    for (long i = 0; i < size; i++) xx[i] = x[i] * x[i], yy[i] = y[i] * y[i], xy[i] = x[i] * y[i];
    for (std::vector<float> *plane : {&mean_x, &mean_y, &xx, &yy, &xy}) blur(window, height, width, *plane);
    double total = 0;
    for (long row = 0; row < height; row++) {
        float sum = 0.f;
#pragma omp simd reduction(+ : sum)
        for (long i = row * width; i < (row + 1) * width; i++) {
            float d[3];
            sum += alike(mean_x[i], mean_y[i], xx[i], yy[i], xy[i], d);
            mean_x[i] = d[0], xx[i] = d[1], xy[i] = d[2];
        }
        total += sum;
    }
    for (std::vector<float> *plane : {&mean_x, &xx, &xy}) blur(window, height, width, *plane);
    for (long i = 0; i < size; i++) slope[i] = scale * (mean_x[i] + 2 * x[i] * xx[i] + y[i] * xy[i]);
    return total;
}

inline void picture_loss(const Pictures &is, long height, const float *picture, const float *photograph, float *loss,
                         float *slope) {
    const long width = is.width, size = height * width;
    const Taps window = window_taps();
    const float share = 1.f / (3.f * size);
    double alike[3], apart[3];
#pragma omp parallel for schedule(static, 1)
    for (int c = 0; c < 3; c++) {
        std::vector<float> x(size), y(size), d(size);
        for (long i = 0; i < size; i++) x[i] = picture[3 * i + c], y[i] = photograph[3 * i + c];
        alike[c] = likeness(window, height, width, -is.share * share, x, y, d);
        apart[c] = 0;
        for (long row = 0; row < height; row++) {
            float sum = 0.f;
#pragma omp simd reduction(+ : sum)
            for (long i = row * width; i < (row + 1) * width; i++) sum += std::fabs(x[i] - y[i]);
            apart[c] += sum;
        }
        for (long i = 0; i < size; i++) {
            const float sign = x[i] > y[i] ? 1.f : x[i] < y[i] ? -1.f : 0.f;
            slope[3 * i + c] = d[i] + (1.f - is.share) * share * sign;
        }
    }
    const double mean = share * (alike[0] + alike[1] + alike[2]);
    loss[0] = (float)((1.0 - is.share) * share * (apart[0] + apart[1] + apart[2]) + is.share * (1.0 - mean));
}

}  // namespace neus
