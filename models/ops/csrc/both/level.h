// A level of a grid. The reference is ops/grid.py.
#pragma once
#include <cstdint>

#include "device.h"

namespace neus {

constexpr int CORNERS = 8;
constexpr uint32_t HASH_Y = 2654435761u, HASH_Z = 805459861u;  // arXiv 2201.05989, eq. 4; the factor of x is 1

constexpr float STEEPEST = 1.5f;  // derivative of `smooth` in the middle of a cell

// A weight that rises from 0 to 1 as its derivative does from 0 and back: no crease between cells.
__device__ inline void smooth(float &share, float &scale) {
    scale *= 6.f * share * (1.f - share);
    share *= share * (3.f - 2.f * share);
}

struct Level {
    int resolution;
    uint32_t mask;  // of the rows, where they are hashed
    bool dense, smooth;
    long start, size;  // of its part of the table, in numbers

    Level() = default;
    Level(const GridSizes &sizes, int l, long begin)
        : resolution(sizes.resolutions[l]), mask(sizes.entries[l] - 1), start(begin), size((long)sizes.entries[l] * FEATURES) {
        const long corners = resolution + 1;
        dense = corners * corners * corners == sizes.entries[l];
        smooth = l < sizes.smooth;
    }
};

}  // namespace neus
