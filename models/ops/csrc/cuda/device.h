// Helpers for CUDA sources. On a GPU they have the definitions below; the emulation on the CPU includes its own header
// first, with other definitions and the same interface.
//
// All kernels run on Jittor's stream in launch order, and the host does not wait for them. Matrices are row-major; the
// stride is the distance between rows.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace neus {

inline void demand(bool is_well, const char *what, int status) {
    if (!is_well) throw std::runtime_error(std::string(what) + ": status " + std::to_string(status));
}

}  // namespace neus

#ifdef __CUDACC__
#include <cublas_v2.h>
#include <executor.h>

namespace jittor {
extern cublasHandle_t cublas_handle;
extern int use_tensorcore;  // 0: products in float32; 1: in TF32
}

namespace neus {

constexpr int THREADS = 256;
constexpr long MOST_BLOCKS = 1 << 16, MANY_THREADS = 1 << 18;  // the latter: what a large GPU runs at a time

// Uninitialised memory for `count` values from Jittor's pool, freed by the destructor. Jittor's pool for temporary
// memory is not used: it keeps at most two blocks, and further ones are allocated and freed on the GPU, which
// synchronises.
template <typename T>
struct Scratch {
    T *values;
    explicit Scratch(long count) : allocation(jittor::exe.allocator, (count > 0 ? count : 1) * sizeof(T)) {
        values = (T *)allocation.ptr;
    }
    Scratch(Scratch &&other) = default;

   private:
    jittor::Allocation allocation;
};

inline int of_device(cudaDeviceAttr attribute) {
    int device = 0, value = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) status = cudaDeviceGetAttribute(&value, attribute, device);
    demand(status == cudaSuccess, cudaGetErrorString(status), status);
    return value;
}
// Bytes of shared memory that a block may ask for.
inline long most_shared() { return of_device(cudaDevAttrMaxSharedMemoryPerBlockOptin); }
inline int multiprocessors() { return of_device(cudaDevAttrMultiProcessorCount); }

// Run a kernel on `blocks` blocks of `threads` threads, which share `shared` bytes beside what the kernel declares.
template <typename... Parameters, typename... Arguments>
inline void launch_sharing(void (*kernel)(Parameters...), dim3 blocks, int threads, long shared, Arguments... arguments) {
    cudaError_t status = cudaSuccess;
    if (shared > 0)
        status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    demand(status == cudaSuccess, cudaGetErrorString(status), status);
    kernel<<<blocks, threads, shared>>>(Parameters(arguments)...);
    status = cudaGetLastError();
    demand(status == cudaSuccess, cudaGetErrorString(status), status);
}

// The same without.
template <typename... Parameters, typename... Arguments>
inline void launch(void (*kernel)(Parameters...), dim3 blocks, int threads, Arguments... arguments) {
    launch_sharing(kernel, blocks, threads, 0, arguments...);
}

template <typename Work>
__global__ void each_kernel(long count, Work work) {
#pragma unroll 1  // unrolled, most of the instructions would prepare a loop that most threads go through once
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < count; i += (long)gridDim.x * blockDim.x) work(i);
}

// work(i) for i = 0 ... count - 1, in any order.
template <typename Work>
inline void each(long count, Work work) {
    static_assert(std::is_trivially_copyable<Work>::value, "what the work captures is copied to the GPU as bytes");
    if (count <= 0) return;
    const long blocks = (count + THREADS - 1) / THREADS;
    launch(each_kernel<Work>, dim3((unsigned)(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS)), THREADS, count, work);
}

// Set `count` values to zero.
template <typename T>
inline void clear(T *values, long count) {
    const cudaError_t status = cudaMemsetAsync(values, 0, count * sizeof(T));
    demand(status == cudaSuccess, cudaGetErrorString(status), status);
}

// Start a copy to pinned memory of the host, and record an event after it.
inline void copy_to_host(void *host, const void *values, long bytes, void *event) {
    cudaError_t status = cudaMemcpyAsync(host, values, bytes, cudaMemcpyDeviceToHost);
    if (status == cudaSuccess) status = cudaEventRecord((cudaEvent_t)event);
    demand(status == cudaSuccess, cudaGetErrorString(status), status);
}

// Message for a cuBLAS status: out of memory, since its workspace is not from Jittor's pool, or CUDA's last error.
inline std::string told(cublasStatus_t status) {
    if (status == CUBLAS_STATUS_ALLOC_FAILED) return "cuBLAS found no memory (out of memory)";
    return std::string("cuBLAS (") + cudaGetErrorString(cudaPeekAtLastError()) + ")";
}

// Whether products may round their factors to 10 bits: train.tf32.
inline bool is_reduced() { return jittor::use_tensorcore; }

