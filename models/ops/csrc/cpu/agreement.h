// How well photographs agree around vertices, a vertex at a time. The reference is ops/agreement.py.
#pragma once
#include "agreement_vertex.h"

namespace neus {

constexpr int VERTICES_AT_ONCE = 256;  // of a thread

// scores [N, offsets].
inline void agreement(const Agreement &is, long count, const float *points, const float *normals, const float *steps,
                      const int *patches, const int *views, const float *cameras, const int *sizes,
                      const unsigned char *images, float *scores) {
    const AgreementInputs in{is.offsets, is.others, is.patch, is.noise, is.clipped, is.share, points,
                             normals,    steps,     patches,  views,    cameras,    sizes,    images};
#pragma omp parallel for schedule(dynamic, VERTICES_AT_ONCE)
    for (long n = 0; n < count; n++) vertex_scores(in, n, scores + n * is.offsets);
}

}  // namespace neus
