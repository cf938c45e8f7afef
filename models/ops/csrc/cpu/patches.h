// Warp patches of a view to others by the tangent plane, and compute their correlation with its gradient. One patch per
// thread. The reference is ops/patches.py.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>
#include "patch_camera.h"

namespace neus {

constexpr int PATCHES_AT_ONCE = 8;  // per task; patches that cannot be compared take almost no time

// The pixels of a patch on its plane, M; grey values of the reference view have zero mean.
struct Patch {
    std::vector<float> grey, rays, places, facing;
    float power;  // mean square of `grey`, with the noise

    Patch(int pixels) : grey(pixels), rays(3 * pixels), places(3 * pixels), facing(pixels) {}

    // False if it cannot be compared with any view.
    bool lay(const Patches &is, const PatchPlane &plane, const unsigned char *image) {
        if (plane.centre[2] <= 0) return false;
        const int count = grey.size();
        float mean = 0;
        for (int m = 0; m < count; m++) {
            const PatchPlane::Pixel at = plane.pixel(m);
            if (!plane.is_seen(at, is.grazing)) return false;
            std::copy(at.ray, at.ray + 3, &rays[3 * m]);
            plane.place(at, &places[3 * m]);
            facing[m] = at.facing;
            grey[m] = grey_at(is.width, is.height, image, at.x, at.y).value;
            mean += grey[m];
        }
        mean /= count;
        power = is.noise;
        for (float &value : grey) value -= mean, power += value * value / count;
        return true;
    }
};

// The cost of a pair and its derivatives with respect to the depths of the patch's pixels [M]; the worst cost without
// derivatives if it cannot be compared.
inline float pair_cost(const Patches &is, const Patch &patch, const PatchCamera &camera, const unsigned char *image,
                       float *grey, float *along) {
    const int count = patch.grey.size();
    float mean = 0;
    for (int m = 0; m < count; m++) {
        const Sight sight(camera, &patch.places[3 * m]);
        if (!sight.is_within()) return is.worst;
        const Grey at = grey_at(is.width, is.height, image, sight.x, sight.y);
        grey[m] = at.value;
        mean += at.value;
        along[m] = sight.along(&patch.rays[3 * m], at);
    }
    mean /= count;
    float power = is.noise, common = 0;
    for (int m = 0; m < count; m++) {
        grey[m] -= mean;
        power += grey[m] * grey[m] / count;
        common += grey[m] * patch.grey[m] / count;
    }
    const float scale = 1 / std::sqrt(power * patch.power), cost = 1 - common * scale;
    if (!(cost < is.worst)) return is.worst;
    for (int m = 0; m < count; m++)
        along[m] *= -(patch.grey[m] - common / power * grey[m]) * scale / count;
    return cost;
}

// costs [N], their derivatives with respect to points and normals [N, 3].
inline void patch_costs(const Patches &is, long count, const float *points, const float *normals, const int *views,
                        const float *cameras, const unsigned char *images, float *costs, float *by_points,
                        float *by_normals) {
    const int side = 2 * is.radius + 1, pixels = side * side;
    const long picture = (long)is.height * is.width;
#pragma omp parallel
    {
        Patch patch(pixels);
        std::vector<float> grey(pixels), along(pixels * is.others), cost(is.others);
        std::vector<int> rank(is.others);
#pragma omp for schedule(dynamic, PATCHES_AT_ONCE)
        for (long n = 0; n < count; n++) {
            const float *point = points + 3 * n, *normal = normals + 3 * n;
            const int *view = views + (1 + is.others) * n;
            float *by_point = by_points + 3 * n, *by_normal = by_normals + 3 * n;
            std::fill(by_point, by_point + 3, 0.f);
            std::fill(by_normal, by_normal + 3, 0.f);
            costs[n] = 0;
            if (view[0] < 0) continue;
            costs[n] = is.worst;
            const PatchPlane plane(PatchCamera(cameras + (long)CAMERA * view[0]), point, normal, is.radius);
            if (!patch.lay(is, plane, images + picture * view[0])) continue;
            for (int k = 0; k < is.others; k++) {
                rank[k] = k;
                cost[k] = is.worst;
                if (view[1 + k] < 0) continue;
                const PatchCamera camera(cameras + (long)CAMERA * view[1 + k]);
                float towards = 0;
                for (int i = 0; i < 3; i++) towards += normal[i] * (camera.position[i] - point[i]);
                if (towards > 0)
                    cost[k] = pair_cost(is, patch, camera, images + picture * view[1 + k], grey.data(),
                                        &along[(long)k * pixels]);
            }
            std::stable_sort(rank.begin(), rank.end(), [&](int a, int b) { return cost[a] < cost[b]; });
            float sum = 0;
            for (int b = 0; b < is.best; b++) {
                sum += cost[rank[b]];
                if (cost[rank[b]] >= is.worst) continue;
                for (int m = 0; m < pixels; m++) {
                    const float share = along[(long)rank[b] * pixels + m] / (is.best * patch.facing[m]);
                    for (int i = 0; i < 3; i++) {
                        by_point[i] += share * normal[i];
                        by_normal[i] += share * (point[i] - patch.places[3 * m + i]);
                    }
                }
            }
            costs[n] = sum / is.best;
        }
    }
}

}  // namespace neus
