// CPU definitions of the CUDA keywords and functions in sources for both devices.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>

using std::isfinite;  // CUDA's is global

#define __device__
#define __forceinline__ inline __attribute__((always_inline))

namespace neus {

// If an argument is NaN, CUDA's functions return the other one. C's do too, but are calls; these return the second.
inline float fminf(float a, float b) { return a < b ? a : b; }
inline float fmaxf(float a, float b) { return a > b ? a : b; }
inline double fmin(double a, double b) { return a < b ? a : b; }
inline double fmax(double a, double b) { return a > b ? a : b; }

template <typename Work>
inline void each(long count, Work work) {
    for (long i = 0; i < count; i++) work(i);
}

// The same on all threads, `at_once` of one thread after the other.
template <typename Work>
inline void each_apart(long count, int at_once, Work work) {
#pragma omp parallel for schedule(dynamic, at_once)
    for (long i = 0; i < count; i++) work(i);
}

template <typename T>
inline void clear(T *values, long count) {
    std::fill(values, values + count, T());
}

}  // namespace neus
