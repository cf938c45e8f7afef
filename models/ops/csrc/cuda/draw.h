// Random pixels of photographs with their rays, one thread per ray. The reference is ops/draw.py.
#pragma once
#include "device.h"
#include "philox.h"

namespace neus {

constexpr int WINDOW = 6, CAMERA = 12;

// The first view up to which more than this share of all windows lies.
__device__ inline int view_at(const double *shares, int views, double place) {
    int first = 0;
    for (int last = views - 1; first < last;) {
        const int middle = (first + last) / 2;
        if (shares[middle] > place)
            last = middle;
        else
            first = middle + 1;
    }
    return first;
}

inline void draw_pixels(const Draw &layout, long views, const int *windows, const double *shares, const double *cameras,
                        const uint8_t *images, const uint8_t *masks, float *origins, float *directions, float *near,
                        float *far, float *jitter, float *rgb, int *view, float *mask) {
    const Draw is = layout;
    each(is.rays, [=] __device__(long r) {
        uint32_t words[4];
        philox((uint32_t)r, (uint32_t)is.first_key, (uint32_t)is.second_key, words);
        const double place = is.turn + ((double)r + words[0] / 4294967296.0) / is.rays;
        const int v = view_at(shares, (int)views, place >= 1.0 ? place - 1.0 : place);
        const int *window = windows + (long)v * WINDOW;
        const int x = window[2] + (int)((uint64_t)words[1] * (uint32_t)window[4] >> 32);
        const int y = window[3] + (int)((uint64_t)words[2] * (uint32_t)window[5] >> 32);
        const double *camera = cameras + (long)v * CAMERA, *centre = camera + 9;
        double direction[3], squares = 0.0, along = 0.0;
        for (int axis = 0; axis < 3; axis++) {
            direction[axis] = camera[3 * axis] * x + camera[3 * axis + 1] * y + camera[3 * axis + 2];
            squares += direction[axis] * direction[axis];
        }
        const double length = sqrt(squares);
        for (int axis = 0; axis < 3; axis++) {
            direction[axis] /= length;
            along -= direction[axis] * centre[axis];
            origins[r * 3 + axis] = (float)centre[axis];
            directions[r * 3 + axis] = (float)direction[axis];
        }
        near[r] = (float)(along - SPAN_HALF_LENGTH);
        far[r] = (float)(along + SPAN_HALF_LENGTH);
        jitter[r] = (float)(words[3] >> (32 - BITS)) * (1.f / (1 << BITS));
        const long pixel = (long)window[0] + (long)y * window[1] + x;
        for (int c = 0; c < 3; c++) rgb[r * 3 + c] = __fdiv_rn((float)images[pixel * 3 + c], 255.f);
        if (is.masked) mask[r] = __fdiv_rn((float)masks[pixel], 255.f);
        view[r] = v;
    });
}

}  // namespace neus
