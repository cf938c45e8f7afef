// Times variants of a kernel and compares their results: each is printed as one line of JSON. With nvcc on a GPU; with
// g++ and tests/cuda_emulation.h on the CPU at small sizes, to test the variants, where times are meaningless.
#pragma once
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace neus {
// The constants that Python puts before the sources (models/ops/sizes.py, grid_sizes.py).
constexpr float BETA = 100.f;
constexpr int BLOCK = 64, PAD = 16, FEATURES = 2;
struct GridSizes {
    std::vector<int> resolutions, entries;
    int active;
};
}  // namespace neus

#ifdef __CUDACC__
constexpr bool IS_REHEARSAL = false;
#else
constexpr bool IS_REHEARSAL = true;
inline float __log2f(float x) { return std::log2(x); }
inline float atomicAdd(float *to, float value) { return std::exchange(*to, *to + value); }
#endif

#include "cuda/device.h"

namespace bench {

constexpr int REPEATS = IS_REHEARSAL ? 1 : 21, AT_ONCE = IS_REHEARSAL ? 1 : 10;
constexpr int THREADS = 256;  // of this folder's own kernels
const std::vector<long> ROWS = IS_REHEARSAL ? std::vector<long>{96, 128} : std::vector<long>{13312, 16384};

inline void copy(void *to, const void *from, size_t bytes) {
#ifdef __CUDACC__
    const cudaError_t status = cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
    neus::demand(status == cudaSuccess, cudaGetErrorString(status), status);
#else
    std::memcpy(to, from, bytes);
#endif
}

// Values on the GPU.
template <typename T>
struct Array : neus::Scratch<T> {
    long count;
    explicit Array(const std::vector<T> &given) : neus::Scratch<T>((long)given.size()), count((long)given.size()) {
        set(given);
    }
    void set(const std::vector<T> &given) { copy(this->values, given.data(), given.size() * sizeof(T)); }
    std::vector<T> get() const {
        std::vector<T> found(count);
        copy(found.data(), this->values, count * sizeof(T));
        return found;
    }
};

inline std::vector<float> uniform(long count, float low, float high) {
    static std::mt19937 random(1);
    std::uniform_real_distribution<float> draw(low, high);
    std::vector<float> found(count);
    for (float &value : found) value = draw(random);
    return found;
}

// The median time of a call in microseconds: the GPU's, or the host's without one.
template <typename Work>
double microseconds(Work work) {
    std::vector<double> times;
    work();
    for (int repeat = 0; repeat < REPEATS; repeat++) {
#ifdef __CUDACC__
        static cudaEvent_t begin = nullptr, end = nullptr;
        if (!begin) cudaEventCreate(&begin), cudaEventCreate(&end);
        cudaEventRecord(begin);
        for (int i = 0; i < AT_ONCE; i++) work();
        cudaEventRecord(end);
        const cudaError_t status = cudaEventSynchronize(end);
        neus::demand(status == cudaSuccess, cudaGetErrorString(status), status);
        float milliseconds;
        cudaEventElapsedTime(&milliseconds, begin, end);
        times.push_back(1e3 * milliseconds / AT_ONCE);
#else
        const auto begin = std::chrono::steady_clock::now();
        work();
        times.push_back(1e6 * std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
#endif
    }
    std::nth_element(times.begin(), times.begin() + REPEATS / 2, times.end());
    return times[REPEATS / 2];
}

// The largest difference, relative to the largest value.
template <typename T>
double difference(const std::vector<T> &found, const std::vector<T> &expected) {
    double most = 0, largest = 0;
    for (size_t i = 0; i < expected.size(); i++) {
        const double apart = std::fabs((double)found[i] - (double)expected[i]);
        most = apart <= most ? most : apart;  // NaN counts
        largest = std::max(largest, std::fabs((double)expected[i]));
    }
    return largest > 0 ? most / largest : most;
}

// `per_call`: 10^9 operations or bytes of a call, of which `unit` is the rate: "GFLOP/s" or "GB/s".
inline void print(const std::string &name, const std::string &shape, const std::string &variant, double microseconds,
                  double error, double per_call, const char *unit) {
    std::printf("{\"benchmark\": \"%s\", \"shape\": \"%s\", \"variant\": \"%s\", \"microseconds\": %.3f, \"rate\": %.1f, "
                "\"unit\": \"%s\", \"error\": %s%.3g%s}\n", name.c_str(), shape.c_str(), variant.c_str(), microseconds,
                1e6 * per_call / microseconds, unit, std::isfinite(error) ? "" : "\"", error, std::isfinite(error) ? "" : "\"");
    std::fflush(stdout);
}

}  // namespace bench
