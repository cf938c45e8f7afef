// Cameras of patches, and grey values of their photographs.
#pragma once
#include "device.h"

namespace neus {

struct PatchCamera {
    const float *projection, *to_rays, *position, *size;
    __device__ explicit PatchCamera(const float *row)
        : projection(row), to_rays(row + 12), position(row + 21), size(row + 24) {}

    // The homogeneous pixel of a point: x, y, depth.
    __device__ void see(const float *place, float *found) const {
        for (int i = 0; i < 3; i++) {
            const float *p = projection + 4 * i;
            found[i] = p[0] * place[0] + p[1] * place[1] + p[2] * place[2] + p[3];
        }
    }
    __device__ bool shows(float x, float y) const { return x >= 0 && y >= 0 && x <= size[0] - 1 && y <= size[1] - 1; }
};

// A grey value and its derivatives along x and y.
struct Grey {
    float value, along_x, along_y;
};

__device__ inline Grey grey_at(int width, int height, const unsigned char *image, float x, float y) {
    const int column = (int)x < width - 2 ? (int)x : width - 2, row = (int)y < height - 2 ? (int)y : height - 2;
    const float right = x - column, low = y - row;
    const unsigned char *at = image + (long)row * width + column;
    const float top = at[1] - at[0], bottom = at[width + 1] - at[width];
    const float above = at[0] + right * top, below = at[width] + right * bottom;
    return {above + low * (below - above), (1 - low) * top + low * bottom, below - above};
}

}  // namespace neus
