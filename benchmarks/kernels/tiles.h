// Entry points of the networks in tiles for benchmarks/gpu_tiles.py: without Jittor and cuBLAS, on arrays of the host,
// with the GPU's time of each kernel. With nvcc, or with g++ and tests/cuda_emulation.h, where times are meaningless.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

// Around each launch: the time of each kernel alone, for which the host waits.
namespace profile {

struct Sum {
    long launches;
    double milliseconds;
};
static std::map<std::string, Sum> sums;
static bool is_on = false;

#ifdef __CUDACC__
// Milliseconds of the GPU for work.
template <typename Work>
static double milliseconds(Work work) {
    static cudaEvent_t begin = nullptr, end = nullptr;
    if (!begin) cudaEventCreate(&begin), cudaEventCreate(&end);
    float found = 0.f;
    cudaEventRecord(begin);
    work();
    cudaEventRecord(end);
    const cudaError_t status = cudaEventSynchronize(end);
    if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
    cudaEventElapsedTime(&found, begin, end);
    return found;
}
template <typename Launch>
static void around(const void *kernel, dim3 blocks, int threads, Launch launch) {
    if (!is_on) return launch();
    const char *name = "?";
    cudaFuncGetName(&name, kernel);
    char grid[64];
    std::snprintf(grid, sizeof grid, "%ux%ux%u of %d", blocks.x, blocks.y, blocks.z, threads);
    Sum &sum = sums[std::string(name).substr(0, 90) + ", blocks " + grid];
    sum.milliseconds += milliseconds(launch);
    sum.launches++;
}
#else
template <typename Work>
static double milliseconds(Work work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return 1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
#endif

}  // namespace profile

#include "color_mlp.h"
#include "nerf_mlp.h"
#include "sdf_mlp.h"

#ifdef __CUDACC__
namespace jittor {
cublasHandle_t cublas_handle;
int use_tensorcore;
}
cublasStatus_t cublasGemmEx(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *, const void *,
                            cublasDataType_t, int, const void *, cublasDataType_t, int, const void *, void *,
                            cublasDataType_t, int, cublasComputeType_t, cublasGemmAlgo_t) {
    throw std::runtime_error("there are no tiles for this network on this GPU");
}
#endif

namespace bench {

constexpr int REPEATS = 21;
struct Named {
    const char *name;
    double value;
};

static void copy(void *to, const void *from, size_t bytes) {
#ifdef __CUDACC__
    const cudaError_t status = cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
    neus::demand(status == cudaSuccess, cudaGetErrorString(status), status);
#else
    std::memcpy(to, from, bytes);
#endif
}

static void set_reduced(bool is_reduced) {
#ifdef __CUDACC__
    jittor::use_tensorcore = is_reduced;
#else
    emulation::rounds_factors = is_reduced;
#endif
}

template <typename Layout, typename... Parameters, size_t... I>
static void spread(void (*function)(const Layout &, long, Parameters...), const Layout &layout, long rows,
                   const std::vector<neus::Scratch<float>> &arrays, std::index_sequence<I...>) {
    function(layout, rows, arrays[I].values...);
}

// Call function(layout, rows, arrays ...) and copy all arrays back; if `is_timed`, the median time of a call goes to
// `milliseconds`, and that of each kernel is printed. Returns 1 if it failed.
template <typename Layout, typename... Parameters>
static int call(void (*function)(const Layout &, long, Parameters...), const Named *named, long count, long rows,
                float **memory, const long *sizes, int is_reduced, int is_timed, double *milliseconds) {
    std::map<std::string, double> numbers;
    for (long i = 0; i < count; i++) numbers[named[i].name] = named[i].value;
    try {
        set_reduced(is_reduced);
        std::vector<neus::Scratch<float>> arrays;
        for (size_t i = 0; i < sizeof...(Parameters); i++) {
            arrays.emplace_back(sizes[i]);
            copy(arrays[i].values, memory[i], sizes[i] * sizeof(float));
        }
        const Layout layout(numbers);
        const auto run = [&] { spread(function, layout, rows, arrays, std::index_sequence_for<Parameters...>()); };
        *milliseconds = profile::milliseconds(run);
        for (size_t i = 0; i < sizeof...(Parameters); i++) copy(memory[i], arrays[i].values, sizes[i] * sizeof(float));
        if (!is_timed) return 0;
        std::vector<double> times;
        for (int repeat = 0; repeat < REPEATS; repeat++) times.push_back(profile::milliseconds(run));
        std::nth_element(times.begin(), times.begin() + REPEATS / 2, times.end());
        *milliseconds = times[REPEATS / 2];
        profile::is_on = true;
        run();
        profile::is_on = false;
        for (const auto &sum : profile::sums)
            std::printf("kernel %s: %.3f ms in %ld launches\n", sum.first.c_str(), sum.second.milliseconds, sum.second.launches);
        profile::sums.clear();
    } catch (const std::exception &error) {
        std::printf("failed: %s\n", error.what());
        return 1;
    }
    std::fflush(stdout);
    return 0;
}

}  // namespace bench
