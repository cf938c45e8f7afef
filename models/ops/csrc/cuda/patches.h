// Warp patches of a view to others by the tangent plane, and compute their correlation with its gradient. One thread
// per patch, then one per pair of patch and view, then one per patch. The reference is ops/patches.py.
#pragma once
#include "patch_camera.h"

namespace neus {

// Inputs of a call, read by all threads.
struct PatchInputs {
    int height, width, others, radius, best;
    float worst, noise, grazing;
    const float *points, *normals;
    const int *views;
    const float *cameras;
    const unsigned char *images;

    __device__ bool is_compared(long n) const { return views[(1 + others) * n] >= 0; }
    __device__ int side() const { return 2 * radius + 1; }
    __device__ PatchCamera camera(int view) const { return PatchCamera(cameras + (long)CAMERA * view); }
    __device__ const unsigned char *image(int view) const { return images + (long)height * width * view; }
    __device__ PatchPlane plane(long n) const {
        return PatchPlane(camera(views[(1 + others) * n]), points + 3 * n, normals + 3 * n, radius);
    }
};

// The grey values of patches in the reference view, minus their mean: grey [M, N]. power [N]: their mean square, with
// the noise; 0 if the patch cannot be compared with any view.
inline void lay_patches(const PatchInputs &in, long count, float *grey, float *power) {
    each(count, [=] __device__(long n) {
        power[n] = 0;
        if (!in.is_compared(n)) return;
        const PatchPlane plane = in.plane(n);
        const int pixels = in.side() * in.side();
        if (!(plane.centre[2] > 0)) return;
        const unsigned char *image = in.image(in.views[(1 + in.others) * n]);
        float mean = 0;
        for (int m = 0; m < pixels; m++) {
            const PatchPlane::Pixel at = plane.pixel(m);
            if (!plane.is_seen(at, in.grazing)) return;
            const float value = grey_at(in.width, in.height, image, at.x, at.y).value;
            grey[m * count + n] = value;
            mean += value;
        }
        mean /= pixels;
        float squares = in.noise;
        for (int m = 0; m < pixels; m++) {
            const float value = grey[m * count + n] -= mean;
            squares += value * value / pixels;
        }
        power[n] = squares;
    });
}

// costs [K, N] of the pairs, and along [K, M, N], their derivatives with respect to the depths of the patches' pixels;
// the worst cost without derivatives if a pair cannot be compared.
inline void pair_costs(const PatchInputs &in, long count, const float *grey, const float *power, float *costs,
                       float *along) {
    each(count * in.others, [=] __device__(long i) {
        const long n = i % count;
        const int k = (int)(i / count), view = in.views[(1 + in.others) * n + 1 + k];
        costs[i] = in.worst;
        if (power[n] == 0 || view < 0) return;
        const PatchPlane plane = in.plane(n);
        const PatchCamera camera = in.camera(view);
        const unsigned char *image = in.image(view);
        const int pixels = in.side() * in.side();
        float towards = 0, mean = 0;
        for (int j = 0; j < 3; j++) towards += plane.normal[j] * (camera.position[j] - in.points[3 * n + j]);
        if (!(towards > 0)) return;
        for (int m = 0; m < pixels; m++) {
            const Sight sight = plane.sight(camera, plane.pixel(m));
            if (!sight.is_within()) return;
            mean += grey_at(in.width, in.height, image, sight.x, sight.y).value;
        }
        mean /= pixels;
        float squares = in.noise, common = 0;
        for (int m = 0; m < pixels; m++) {
            const Sight sight = plane.sight(camera, plane.pixel(m));
            const float value = grey_at(in.width, in.height, image, sight.x, sight.y).value - mean;
            squares += value * value / pixels;
            common += value * grey[m * count + n] / pixels;
        }
        const float scale = 1 / sqrtf(squares * power[n]), cost = 1 - common * scale;
        if (!(cost < in.worst)) return;
        costs[i] = cost;
        for (int m = 0; m < pixels; m++) {
            const PatchPlane::Pixel at = plane.pixel(m);
            const Sight sight = plane.sight(camera, at);
            const Grey seen = grey_at(in.width, in.height, image, sight.x, sight.y);
            const float pull = grey[m * count + n] - common / squares * (seen.value - mean);
            along[((long)k * pixels + m) * count + n] = -sight.along(at.ray, seen) * pull * scale / pixels;
        }
    });
}

// costs [N], their derivatives with respect to points and normals [N, 3].
inline void patch_costs(const Patches &is, long count, const float *points, const float *normals, const int *views,
                        const float *cameras, const unsigned char *images, float *costs, float *by_points,
                        float *by_normals) {
    const PatchInputs in{is.height, is.width,   is.others, is.radius, is.best, is.worst, is.noise,
                         is.grazing, points, normals,   views,     cameras, images};
    const long pixels = (long)(2 * is.radius + 1) * (2 * is.radius + 1);
    Scratch<float> grey_scratch(count * pixels), power_scratch(count), pair_scratch(count * is.others);
    Scratch<float> along_scratch(count * is.others * pixels);
    float *grey = grey_scratch.values, *power = power_scratch.values, *pairs = pair_scratch.values;
    float *along = along_scratch.values;
    lay_patches(in, count, grey, power);
    pair_costs(in, count, grey, power, pairs, along);
    each(count, [=] __device__(long n) {
        if (!in.is_compared(n)) {
            costs[n] = 0;
            for (int i = 0; i < 3; i++) by_points[3 * n + i] = by_normals[3 * n + i] = 0;
            return;
        }
        float sum = 0, by_point[3] = {}, by_normal[3] = {};
        const PatchPlane plane = in.plane(n);
        float last = 0;  // cost of the previous pair; the next is the smallest larger one, in order for ties
        for (int b = 0, last_k = -1; b < in.best; b++) {
            int next = -1;
            for (int k = 0; k < in.others; k++) {
                const float cost = pairs[k * count + n];
                const bool is_behind = last_k < 0 || cost > last || (cost == last && k > last_k);
                if (is_behind && (next < 0 || cost < pairs[next * count + n])) next = k;
            }
            last = pairs[next * count + n];
            last_k = next;
            sum += last;
            if (!(last < in.worst)) continue;
            for (int m = 0; m < pixels; m++) {
                float place[3];
                const PatchPlane::Pixel at = plane.pixel(m);
                plane.place(at, place);
                const float share = along[(next * pixels + m) * count + n] / (in.best * at.facing);
                for (int i = 0; i < 3; i++) {
                    by_point[i] += share * plane.normal[i];
                    by_normal[i] += share * (in.points[3 * n + i] - place[i]);
                }
            }
        }
        costs[n] = sum / in.best;
        for (int i = 0; i < 3; i++) {
            by_points[3 * n + i] = by_point[i];
            by_normals[3 * n + i] = by_normal[i];
        }
    });
}

}  // namespace neus
