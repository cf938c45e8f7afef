// Sums whose order depends only on their length.
#pragma once

namespace neus {

// first, second [1]: the sums of the two numbers of work(i, number, other number) for i = 0 ... n - 1.
template <typename Work>
inline void sum_pairs(long n, float *first, float *second, Work work) {
    double sums[2] = {};
    for (long i = 0; i < n; i++) {
        float one, other;
        work(i, one, other);
        sums[0] += one;
        sums[1] += other;
    }
    *first = (float)sums[0];
    *second = (float)sums[1];
}

}  // namespace neus
