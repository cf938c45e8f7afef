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
constexpr int PANEL = 2 * LANES > PAD ? 2 * LANES : PAD;
// Length of partial sums: rounding errors grow with the length of a sum, and sample depths change by 1e-4 where
// distances change by 1e-6.
constexpr int RUN = 64;

// A vector in registers or variables, and one anywhere in memory: GCC 15 takes elements of local arrays of the latter for
// aligned where a template gives their number.
typedef float Vec __attribute__((vector_size(LANES * sizeof(float))));
typedef float Unaligned __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

// The sum of a vector's numbers, of which the halves are added first.
template <int COUNT>
struct Sum {
    typedef float Part __attribute__((vector_size(COUNT * sizeof(float)), aligned(4)));
    static float of(const float *values) {
        const Part both = *(const Part *)values + *(const Part *)(values + COUNT);
        return Sum<COUNT / 2>::of((const float *)&both);
    }
};
template <>
struct Sum<1> {
    static float of(const float *values) { return values[0] + values[1]; }
};
inline float sum_of(Vec values) { return Sum<LANES / 2>::of((const float *)&values); }

inline int padded(int width) { return (width + PAD - 1) / PAD * PAD; }

// Row stride of an activation block: not a power of two, so that rows do not map to the same few cache sets.
inline int stride_of(int width) { return padded(width) + PAD; }

// The initial value and the final function of the sums of a product, for a vector of row i and the columns from n on.
// In registers both are nearly free; a separate pass costs a tenth of a narrow layer.
struct FromZero {
    Vec operator()(int, int) const { return Vec{}; }
};
struct FromRow {
    const float *row;  // the same for all rows: a bias
    Vec operator()(int, int n) const { return *(const Unaligned *)(row + n); }
};
struct FromThere {
    const float *c;  // what the product is added to
    long ldc;
    Vec operator()(int i, int n) const { return *(const Unaligned *)(c + i * ldc + n); }
};
struct AsItIs {
    Vec operator()(Vec sum, int, int) const { return sum; }
};
struct Positive {
    Vec operator()(Vec sum, int, int) const { return sum < 0.f ? Vec{} : sum; }  // NaN stays NaN
};

// total += A [ROWS, depth] B [depth, VECTORS * LANES], for a depth of at most RUN. A(i, k) = a[i * row + k * column];
// B's k-th row at b + k * ldb. Not inlined: otherwise `total` takes registers from the sums.
template <int VECTORS>
__attribute__((noinline)) void add_run(int depth, const float *a, long row, long column, const float *b, long ldb,
                                       Vec (&total)[ROWS][VECTORS]) {
    Vec sum[ROWS][VECTORS] = {};
    for (int k = 0; k < depth; k++) {
        Vec right[VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; v++) right[v] = *(const Unaligned *)(b + k * ldb + v * LANES);
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
        for (int v = 0; v < VECTORS; v++) total[i][v] += sum[i][v];
}

// One tile: ROWS x (VECTORS * LANES) of C, from row i0 and column n0; a and c are at i0 already. C is written once:
// reading back uncached rows would cost a tenth of the product.
template <int VECTORS, typename Start, typename Finish>
inline void tile(int i0, int n0, int depth, const float *a, long row, long column, const float *b, long ldb, float *c,
                 long ldc, const Start &start, const Finish &finish) {
    Vec total[ROWS][VECTORS];
    for (int i = 0; i < ROWS; i++)
        for (int v = 0; v < VECTORS; v++) total[i][v] = start(i0 + i, n0 + v * LANES);
    for (int k = 0; k < depth; k += RUN)
        add_run<VECTORS>(std::min(RUN, depth - k), a + k * column, row, column, b + k * ldb, ldb, total);
    for (int i = 0; i < ROWS; i++)
        for (int v = 0; v < VECTORS; v++)
            *(Unaligned *)(c + i * ldc + v * LANES) = finish(total[i][v], i0 + i, n0 + v * LANES);
}

// C [rows, width] = finish(start + A [rows, depth] B [depth, width]); `width` padded, panel p of B at b + p *
// panel_step.
template <typename Start, typename Finish>
inline void product(int rows, int width, int depth, const float *a, long row, long column, const float *b, long ldb,
                    long panel_step, float *c, long ldc, const Start &start, const Finish &finish) {
    for (int n = 0; n < width; n += 2 * LANES) {
        const float *panel = b + n / (2 * LANES) * panel_step;
        for (int i = 0; i < rows; i += ROWS) {
            float *to = c + i * ldc + n;
            if (width - n >= 2 * LANES)
                tile<2>(i, n, depth, a + i * row, row, column, panel, ldb, to, ldc, start, finish);
            else
                tile<1>(i, n, depth, a + i * row, row, column, panel, ldb, to, ldc, start, finish);
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

    // out [rows, padded(width)] = finish(start + in [rows, depth] * this).
    template <typename Start = FromZero, typename Finish = AsItIs>
    void multiply(int rows, const float *in, long ld_in, float *out, long ld_out, const Start &start = {},
                  const Finish &finish = {}) const {
        product(rows, padded(width), depth, in, ld_in, 1, values.data(), 2 * LANES, (long)depth * 2 * LANES, out,
                ld_out, start, finish);
    }
};

// gradient [padded(outputs), stride_of(inputs)] += cotangent^T input, over the rows of a block.
inline void add_outer(int rows, int outputs, int inputs, const float *cotangent, const float *input, float *gradient) {
    const long stride = stride_of(inputs);
    product(padded(outputs), padded(inputs), rows, cotangent, 1, stride_of(outputs), input, stride, 2 * LANES, gradient,
            stride, FromThere{gradient, stride}, AsItIs{});
}

}  // namespace neus
