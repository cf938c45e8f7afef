// Work on rows whose number only the GPU knows: launched for the most rows that there may be; threads and blocks
// beyond the number return at once.
#pragma once
#include "device.h"

namespace neus {

// Rows `begin` to `begin + most` of those whose number is *count.
struct SomeRows {
    long most;
    const int *count;
    long begin;
};

inline long most_of(const SomeRows &rows) { return rows.most; }

inline SomeRows part_of(const SomeRows &rows, long begin, long most) {
    return {rows.most - begin < most ? rows.most - begin : most, rows.count, rows.begin + begin};
}

// The number of rows, on the GPU.
__device__ inline long number_of(const SomeRows &rows) {
    const long left = *rows.count - rows.begin;
    return left < 0 ? 0 : left < rows.most ? left : rows.most;
}

}  // namespace neus
