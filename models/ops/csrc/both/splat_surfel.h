// Surfels as functions of a pixel: the intersection of its ray with their plane (2DGS, arXiv 2403.17888, section 4.2).
#pragma once
#include "splat_forms.h"

namespace neus {

__device__ inline Number away_from_zero(Number x) { return size_of(x) < SMALLEST ? Number{} + SMALLEST : x; }
// Bounded, since a surfel that reaches the camera plane has intersections at any depth above 0.
__device__ inline Number inverse_depth(Number depth) {
    return 1.f / (depth < NEAREST_HIT ? Number{} + NEAREST_HIT : depth);
}

// Inputs means2d [N, 2], to_picture [N, 3, 3], normals, colours [N, 3], opacities, depths [N, 1]; channels colour,
// depth of the centre, normal, depth of the hit, the first two moments of 1 / depth relative to the first hit (depths
// below NEAREST_HIT count as that), and the depth of the hits within the first part of the accumulated weight, which is
// not differentiated.
struct SurfelForm {
    static constexpr int CHANNELS = 11, SUMMED = 10, GRADIENTS = 19;
    enum { D_X, D_Y, D_T, D_OPACITY = 11, D_CHANNELS };
    enum { DEPTH = 3, NORMAL, HIT = 7, FIRST, SECOND, FRONT, FIXED = HIT };
    struct Inputs {
        const float *means2d, *to_picture, *normals, *colors, *opacities, *depths;
    };
    struct Splat {
        float x, y, t[9], opacity, channels[FIXED];
    };
    struct Hit {
        Number dx, dy, px, py, u, v, depth, inverse;  // inverse: of the third number of the cross product
        Truth on_plane;
    };

