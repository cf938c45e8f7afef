// Stands in for oneDNN's C++ header, which the PyPI wheel leaves out. Jittor's matrix product needs this one function
// of oneDNN's C interface (row-major C = alpha op(A) op(B) + beta C; returns 0 on success) and a namespace to open.
#pragma once
#include <cstdint>
extern "C" int dnnl_sgemm(char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
                          int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
namespace dnnl {}
