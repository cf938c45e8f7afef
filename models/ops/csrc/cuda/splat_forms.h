// The two forms of splats as a pixel looks at them: how far it lies off one, and where gradients go. Ellipsoids here,
// surfels in splat_surfel.h.
#pragma once
#include "device.h"

namespace neus {

constexpr float LARGEST_FRACTION = 1.f / 255;  // of the light: below it a splat does not count

// The pixels that a splat may show in; none where right < left.
struct Window {
    int left, top, right, bottom;  // all inclusive
};

__device__ inline int pixel_at(double value, int most) { return (int)fmin(fmax(value, -1.0), (double)most); }

// Of centres and half sides in pixels, the pixels whose middles lie within.
__device__ inline Window window(double x, double y, double wide, double high, int width, int height) {
    wide = fmin(wide, 1e8), high = fmin(high, 1e8);
    const int left = pixel_at(ceil(x - wide - 0.5), width), top = pixel_at(ceil(y - high - 0.5), height);
    const int right = pixel_at(floor(x + wide - 0.5), width), bottom = pixel_at(floor(y + high - 0.5), height);
    return {left > 0 ? left : 0, top > 0 ? top : 0, right < width - 1 ? right : width - 1,
            bottom < height - 1 ? bottom : height - 1};
}

// What both forms have: the opacity at distance `sigma`, limited, and what of its gradient passes the limit.
struct Opacity {
    float alpha, passes;
    __device__ Opacity(float opacity, float sigma) {
        const float full = opacity * expf(-sigma);
        passes = full < MOST_ALPHA ? full : 0.f;
        alpha = full < MOST_ALPHA ? full : MOST_ALPHA;
    }
};

// A column of shared memory: the numbers of one pixel.
struct Column {
    const float *at;
    __device__ float operator[](int c) const { return at[c * THREADS]; }
};

// Channels colour and depth of the centre.
struct EllipsoidForm {
    static constexpr int CHANNELS = 4, SUMMED = CHANNELS, GRADIENTS = 12;
    enum { D_X, D_Y, D_CONIC, D_OPACITY = 5, D_CHANNELS, D_PROBE = 10 };
    struct Inputs {
        const float *means2d, *conics, *colors, *opacities, *depths;
    };
    struct Splat {
        float x, y, a, b, c, opacity, channels[CHANNELS];
    };
    struct Hit {
        float dx, dy;
    };

    __device__ static Splat splat(const Inputs &in, long n) {
        return {in.means2d[2 * n], in.means2d[2 * n + 1], in.conics[3 * n], in.conics[3 * n + 1], in.conics[3 * n + 2],
                in.opacities[n], {in.colors[3 * n], in.colors[3 * n + 1], in.colors[3 * n + 2], in.depths[n]}};
    }
    __device__ static Window reach_of(const Splat &s, int width, int height) {
        const double cut = log((double)(s.opacity / LARGEST_FRACTION)), det = (double)s.a * s.c - (double)s.b * s.b;
        if (!(cut >= 0) || !(det > 0)) return {0, 0, -1, -1};
        return window(s.x, s.y, sqrt(2 * cut * s.c / det) + EDGE, sqrt(2 * cut * s.a / det) + EDGE, width, height);
    }
    // As the tile at (x0, y0) sees it: numbers stay small, and differences of them exact.
    __device__ static Splat seen_from(Splat s, float x0, float y0) {
        s.x -= x0, s.y -= y0;
        return s;
    }
    __device__ static float sigma(const Splat &s, float px, float py, Hit &hit) {
        hit.dx = s.x - px, hit.dy = s.y - py;
        return fmaxf(0.5f * (s.a * hit.dx * hit.dx + s.c * hit.dy * hit.dy) + s.b * hit.dx * hit.dy, 0.f);
    }
    // What the hit's place is measured from: nothing here.
    __device__ static float origin(const Hit &, float, float known) { return known; }
    __device__ static void add(float *sums, const Splat &s, const Hit &, float weight, float, float) {
        for (int c = 0; c < CHANNELS; c++) sums[c] += weight * s.channels[c];
    }
    // What one unit of light on the splat is worth.
    __device__ static float worth(const Column &g, const Splat &s, const Hit &, float) {
        return g[0] * s.channels[0] + g[1] * s.channels[1] + g[2] * s.channels[2] + g[3] * s.channels[3];
    }
    // Adds the gradients of a pixel: `d_sigma` and, of the channels, weight times cotangents.
    __device__ static void back(float *acc, const Splat &s, const Hit &hit, float, float, float d_sigma, float weight,
                                const Column &g, float, bool absolute) {
        const float along = d_sigma * hit.dx, down = d_sigma * hit.dy;
        acc[D_X] += along;
        acc[D_Y] += down;
        acc[D_CONIC] += along * hit.dx;
        acc[D_CONIC + 1] += along * hit.dy;
        acc[D_CONIC + 2] += down * hit.dy;
        for (int c = 0; c < CHANNELS; c++) acc[D_CHANNELS + c] += weight * g[c];
        if (absolute) {
            acc[D_PROBE] += fabsf(s.a * along + s.b * down);
            acc[D_PROBE + 1] += fabsf(s.b * along + s.c * down);
        }
    }
    // The sums of a tile as gradients of the inputs.
    __device__ static void finish(const Splat &s, float, float, bool absolute, float *d) {
        const float along = d[D_X], down = d[D_Y];
        d[D_X] = s.a * along + s.b * down, d[D_Y] = s.b * along + s.c * down;
        d[D_CONIC] *= 0.5f, d[D_CONIC + 2] *= 0.5f;
        if (!absolute) d[D_PROBE] = d[D_X], d[D_PROBE + 1] = d[D_Y];
    }
    struct Outputs {
        float *means2d, *conics, *colors, *opacities, *depths, *probe;
    };
    __device__ static void write(const Outputs &to, long n, const float *d) {
        for (int i = 0; i < 2; i++) to.means2d[2 * n + i] = d[D_X + i], to.probe[2 * n + i] = d[D_PROBE + i];
        for (int i = 0; i < 3; i++) to.conics[3 * n + i] = d[D_CONIC + i], to.colors[3 * n + i] = d[D_CHANNELS + i];
        to.opacities[n] = d[D_OPACITY];
        to.depths[n] = d[D_CHANNELS + 3];
    }
};

}  // namespace neus