// C [rows, columns] = scale A B + keep C, where A is [rows, depth], or [depth, rows] if turned, and B likewise.
inline void product(long rows, long columns, long depth, float scale, const float *a, long stride_a, bool turn_a,
                    const float *b, long stride_b, bool turn_b, float keep, float *c, long stride_c) {
    if (rows <= 0 || columns <= 0) return;
    const cublasComputeType_t kind =
        is_reduced() ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    // cuBLAS is column-major, so the transposed product is computed.
    const cublasStatus_t status = cublasGemmEx(
        jittor::cublas_handle, turn_b ? CUBLAS_OP_T : CUBLAS_OP_N, turn_a ? CUBLAS_OP_T : CUBLAS_OP_N, (int)columns,
        (int)rows, (int)depth, &scale, b, CUDA_R_32F, (int)stride_b, a, CUDA_R_32F, (int)stride_a, &keep, c,
        CUDA_R_32F, (int)stride_c, kind, CUBLAS_GEMM_DEFAULT);
    if (status != CUBLAS_STATUS_SUCCESS) demand(false, told(status).c_str(), status);
}

// 2^x to two units in the last place, and 0 below the normal numbers: one instruction.
__device__ inline float power_of_2(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

// 1 / value to one unit in the last place, 0 of infinity, for normal values: one instruction.
__device__ inline float reciprocal(float value) {
    float found;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(found) : "f"(value));
    return found;
}

// Two float16, the first in the lower half, each the nearest to its value; infinite from 65,520 on.
__device__ inline uint32_t halves(float low, float high) {
    uint32_t pair;
    asm("{.reg .f16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h};}" : "=r"(pair) : "f"(low), "f"(high));
    return pair;
}
__device__ inline float lower_half(uint32_t pair) {
    float value;
    asm("{.reg .f16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}" : "=f"(value) : "r"(pair));
    return value;
}
__device__ inline float upper_half(uint32_t pair) { return lower_half(pair >> 16); }

// Fragments of PTX's mma.m16n8k16: sums [16, 8] += A [16, 16] B [16, 8], the factors in float16.
__device__ inline void multiply_matrices(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
    for (int half = 0; half < 2; half++)
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(half ? b1 : b0));
#endif
}

