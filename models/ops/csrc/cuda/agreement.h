// How well photographs agree around vertices, one thread per vertex. The reference is ops/agreement.py.
#pragma once
#include "agreement_vertex.h"

namespace neus {

// scores [N, offsets].
inline void agreement(const Agreement &is, long count, const float *points, const float *normals, const float *steps,
                      const int *patches, const int *views, const float *cameras, const int *sizes,
                      const unsigned char *images, float *scores) {
    const AgreementInputs in{is.offsets, is.others, is.patch, is.noise, is.clipped, is.share, points,
                             normals,    steps,     patches,  views,    cameras,    sizes,    images};
    each(count, [=] __device__(long n) { vertex_scores(in, n, scores + n * in.offsets); });
}

}  // namespace neus
