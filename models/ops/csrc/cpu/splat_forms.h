// The two forms of splats as a tile looks at them: how far a pixel lies off one, and where gradients go.
#pragma once
#include "exponential.h"
#include "splat_tiles.h"

namespace neus {

typedef Vec *Sums;  // of a block of pixels, one for each channel
constexpr float LARGEST_FRACTION = 1.f / 255;  // of the light: below it a splat does not count

inline float log_cut(float opacity) { return std::log(opacity / LARGEST_FRACTION); }
inline Vec size_of(Vec a) { return a < 0.f ? -a : a; }
inline Vec minimum(Vec a, float b) { return a < b ? a : Vec{} + b; }
inline Vec minimum(Vec a, Vec b) { return a < b ? a : b; }

// What both forms have: the opacity at distance `sigma`, limited, and what of its gradient passes the limit.
struct Opacity {
    Vec alpha, passes;
    Opacity(float opacity, Vec sigma) {
        const Vec full = opacity * exp_negative(-sigma);
        passes = full < MOST_ALPHA ? full : Vec{};
        alpha = minimum(full, MOST_ALPHA);
    }
};

// Ellipsoids: inputs means2d [N, 2], conics [N, 3], colours [N, 3], opacities [N, 1], depths [N, 1]; channels colour and
// depth.
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
        Vec dx, dy;
    };

    static Splat splat(const Inputs &in, long n) {
        return {in.means2d[2 * n], in.means2d[2 * n + 1], in.conics[3 * n], in.conics[3 * n + 1], in.conics[3 * n + 2],
                in.opacities[n], {in.colors[3 * n], in.colors[3 * n + 1], in.colors[3 * n + 2], in.depths[n]}};
    }
    static Window reach_of(const Splat &s, int width, int height) {
        const double cut = log_cut(s.opacity), det = (double)s.a * s.c - (double)s.b * s.b;
        if (cut < 0 || det <= 0) return {0, 0, -1, -1};
        return window(s.x, s.y, std::sqrt(2 * cut * s.c / det) + EDGE, std::sqrt(2 * cut * s.a / det) + EDGE, width, height);
    }
    // As the tile at (x0, y0) sees it: numbers stay small, and differences of them exact.
    static Splat seen_from(Splat s, float x0, float y0) {
        s.x -= x0, s.y -= y0;
        return s;
    }
    static Vec sigma(const Splat &s, Vec px, Vec py, Hit &hit) {
        hit.dx = s.x - px, hit.dy = s.y - py;
        const Vec found = 0.5f * (s.a * hit.dx * hit.dx + s.c * hit.dy * hit.dy) + s.b * hit.dx * hit.dy;
        return found > 0.f ? found : Vec{};
    }
    // What the hit's place is measured from, in a block: nothing here.
    static Vec origin(const Hit &, Vec, Vec, Vec before) { return before; }
    static void add(Sums sums, const Splat &s, const Hit &, Vec weight, Vec, Vec) {
        for (int c = 0; c < CHANNELS; c++) sums[c] += weight * s.channels[c];
    }
    // What one unit of light on the splat is worth.
    static Vec worth(const Vec *g, const Splat &s, const Hit &, Vec) {
        return g[0] * s.channels[0] + g[1] * s.channels[1] + g[2] * s.channels[2] + g[3] * s.channels[3];
    }
    // Adds up the gradients of a block: `d_sigma` and, of the channels, weight times cotangents.
    static void back(Vec *acc, const Splat &s, const Hit &hit, Vec d_sigma, Vec weight, const Vec *g, Vec, bool absolute) {
        const Vec along = d_sigma * hit.dx, down = d_sigma * hit.dy;
        acc[D_X] += along;
        acc[D_Y] += down;
        acc[D_CONIC] += along * hit.dx;
        acc[D_CONIC + 1] += along * hit.dy;
        acc[D_CONIC + 2] += down * hit.dy;
        for (int c = 0; c < CHANNELS; c++) acc[D_CHANNELS + c] += weight * g[c];
        if (absolute) {
            acc[D_PROBE] += size_of(s.a * along + s.b * down);
            acc[D_PROBE + 1] += size_of(s.b * along + s.c * down);
        }
    }
    // The sums of a tile as gradients of the inputs.
    static void finish(const Splat &s, float, float, bool absolute, float *d) {
        const float along = d[D_X], down = d[D_Y];
        d[D_X] = s.a * along + s.b * down, d[D_Y] = s.b * along + s.c * down;
        d[D_CONIC] *= 0.5f, d[D_CONIC + 2] *= 0.5f;
        if (!absolute) d[D_PROBE] = d[D_X], d[D_PROBE + 1] = d[D_Y];
    }
    struct Outputs {
        float *means2d, *conics, *colors, *opacities, *depths, *probe;
    };
    static void write(const Outputs &to, long n, const float *d) {
        std::copy(d + D_X, d + D_X + 2, to.means2d + 2 * n);
        std::copy(d + D_CONIC, d + D_CONIC + 3, to.conics + 3 * n);
        to.opacities[n] = d[D_OPACITY];
        std::copy(d + D_CHANNELS, d + D_CHANNELS + 3, to.colors + 3 * n);
        to.depths[n] = d[D_CHANNELS + 3];
        std::copy(d + D_PROBE, d + D_PROBE + 2, to.probe + 2 * n);
    }
};

}  // namespace neus
