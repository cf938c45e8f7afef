// Small dense matrix products for one thread: C (+)= A B, in tiles of ROWS x (2 vectors) held in registers.
//
// B is packed into panels of PANEL columns, so that one panel stays in the first-level cache while all rows of A pass
// by. A is read through two strides, so that it may be a transposed view. Widths are padded to multiples of PAD with
// zeros, row counts are multiples of ROWS: there are no edges to handle but a last panel of half the width.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace neus {

#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 8;
#elif defined(__AVX__)
constexpr int LANES = 8, ROWS = 4;
#else
constexpr int LANES = 4, ROWS = 4;
#endif
constexpr int PAD = 16;
constexpr int PANEL = 2 * LANES > PAD ? 2 * LANES : PAD;

typedef float Vec __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

inline int padded(int width) { return (width + PAD - 1) / PAD * PAD; }

// Row stride of an activation block: off the powers of two, whose rows would all fall into the same few cache sets.
inline int stride_of(int width) { return padded(width) + PAD; }

// One tile: rows x (vectors * LANES) of C. A(i, k) = a[i * row + k * column]; B's k-th row at b + k * ldb.
template <int VECTORS>
inline void tile(int depth, const float *a, long row, long column, const float *b, long ldb, float *c, long ldc,
                 bool accumulate) {
    Vec sum[ROWS][VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++)
            sum[i][v] = accumulate ? *(const Vec *)(c + i * ldc + v * LANES) : Vec{};
    for (int k = 0; k < depth; k++) {
        Vec right[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) right[v] = *(const Vec *)(b + k * ldb + v * LANES);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++) {
            const float left = a[i * row + k * column];
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) sum[i][v] += left * right[v];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) *(Vec *)(c + i * ldc + v * LANES) = sum[i][v];
}

// C [rows, width] (+)= A [rows, depth] B [depth, width]; `width` padded, panel p of B at b + p * panel_step.
inline void product(int rows, int width, int depth, const float *a, long row, long column, const float *b, long ldb,
                    long panel_step, float *c, long ldc, bool accumulate) {
    for (int n = 0; n < width; n += 2 * LANES) {
        const float *panel = b + n / (2 * LANES) * panel_step;
        for (int i = 0; i < rows; i += ROWS) {
            if (width - n >= 2 * LANES)
                tile<2>(depth, a + i * row, row, column, panel, ldb, c + i * ldc + n, ldc, accumulate);
            else
                tile<1>(depth, a + i * row, row, column, panel, ldb, c + i * ldc + n, ldc, accumulate);
        }
    }
}

// A matrix [depth, width] in panels of 2 * LANES columns, zero-padded to `padded(width)`.
struct Panels {
    int depth = 0, width = 0;
    std::vector<float> values;

    // source(k, n) = from[k * row + n * column].
    void pack(const float *from, int depth_, int width_, long row, long column) {
        depth = depth_;
        width = width_;
        const int step = 2 * LANES, count = (padded(width) + step - 1) / step;
        values.assign((size_t)count * step * depth, 0.f);
        for (int n = 0; n < width; n++)
            for (int k = 0; k < depth; k++)
                values[((size_t)(n / step) * depth + k) * step + n % step] = from[k * row + n * column];
    }

    // out [rows, padded(width)] = in [rows, depth] * this.
    void multiply(int rows, const float *in, long ld_in, float *out, long ld_out) const {
        product(rows, padded(width), depth, in, ld_in, 1, values.data(), 2 * LANES, (long)depth * 2 * LANES, out,
                ld_out, false);
    }
};

// gradient [padded(outputs), stride_of(inputs)] += cotangent^T input, over the rows of a block.
inline void add_outer(int rows, int outputs, int inputs, const float *cotangent, const float *input, float *gradient) {
    product(padded(outputs), padded(inputs), rows, cotangent, 1, stride_of(outputs), input, stride_of(inputs),
            2 * LANES, gradient, stride_of(inputs), true);
}

}  // namespace neus
