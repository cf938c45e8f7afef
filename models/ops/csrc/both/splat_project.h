// Projection of splats, and its gradients. The reference is ops/splat_project.py.
#pragma once
#include "disc.h"
#include "ellipsoid.h"

namespace neus {

inline void project_ellipsoids(const Projection &layout, long count, const float *means, const float *quats,
                               const float *log_sizes, const float *camera_numbers, float *means2d, float *depths,
                               float *conics, int *radii) {
    const Projection is = layout;
    const SplatsIn in{means, quats, log_sizes};
    each_apart(count, SPLATS_AT_ONCE, [=] __device__(long n) {
        project_ellipsoid(is, n, Pinhole(camera_numbers), in, means2d, depths, conics, radii);
    });
}

inline void project_ellipsoids_backward(const Projection &layout, long count, const float *means, const float *quats,
                                        const float *log_sizes, const float *camera_numbers, const int *radii,
                                        const float *d_means2d, const float *d_depths, const float *d_conics,
                                        float *d_means, float *d_quats, float *d_log_sizes) {
    const Projection is = layout;
    const SplatsIn in{means, quats, log_sizes};
    const SplatsBack to{d_means, d_quats, d_log_sizes};
    each_apart(count, SPLATS_AT_ONCE, [=] __device__(long n) {
        project_ellipsoid_backward(is, n, Pinhole(camera_numbers), in, radii, d_means2d, d_depths, d_conics, to);
    });
}

inline void project_surfels(const Projection &layout, long count, const float *means, const float *quats,
                            const float *log_sizes, const float *camera_numbers, float *means2d, float *depths,
                            float *to_picture, float *normals, int *radii) {
    const Projection is = layout;
    const SplatsIn in{means, quats, log_sizes};
    each_apart(count, SPLATS_AT_ONCE, [=] __device__(long n) {
        project_surfel(is, n, Pinhole(camera_numbers), in, means2d, depths, to_picture, normals, radii);
    });
}

inline void project_surfels_backward(const Projection &, long count, const float *means, const float *quats,
                                     const float *log_sizes, const float *camera_numbers, const int *radii,
                                     const float *d_means2d, const float *d_depths, const float *d_to_picture,
                                     const float *d_normals, float *d_means, float *d_quats, float *d_log_sizes) {
    const SplatsIn in{means, quats, log_sizes};
    const SplatsBack to{d_means, d_quats, d_log_sizes};
    each_apart(count, SPLATS_AT_ONCE, [=] __device__(long n) {
        const float sign[3] = {1, 1, -1};
        const Pinhole camera(camera_numbers);
        project_surfel_backward(sign, n, camera, in, radii, d_means2d, d_depths, d_to_picture, d_normals, to);
    });
}

}  // namespace neus
