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

// A point in a photograph.
struct Sight {
    const PatchCamera &camera;
    float x, y, depth;

    __device__ Sight(const PatchCamera &camera_, const float *place) : camera(camera_) {
        float seen[3];
        camera.see(place, seen);
        x = seen[0] / seen[2], y = seen[1] / seen[2], depth = seen[2];
    }
    __device__ bool is_within() const { return depth > 0 && camera.shows(x, y); }
    // The change of the grey value there, if the point moves along a ray.
    __device__ float along(const float *ray, const Grey &grey) const {
        float step[3];
        for (int i = 0; i < 3; i++) {
            const float *p = camera.projection + 4 * i;
            step[i] = p[0] * ray[0] + p[1] * ray[1] + p[2] * ray[2];
        }
        return (grey.along_x * (step[0] - x * step[2]) + grey.along_y * (step[1] - y * step[2])) / depth;
    }
};

// The plane of a patch, and the intersections of the rays of its pixels with it.
struct PatchPlane {
    PatchCamera own;
    float normal[3], centre[3], length = 0, height = 0;  // height: of the point above the camera, along the normal
    int radius;

    __device__ PatchPlane(const PatchCamera &own_, const float *point, const float *normal_, int radius_) : own(own_), radius(radius_) {
        own.see(point, centre);
        for (int i = 0; i < 3; i++) {
            normal[i] = normal_[i];
            height += normal[i] * (point[i] - own.position[i]);
            length += normal[i] * normal[i];
        }
        length = sqrtf(length);
    }
    // Coordinates of pixel m, its ray, and the product of normal and ray.
    struct Pixel {
        float x, y, ray[3], facing;
    };
    __device__ Pixel pixel(int m) const {
        const int side = 2 * radius + 1;
        Pixel at;
        at.x = centre[0] / centre[2] + (m % side - radius);
        at.y = centre[1] / centre[2] + (m / side - radius);
        at.facing = 0;
        for (int i = 0; i < 3; i++) {
            const float *b = own.to_rays + 3 * i;
            at.ray[i] = b[0] * at.x + b[1] * at.y + b[2];
            at.facing += normal[i] * at.ray[i];
        }
        return at;
    }
    // Whether a pixel of the photograph sees the front of the plane, not too obliquely.
    __device__ bool is_seen(const Pixel &at, float grazing) const {
        const float square = at.ray[0] * at.ray[0] + at.ray[1] * at.ray[1] + at.ray[2] * at.ray[2];
        return own.shows(at.x, at.y) && at.facing < -grazing * length * sqrtf(square);
    }
    __device__ void place(const Pixel &at, float *found) const {
        for (int i = 0; i < 3; i++) found[i] = own.position[i] + at.ray[i] * (height / at.facing);
    }
    __device__ Sight sight(const PatchCamera &camera, const Pixel &at) const {
        float found[3];
        place(at, found);
        return Sight(camera, found);
    }
};

}  // namespace neus
