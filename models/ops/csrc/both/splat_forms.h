// The two forms of Gaussians as functions of a pixel: the exponent and its gradients. Ellipsoids here, surfels in
// splat_surfel.h. A `Number` is a value of one pixel, or of several at once.
#pragma once
#include "splat_pixels.h"

namespace neus {

constexpr float LARGEST_FRACTION = 1.f / 255;  // smallest opacity at a pixel that counts

// The pixels that a Gaussian may cover; none if right < left.
struct Window {
    int left, top, right, bottom;  // all inclusive
    __device__ bool is_empty() const { return right < left || bottom < top; }
};

__device__ inline int pixel_at(double value, int most) { return (int)fmin(fmax(value, -1.0), (double)most); }

// The pixels whose centres are within half sides (in pixels) of the centre.
__device__ inline Window window(double x, double y, double wide, double high, int width, int height) {
    wide = fmin(wide, 1e8), high = fmin(high, 1e8);
    const int left = pixel_at(ceil(x - wide - 0.5), width), top = pixel_at(ceil(y - high - 0.5), height);
    const int right = pixel_at(floor(x + wide - 0.5), width), bottom = pixel_at(floor(y + high - 0.5), height);
    return {left > 0 ? left : 0, top > 0 ? top : 0, right < width - 1 ? right : width - 1,
            bottom < height - 1 ? bottom : height - 1};
}

__device__ inline double log_cut(float opacity) { return log_multiple(opacity / LARGEST_FRACTION); }
__device__ inline Number size_of(Number x) { return x < 0.f ? -x : x; }

// Common to both forms: the opacity at `sigma`, clamped, and the gradient that passes the clamp.
struct Opacity {
    Number alpha, passes;
    __device__ Opacity(float opacity, Number sigma) {
        const Number full = opacity * exp_negative(-sigma);
        passes = full < MOST_ALPHA ? full : Number{};
        alpha = full < MOST_ALPHA ? full : Number{} + MOST_ALPHA;
    }
};

// Ellipsoids: inputs means2d [N, 2], conics [N, 3], colours [N, 3], opacities [N, 1], depths [N, 1]; channels colour
// and depth of the centre. Cotangents of channels are any type with [].
struct EllipsoidForm {
    static constexpr int CHANNELS = 4, SUMMED = CHANNELS, GRADIENTS = 10;
    enum { D_X, D_Y, D_CONIC, D_OPACITY = 5, D_CHANNELS };
    struct Inputs {
        const float *means2d, *conics, *colors, *opacities, *depths;
    };
    struct Splat {
        float x, y, a, b, c, opacity, channels[CHANNELS];
    };
    struct Hit {
        Number dx, dy;
    };

    __device__ static Splat splat(const Inputs &in, long n) {
        return {in.means2d[2 * n], in.means2d[2 * n + 1], in.conics[3 * n], in.conics[3 * n + 1], in.conics[3 * n + 2],
                in.opacities[n], {in.colors[3 * n], in.colors[3 * n + 1], in.colors[3 * n + 2], in.depths[n]}};
    }
    __device__ static Window reach_of(const Splat &s, int width, int height) {
        const double cut = log_cut(s.opacity), det = (double)s.a * s.c - (double)s.b * s.b;
        if (!(cut >= 0) || !(det > 0)) return {0, 0, -1, -1};
        return window(s.x, s.y, sqrt(2 * cut * s.c / det) + EDGE, sqrt(2 * cut * s.a / det) + EDGE, width, height);
    }
    // Relative to the tile at (x0, y0), so that numbers are small and differences exact.
    __device__ static Splat seen_from(Splat s, float x0, float y0) {
        s.x -= x0, s.y -= y0;
        return s;
    }
    __device__ static Number sigma(const Splat &s, Number px, Number py, Hit &hit) {
        hit.dx = s.x - px, hit.dy = s.y - py;
        const Number found = 0.5f * (s.a * hit.dx * hit.dx + s.c * hit.dy * hit.dy) + s.b * hit.dx * hit.dy;
        return found > 0.f ? found : Number{};
    }
    // The reference of the hit's position: none here.
    __device__ static Number origin(const Hit &, Number, Number, Number known) { return known; }
    __device__ static void add(Number *sums, const Splat &s, const Hit &, Number weight, Number, Number) {
        for (int c = 0; c < CHANNELS; c++) sums[c] += weight * s.channels[c];
    }
    // The dot product of the Gaussian's channels and the cotangents.
    template <typename Cotangents>
    __device__ static Number worth(Cotangents g, const Splat &s, const Hit &, Number) {
        return g[0] * s.channels[0] + g[1] * s.channels[1] + g[2] * s.channels[2] + g[3] * s.channels[3];
    }
    // Add the gradients of pixels: `d_sigma` and, for the channels, weight times cotangents.
    template <typename Cotangents>
    __device__ static void back(Number *acc, const Splat &s, const Hit &hit, Number d_sigma, Number weight,
                                Cotangents g, Number) {
        const Number along = d_sigma * hit.dx, down = d_sigma * hit.dy;
        acc[D_X] += along;
        acc[D_Y] += down;
        acc[D_CONIC] += along * hit.dx;
        acc[D_CONIC + 1] += along * hit.dy;
        acc[D_CONIC + 2] += down * hit.dy;
        for (int c = 0; c < CHANNELS; c++) acc[D_CHANNELS + c] += weight * g[c];
    }
    // Convert the sums of a tile to gradients of the inputs.
    __device__ static void finish(const Splat &s, float, float, float *d) {
        const float along = d[D_X], down = d[D_Y];
        d[D_X] = s.a * along + s.b * down, d[D_Y] = s.b * along + s.c * down;
        d[D_CONIC] *= 0.5f, d[D_CONIC + 2] *= 0.5f;
    }
    struct Outputs {
        float *means2d, *conics, *colors, *opacities, *depths;
    };
    __device__ static void write(const Outputs &to, long n, const float *d) {
        for (int i = 0; i < 2; i++) to.means2d[2 * n + i] = d[D_X + i];
        for (int i = 0; i < 3; i++) to.conics[3 * n + i] = d[D_CONIC + i], to.colors[3 * n + i] = d[D_CHANNELS + i];
        to.opacities[n] = d[D_OPACITY];
        to.depths[n] = d[D_CHANNELS + 3];
    }
};

}  // namespace neus
