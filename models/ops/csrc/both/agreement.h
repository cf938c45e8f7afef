// How well photographs agree around a vertex that is moved along its normal. The reference is ops/agreement.py.
#pragma once
#include "device.h"

namespace neus {

constexpr int VERTICES_AT_ONCE = 256;  // of a thread

struct AgreementInputs {
    int offsets, others, patch;
    float noise, clipped, share;
    const float *points, *normals, *steps;
    const int *patches, *views;
    const float *cameras;
    const int *sizes;
    const unsigned char *images;
};

// The normalised grey values of the patch of a vertex in each of its views, at one offset after the other.
struct VertexPatches {
    float at[MOST_VIEWS][3][MOST_PATCH], along[MOST_VIEWS][3];  // homogeneous pixels, and their change along the normal
    float grey[MOST_VIEWS][MOST_PATCH], clipped[MOST_VIEWS];  // and the most clipped ones of each view
    float root[MOST_PATCH], weight;  // of what each vertex weighs; of all
    int view[MOST_VIEWS], views, count;

    __device__ VertexPatches(const AgreementInputs &in, long n) {
        const int *patch = in.patches + n * in.patch, *row = in.views + n * in.others;
        const float *normal = in.normals + 3 * n;
        views = count = 0;
        while (count < in.patch && patch[count] >= 0) count++;
        weigh(in.points, patch);
        for (int k = 0; k < in.others; k++) {
            if (row[k] < 0) continue;
            for (int i = 0; i < 3; i++) {
                const float *p = in.cameras + 12L * row[k] + 4 * i;
                along[views][i] = p[0] * normal[0] + p[1] * normal[1] + p[2] * normal[2];
                for (int m = 0; m < count; m++) {
                    const float *place = in.points + 3L * patch[m];
                    at[views][i][m] = p[0] * place[0] + p[1] * place[1] + p[2] * place[2] + p[3];
                }
            }
            clipped[views] = 0;
            view[views++] = row[k];
        }
    }

    __device__ void weigh(const float *points, const int *patch) {
        float mean = 0;
        for (int m = 0; m < count; m++) {
            root[m] = 0;
            for (int i = 0; i < 3; i++) {
                const float away = points[3L * patch[m] + i] - points[3L * patch[0] + i];
                root[m] += away * away;
            }
            mean += root[m] / count;
        }
        weight = 0;
        for (int m = 0; m < count; m++) {
            root[m] = expf(-0.5f * root[m] / fmaxf(mean, TINY));
            weight += root[m] * root[m];
        }
    }

    // Sample view k with the patch moved by `offset` along the normal; false if a pixel is outside the photograph.
    __device__ bool look(const AgreementInputs &in, int k, float offset) {
        const int *size = in.sizes + 3L * view[k];
        const int width = size[0], height = size[1];
        const unsigned char *image = in.images + size[2];
        float *values = grey[k], x[MOST_PATCH], y[MOST_PATCH], mean = 0, square = 0, bright = 0;
        bool outside = false;
        for (int m = 0; m < count; m++) {
            const float depth = at[k][2][m] + offset * along[k][2], scale = 1 / depth;
            x[m] = (at[k][0][m] + offset * along[k][0]) * scale;
            y[m] = (at[k][1][m] + offset * along[k][1]) * scale;
            outside |= !(depth > 0) | !(x[m] >= 0) | !(y[m] >= 0) | !(x[m] <= width - 1) | !(y[m] <= height - 1);
        }
        if (outside) return false;
        for (int m = 0; m < count; m++) {
            const int column = x[m] < width - 2 ? (int)x[m] : width - 2;
            const int line = y[m] < height - 2 ? (int)y[m] : height - 2;
            const float right = x[m] - column, low = y[m] - line;
            const unsigned char *corner = image + (long)line * width + column;
            const float above = corner[0] + right * (corner[1] - corner[0]);
            const float below = corner[width] + right * (corner[width + 1] - corner[width]);
            values[m] = above + low * (below - above);
            bright += values[m] > in.clipped;
            mean += root[m] * root[m] * values[m];
        }
        clipped[k] = fmaxf(clipped[k], bright);
        mean /= weight;
        for (int m = 0; m < count; m++) {
            values[m] = root[m] * (values[m] - mean);
            square += values[m] * values[m];
        }
        const float scale = 1 / sqrtf(square + in.noise * weight);
        for (int m = 0; m < count; m++) values[m] *= scale;
        return true;
    }
};

// scores [offsets] of vertex n.
__device__ inline void vertex_scores(const AgreementInputs &in, long n, float *scores) {
    VertexPatches patches(in, n);
    const int views = patches.views;
    float pairs[MOST_OFFSETS][MOST_VIEWS][MOST_VIEWS], best[MOST_VIEWS];
    bool shows[MOST_VIEWS], is_compared[MOST_VIEWS] = {};
    int shown = 0;
    for (int k = 0; k < views; k++) shows[k] = patches.count > 2;
    for (int o = 0; o < in.offsets; o++) {
        for (int k = 0; k < views; k++)
            shows[k] = shows[k] && patches.look(in, k, (o - in.offsets / 2) * in.steps[n]);
        for (int k = 0; k < views; k++)
            for (int l = 0; l < k; l++) {
                float sum = 0;
                for (int m = 0; m < patches.count && shows[k] && shows[l]; m++) sum += patches.grey[k][m] * patches.grey[l][m];
                pairs[o][k][l] = pairs[o][l][k] = sum;
            }
    }
    bool is_clear = true;
    for (int k = 0; k < views; k++) {
        shown += shows[k];
        is_clear = is_clear && !(shows[k] && patches.clipped[k] > in.share * patches.count);
    }
    for (int o = 0; o < in.offsets; o++) scores[o] = -1;
    if (shown < 2 || 3 * shown < 2 * views || !is_clear) return;
    for (int k = 0; k < views; k++) {
        best[k] = -2;
        for (int o = 0; o < in.offsets && shows[k]; o++) {
            float sum = 0;
            for (int l = 0; l < views; l++)
                if (l != k && shows[l]) sum += pairs[o][k][l];
            best[k] = fmaxf(best[k], sum / (shown - 1));
        }
    }
    const int compared = shown < 3 ? 2 : (2 * shown + 2) / 3;
    for (int c = 0; c < compared; c++) {
        int next = -1;
        for (int k = 0; k < views; k++)
            if (shows[k] && !is_compared[k] && (next < 0 || best[k] > best[next])) next = k;
        is_compared[next] = true;
    }
    for (int o = 0; o < in.offsets; o++) {
        float sum = 0;
        for (int k = 0; k < views; k++)
            for (int l = 0; l < k; l++)
                if (is_compared[k] && is_compared[l]) sum += pairs[o][k][l];
        scores[o] = 2 * sum / (compared * (compared - 1));
    }
}

// scores [N, offsets].
inline void agreement(const Agreement &is, long count, const float *points, const float *normals, const float *steps,
                      const int *patches, const int *views, const float *cameras, const int *sizes,
                      const unsigned char *images, float *scores) {
    const AgreementInputs in{is.offsets, is.others, is.patch, is.noise, is.clipped, is.share, points,
                             normals,    steps,     patches,  views,    cameras,    sizes,    images};
    each_apart(count, VERTICES_AT_ONCE, [=] __device__(long n) { vertex_scores(in, n, scores + n * in.offsets); });
}

}  // namespace neus