// Fragments of four matrices [8, 8] in shared memory, of which lane 8 i + r gives row r of matrix i.
template <bool IS_TURNED>
__device__ inline void load_matrices(uint32_t (&to)[4], const uint16_t *row) {
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    if (IS_TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

// A value of which the compiler computes nothing before this place: addresses that it moves out of a loop take registers.
__device__ inline int not_before(int value) {
    asm volatile("" : "+r"(value));
    return value;
}

// The largest value of the 32 threads of a warp, in each of them.
__device__ inline float largest_of_warp(float value) {
    for (int apart = 16; apart > 0; apart /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, apart));
    return value;
}

// The sum over the four threads of a warp from a multiple of four on, in each of them.
__device__ inline float sum_of_four(float value) {
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    return value + __shfl_xor_sync(0xffffffffu, value, 2);
}

// A barrier of the threads of a warp.
__device__ inline void wait_for_warp() { __syncwarp(); }

// A barrier of `threads` threads, whole warps; `number`: from 1 on, another one for other warps at the same time.
__device__ inline void wait_for(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Starts to bring the 128 bytes around a place into the second-level cache.
__device__ inline void fetch_ahead(const float *place) { asm volatile("prefetch.global.L2 [%0];" ::"l"(place)); }

// Memory that the threads of a block share: the bytes of `launch_sharing`, and a part of a kernel's own.
#define SHARED_OF_LAUNCH(name) extern __shared__ __align__(16) unsigned char name[]
#define SHARED(type, name, count) __shared__ type name[count]

}  // namespace neus
#endif

namespace neus {

// Size of the widest activation in a pass through a network, in floats: that of 16,384 points of the published network
// of signed distances, whose last layer has 260 outputs with padding. Its products have 256 tiles of 128 x 128, for
// which an H100 has 264 places, and the 16 MiB of an activation fit its second-level cache of 50 MiB.
#ifndef ACTIVATION_FLOATS
#define ACTIVATION_FLOATS (16384l * 260)
#endif

// Points per pass for activations of this width. Many are whole tiles, and whole blocks of 2 MiB of Jittor's pool.
inline long at_once(long points, long width) {
    const long tiles = 1024, largest = ACTIVATION_FLOATS / width;
    const long most = largest > tiles ? largest / tiles * tiles : largest;
    return points < 1 || most < 1 ? 1 : points < most ? points : most;
}

// The same, for loops that have a form on CPUs, where a thread has several after one another.
template <typename Work>
inline void each_apart(long count, int, Work work) {
    each(count, work);
}

// Loops over rows are written once for a number that the host knows, and for `SomeRows` of some_rows.h.
inline long most_of(long rows) { return rows; }
inline long part_of(long rows, long begin, long most) { return rows - begin < most ? rows - begin : most; }
__device__ inline long number_of(long rows) { return rows; }

constexpr int LANES = 32;  // threads of a warp
constexpr long SHARED_OF_A_BLOCK = 48 << 10;  // bytes, on every GPU
constexpr int VECTOR = 4;  // floats of 16 bytes, the largest access of a thread
constexpr uint32_t EXPONENT = 0x7f800000u;  // the bits of infinity; those of NaN are above

template <int STEP, typename Rows, typename Work>
__global__ void each_part_kernel(Rows rows, int width, int shift, Work work) {
    const int row = (int)((blockIdx.x * (long)THREADS + threadIdx.x) >> shift);
    if (row >= number_of(rows)) return;
    const int threads = 1 << shift, lane = (int)threadIdx.x & (threads - 1), step = (int)gridDim.y * threads * STEP;
#pragma unroll 1
    for (int i = ((int)blockIdx.y * threads + lane) * STEP; i < width; i += step) work(row, i);
}

// work(row, column) for every STEP-th column of [rows, width], in any order. A warp has one row, or several narrow ones,
// and all of its columns unless there are too few rows.
template <int STEP, typename Rows, typename Work>
inline void each_part(const Rows &some, int width, Work work) {
    static_assert(std::is_trivially_copyable<Work>::value, "what the work captures is copied to the GPU as bytes");
    const long rows = most_of(some);
    if (rows <= 0 || width <= 0) return;
    int shift = 0;
    while (shift < 5 && STEP << shift < width) shift++;
    const long blocks = ((rows << shift) + THREADS - 1) / THREADS;
    const long splits = rows << shift < MANY_THREADS ? (width + (STEP << shift) - 1) / (STEP << shift) : 1;
    launch(each_part_kernel<STEP, Rows, Work>, dim3((unsigned)blocks, (unsigned)splits), THREADS, some, width, shift,
           work);
}

// work(row, column, row * width + column) for all of [rows, width], in any order.
template <typename Work>
struct AtPlaces {
    int width;
    Work work;
    __device__ void operator()(int row, int column) const { work(row, column, (long)row * width + column); }
};

template <typename Rows, typename Work>
inline void each_place(const Rows &rows, int width, Work work) {
    each_part<1>(rows, width, AtPlaces<Work>{width, work});
}

template <typename Work>
__global__ void each_warp_kernel(long rows, long count, Work work) {
    SHARED_OF_LAUNCH(shared);
    const long row = (blockIdx.x * (long)blockDim.x + threadIdx.x) / LANES;
    if (row < rows) work(row, (int)threadIdx.x % LANES, (float *)shared + threadIdx.x / LANES * count);
}

// work(row, lane, memory): a warp has a row, and memory for `count` values that its lanes share.
template <typename Work>
inline void each_warp(long rows, long count, Work work) {
    static_assert(std::is_trivially_copyable<Work>::value, "what the work captures is copied to the GPU as bytes");
    if (rows <= 0) return;
    const long bytes = count * sizeof(float), most = bytes > 0 ? SHARED_OF_A_BLOCK / bytes : THREADS;
    const long warps = most < 1 ? 1 : most < THREADS / LANES ? most : THREADS / LANES;
    launch_sharing(each_warp_kernel<Work>, dim3((unsigned)((rows + warps - 1) / warps)), (int)warps * LANES, warps * bytes,
                   rows, count, work);
}

// Matrices of `each_value`: values and stride are aligned to vectors, and a matrix has less than 2^32 values, since
// 32-bit arithmetic is faster.
struct Read {
    const float *values;
    long stride;
    __device__ unsigned place(int row, int column) const { return (unsigned)row * (unsigned)stride + (unsigned)column; }
    __device__ float4 load(int row, int column) const { return *(const float4 *)(values + place(row, column)); }
    __device__ void store(int, int, const float4 &) const {}
};
struct Written {
    float *values;
    long stride;
    __device__ float4 load(int, int) const { return {}; }
    __device__ void store(int row, int column, const float4 &value) const {
        *(float4 *)(values + Read{values, stride}.place(row, column)) = value;
    }
};
struct Updated : Written {
    __device__ float4 load(int row, int column) const { return Read{values, stride}.load(row, column); }
};

// Loads a vector of each matrix, calls `work` four times, and stores them.
template <typename Work, typename... Matrices>
struct OnVectors {
    Work work;
    template <typename... Vectors>
    __device__ void operator()(int, int, Vectors &...at) const {
        work(at.x...);
        work(at.y...);
        work(at.z...);
        work(at.w...);
    }
};
template <typename Work, typename Matrix, typename... Others>
struct OnVectors<Work, Matrix, Others...> {
    Matrix matrix;
    OnVectors<Work, Others...> others;
    template <typename... Vectors>
    __device__ void operator()(int row, int column, Vectors &...at) const {
        float4 own = matrix.load(row, column);
        others(row, column, at..., own);
        matrix.store(row, column, own);
    }
};

// work(values ...) for the values of matrices [rows, width] at each place, in any order; width: whole vectors.
template <typename Work, typename... Matrices>
inline void each_value(long rows, int width, Work work, Matrices... matrices) {
    each_part<VECTOR>(rows, width, OnVectors<Work, Matrices...>{matrices..., work});
}

}  // namespace neus
