// The middles of the sections of rays. The reference is ops/ray_sections.py.
#pragma once
#include "device.h"

namespace neus {

// Of sections that begin at starts [rays, N]: lengths and depths of the middles [rays, N], points and views
// [rays * N, 3], and whether a middle lies in either sphere [rays, N].
inline void ray_sections(const SectionSizes &layout, long rays, const float *origins, const float *directions,
                         const float *starts, float *lengths, float *midpoints, float *points, float *views,
                         float *inside, float *near) {
    const SectionSizes is = layout;
    each_place(rays, is.sections, [=] __device__(int r, int i, long at) {
        const float length = i + 1 < is.sections ? starts[at + 1] - starts[at] : is.last;
        const float middle = starts[at] + __fmul_rn(length, 0.5f);
        double square = 0;
        for (int j = 0; j < 3; j++) {
            const float direction = directions[3 * r + j], x = origins[3 * r + j] + __fmul_rn(direction, middle);
            points[3 * at + j] = x;
            views[3 * at + j] = direction;
            square += (double)x * x;
        }
        const float radius = (float)sqrt(square);
        lengths[at] = length;
        midpoints[at] = middle;
        inside[at] = radius < is.sphere_radius ? 1.f : 0.f;
        near[at] = radius < is.eikonal_radius ? 1.f : 0.f;
    });
}

}  // namespace neus
