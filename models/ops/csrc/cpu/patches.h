// Warp patches of a view to others by the tangent plane, and compute their correlation with its gradient. One patch per
// thread. The reference is ops/patches.py.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>
#include "patch_camera.h"

namespace neus {

constexpr int PATCHES_AT_ONCE = 8;  // per task; patches that cannot be compared take almost no time

// A patch on its plane: M pixels; those of the reference view have zero mean.
struct PatchPlane {
    std::vector<float> grey, rays, places, facing;
    float power;  // mean square of `grey`, with the noise

    PatchPlane(int pixels) : grey(pixels), rays(3 * pixels), places(3 * pixels), facing(pixels) {}

    // False if it cannot be compared with any view.
    bool lay(const Patches &is, const PatchCamera &own, const unsigned char *image, const float *point,
             const float *normal) {
        float centre[3], mean = 0;
        own.see(point, centre);
        if (centre[2] <= 0) return false;
        const float length = std::sqrt(normal[0] * normal[0] + normal[1] * normal[1] + normal[2] * normal[2]);
        float height = 0;
        for (int i = 0; i < 3; i++) height += normal[i] * (point[i] - own.position[i]);
        for (int dy = -is.radius, m = 0; dy <= is.radius; dy++)
            for (int dx = -is.radius; dx <= is.radius; dx++, m++) {
                const float x = centre[0] / centre[2] + dx, y = centre[1] / centre[2] + dy;
                if (!own.shows(x, y)) return false;
                float *ray = &rays[3 * m], square = 0;
                facing[m] = 0;
                for (int i = 0; i < 3; i++) {
                    const float *b = own.to_rays + 3 * i;
                    ray[i] = b[0] * x + b[1] * y + b[2];
                    facing[m] += normal[i] * ray[i];
                    square += ray[i] * ray[i];
                }
                if (!(facing[m] < -is.grazing * length * std::sqrt(square))) return false;
                for (int i = 0; i < 3; i++) places[3 * m + i] = own.position[i] + ray[i] * (height / facing[m]);
                grey[m] = grey_at(is.width, is.height, image, x, y).value;
                mean += grey[m];
            }
        const int count = grey.size();
        mean /= count;
        power = is.noise;
        for (float &value : grey) value -= mean, power += value * value / count;
        return true;
    }
};

// The cost of a pair and its derivatives with respect to the depths of the patch's pixels [M]; the worst cost without
// derivatives if it cannot be compared.
inline float pair_cost(const Patches &is, const PatchPlane &patch, const PatchCamera &camera, const unsigned char *image,
                       float *grey, float *along) {
    const int count = patch.grey.size();
    float mean = 0, seen[3], step[3];
    for (int m = 0; m < count; m++) {
        camera.see(&patch.places[3 * m], seen);
        if (seen[2] <= 0) return is.worst;
        const float x = seen[0] / seen[2], y = seen[1] / seen[2], *ray = &patch.rays[3 * m];
        if (!camera.shows(x, y)) return is.worst;
        const Grey at = grey_at(is.width, is.height, image, x, y);
        grey[m] = at.value;
        mean += at.value;
        for (int i = 0; i < 3; i++) {
            const float *p = camera.projection + 4 * i;
            step[i] = p[0] * ray[0] + p[1] * ray[1] + p[2] * ray[2];
        }
        along[m] = (at.along_x * (step[0] - x * step[2]) + at.along_y * (step[1] - y * step[2])) / seen[2];
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
        PatchPlane patch(pixels);
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
            if (!patch.lay(is, PatchCamera(cameras + (long)CAMERA * view[0]), images + picture * view[0], point, normal))
                continue;
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