    __device__ static Splat splat(const Inputs &in, long n) {
        Splat s;
        s.x = in.means2d[2 * n], s.y = in.means2d[2 * n + 1], s.opacity = in.opacities[n];
        for (int i = 0; i < 9; i++) s.t[i] = in.to_picture[9 * n + i];
        for (int i = 0; i < 3; i++) s.channels[i] = in.colors[3 * n + i], s.channels[NORMAL + i] = in.normals[3 * n + i];
        s.channels[DEPTH] = in.depths[n];
        return s;
    }
    // The pixels that the disc up to the cutoff and the low-pass filter around its centre may cover. A disc that
    // extends behind the camera may cover any pixel.
    __device__ static Window reach_of(const Splat &s, int width, int height) {
        const double cut = log_cut(s.opacity);
        if (!(cut >= 0)) return {0, 0, -1, -1};
        const double r = 2 * cut, p = s.t[6], q = s.t[7], z = s.t[8], divisor = r * (p * p + q * q) - z * z;
        if (divisor >= 0) return {0, 0, width - 1, height - 1};
        double low[2], high[2];
        for (int k = 0; k < 2; k++) {
            const double a = s.t[3 * k], b = s.t[3 * k + 1], c = s.t[3 * k + 2], at = k ? s.y : s.x;
            const double middle = (r * (a * p + b * q) - c * z) / divisor;
            const double square = middle * middle - (r * (a * a + b * b) - c * c) / divisor;
            const double half = sqrt(fmax(square, 0.0)), blur = sqrt(cut);
            low[k] = fmin(middle - half, at - blur) - EDGE, high[k] = fmax(middle + half, at + blur) + EDGE;
        }
        return window(0.5 * (low[0] + high[0]), 0.5 * (low[1] + high[1]), 0.5 * (high[0] - low[0]),
                      0.5 * (high[1] - low[1]), width, height);
    }
    __device__ static Splat seen_from(Splat s, float x0, float y0) {
        s.x -= x0, s.y -= y0;
        for (int k = 0; k < 3; k++) {
            s.t[k] = (float)(s.t[k] - (double)x0 * s.t[6 + k]);
            s.t[3 + k] = (float)(s.t[3 + k] - (double)y0 * s.t[6 + k]);
        }
        return s;
    }
    // The two planes through the pixel, in the surfel's frame.
    __device__ static void planes(const Splat &s, Number px, Number py, Number *h, Number *k) {
        for (int i = 0; i < 3; i++) h[i] = px * s.t[6 + i] - s.t[i], k[i] = py * s.t[6 + i] - s.t[3 + i];
    }
    __device__ static Number sigma(const Splat &s, Number px, Number py, Hit &hit) {
        Number h[3], k[3];
        planes(s, px, py, h, k);
        hit.inverse = 1.f / away_from_zero(h[0] * k[1] - h[1] * k[0]);
        hit.u = (h[1] * k[2] - h[2] * k[1]) * hit.inverse, hit.v = (h[2] * k[0] - h[0] * k[2]) * hit.inverse;
        hit.px = px, hit.py = py, hit.dx = s.x - px, hit.dy = s.y - py;
        const Number depth = s.t[6] * hit.u + s.t[7] * hit.v + s.t[8];
        const Number on_plane = hit.u * hit.u + hit.v * hit.v, blurred = 2.f * (hit.dx * hit.dx + hit.dy * hit.dy);
        hit.on_plane = (on_plane <= blurred) & (depth > 0.f);
        hit.depth = hit.on_plane ? depth : Number{} + s.t[8];
        return 0.5f * (hit.on_plane ? on_plane : blurred);
    }
    __device__ static Number origin(const Hit &hit, Number before, Number weight, Number known) {
        return (before == 1.f) & (weight > 0.f) ? inverse_depth(hit.depth) : known;
    }
    __device__ static void add(Number *sums, const Splat &s, const Hit &hit, Number weight, Number before, Number origin) {
        for (int c = 0; c < FIXED; c++) sums[c] += weight * s.channels[c];
        const Number place = inverse_depth(hit.depth) - origin;
        sums[HIT] += weight * hit.depth;
        sums[FIRST] += weight * place;
        sums[SECOND] += weight * place * place;
        const Number lit = before - FRONT_LEFT, part = weight < lit ? weight : lit;
        sums[FRONT] += (part > 0.f ? part : Number{}) * hit.depth;
    }
    template <typename Cotangents>
    __device__ static Number worth(Cotangents g, const Splat &s, const Hit &hit, Number origin) {
        const Number place = inverse_depth(hit.depth) - origin;
        Number found = g[HIT] * hit.depth + g[FIRST] * place + g[SECOND] * place * place;
        for (int c = 0; c < FIXED; c++) found += g[c] * s.channels[c];
        return found;
    }
    template <typename Cotangents>
    __device__ static void back(Number *acc, const Splat &s, const Hit &hit, Number d_sigma, Number weight,
                                Cotangents g, Number origin) {
        for (int c = 0; c < FIXED; c++) acc[D_CHANNELS + c] += weight * g[c];
        const Number inverse = inverse_depth(hit.depth), place = inverse - origin;
        const Number slope = hit.depth < NEAREST_HIT ? Number{} : inverse * inverse;
        const Number d_depth = weight * (g[HIT] - slope * (g[FIRST] + 2.f * g[SECOND] * place));
        const Number on_depth = hit.on_plane ? d_depth : Number{}, d_blur = hit.on_plane ? Number{} : 2.f * d_sigma;
        const Number du = (hit.on_plane ? d_sigma * hit.u : Number{}) + on_depth * s.t[6];
        const Number dv = (hit.on_plane ? d_sigma * hit.v : Number{}) + on_depth * s.t[7];
        const Number dc[3] = {du * hit.inverse, dv * hit.inverse, -(du * hit.u + dv * hit.v) * hit.inverse};
        Number h[3], k[3];
        planes(s, hit.px, hit.py, h, k);
        for (int i = 0; i < 3; i++) {
            const int a = (i + 1) % 3, b = (i + 2) % 3;
            const Number dh = k[a] * dc[b] - k[b] * dc[a], dk = dc[a] * h[b] - dc[b] * h[a];
            acc[D_T + i] -= dh;
            acc[D_T + 3 + i] -= dk;
            acc[D_T + 6 + i] += hit.px * dh + hit.py * dk;
        }
        acc[D_T + 6] += on_depth * hit.u;
        acc[D_T + 7] += on_depth * hit.v;
        acc[D_T + 8] += d_depth;
        acc[D_X] += d_blur * hit.dx;
        acc[D_Y] += d_blur * hit.dy;
    }
    __device__ static void finish(const Splat &, float x0, float y0, float *d) {
        for (int i = 0; i < 3; i++) d[D_T + 6 + i] -= x0 * d[D_T + i] + y0 * d[D_T + 3 + i];
    }
    struct Outputs {
        float *means2d, *to_picture, *normals, *colors, *opacities, *depths;
    };
    __device__ static void write(const Outputs &to, long n, const float *d) {
        for (int i = 0; i < 2; i++) to.means2d[2 * n + i] = d[D_X + i];
        for (int i = 0; i < 9; i++) to.to_picture[9 * n + i] = d[D_T + i];
        for (int i = 0; i < 3; i++)
            to.colors[3 * n + i] = d[D_CHANNELS + i], to.normals[3 * n + i] = d[D_CHANNELS + NORMAL + i];
        to.opacities[n] = d[D_OPACITY];
        to.depths[n] = d[D_CHANNELS + DEPTH];
    }
};

}  // namespace neus
