// Stands in for oneDNN's C++ header, which the PyPI wheel leaves out. Jittor's matrix product needs this one function
// of oneDNN's C interface (row-major C = alpha op(A) op(B) + beta C; returns 0 on success) and a namespace to open.
// The function is looked up in the loaded library: virtual environments with the library in other folders share the
// compiled operator.
#pragma once
#include <dlfcn.h>
#include <cstdint>
static const auto dnnl_sgemm = reinterpret_cast<int (*)(
    char transa, char transb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda, const float *b,
    int64_t ldb, float beta, float *c, int64_t ldc)>(
    dlsym(dlopen("libdnnl.so.3", RTLD_NOW | RTLD_NOLOAD), "dnnl_sgemm"));
namespace dnnl {}
