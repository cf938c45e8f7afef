// Rasterise Gaussians front to back, as ellipsoids or surfels. The reference is ops/splat_raster.py.
#pragma once
#include "splat_composite.h"

namespace neus {

inline void composite_ellipsoids(const Raster &is, long count, const float *means2d, const float *conics,
                                 const float *colors, const float *opacities, const float *depths, const int *radii,
                                 const float *background, float *picture) {
    composite<EllipsoidForm>(is, {means2d, conics, colors, opacities, depths}, radii, count, background, picture);
}

inline void composite_ellipsoids_backward(const Raster &is, long count, const float *means2d, const float *conics,
                                          const float *colors, const float *opacities, const float *depths, const int *radii,
                                          const float *picture, const float *d_picture, float *d_means2d, float *d_conics,
                                          float *d_colors, float *d_opacities, float *d_depths) {
    composite_backward<EllipsoidForm>(is, {means2d, conics, colors, opacities, depths}, radii, count, picture, d_picture,
                                      {d_means2d, d_conics, d_colors, d_opacities, d_depths});
}

inline void composite_surfels(const Raster &is, long count, const float *means2d, const float *to_picture,
                              const float *normals, const float *colors, const float *opacities, const float *depths,
                              const int *radii, const float *background, float *picture) {
    composite<SurfelForm>(is, {means2d, to_picture, normals, colors, opacities, depths}, radii, count, background, picture);
}

inline void composite_surfels_backward(const Raster &is, long count, const float *means2d, const float *to_picture,
                                       const float *normals, const float *colors, const float *opacities, const float *depths,
                                       const int *radii, const float *picture, const float *d_picture, float *d_means2d,
                                       float *d_to_picture, float *d_normals, float *d_colors, float *d_opacities,
                                       float *d_depths) {
    composite_backward<SurfelForm>(is, {means2d, to_picture, normals, colors, opacities, depths}, radii, count, picture,
                                   d_picture,
                                   {d_means2d, d_to_picture, d_normals, d_colors, d_opacities, d_depths});
}

}  // namespace neus
