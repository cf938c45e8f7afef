// A level of a grid. The reference is ops/grid.py.
#pragma once
#include <cstdint>

namespace neus {

constexpr int CORNERS = 8;
constexpr uint32_t HASH_Y = 2654435761u, HASH_Z = 805459861u;  // arXiv 2201.05989, eq. 4; the factor of x is 1

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
