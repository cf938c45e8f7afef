/* Stands in for libcudart.so: the memory of the card is the machine's, and its kernels do nothing. What is not here does
   nothing either and reports success (benchmarks/pretend/build.py writes that from the toolkit's header). */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#define ALIGNMENT 512

static size_t launches, allocations;
size_t pretend_launches(void) { return launches; }
size_t pretend_allocations(void) { return allocations; }

static int capability(void) {
    const char *text = getenv("PRETEND_CAPABILITY");
    return text ? atoi(text) : 90;
}
cudaError_t cudaGetDeviceCount(int *count) { return *count = 1, cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { return *device = 0, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *found, int device) {
    memset(found, 0, sizeof *found);
    strcpy(found->name, "pretend card");
    found->major = capability() / 10;
    found->minor = capability() % 10;
    found->multiProcessorCount = 100;
    found->warpSize = 32;
    found->maxThreadsPerBlock = 1024;
    found->totalGlobalMem = (size_t)16 << 30;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = capability() / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = capability() % 10; break;
    case cudaDevAttrMultiProcessorCount: *value = 100; break;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 160 << 10; break;
    default: *value = 1;
    }
    return cudaSuccess;
}

/* Zeros: what kernels leave unwritten is then the same in every run, and takes no memory before it is touched. */
static cudaError_t reserve(void **place, size_t bytes) {
    allocations++;
    *place = calloc(bytes / ALIGNMENT + 1, ALIGNMENT);
    return *place ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaMalloc(void **place, size_t bytes) { return reserve(place, bytes); }
cudaError_t cudaMallocHost(void **place, size_t bytes) { return reserve(place, bytes); }
cudaError_t cudaHostAlloc(void **place, size_t bytes, unsigned flags) { return reserve(place, bytes); }
cudaError_t cudaMallocManaged(void **place, size_t bytes, unsigned flags) { return reserve(place, bytes); }
cudaError_t cudaMallocAsync(void **place, size_t bytes, cudaStream_t stream) { return reserve(place, bytes); }
cudaError_t cudaFree(void *place) { return free(place), cudaSuccess; }
cudaError_t cudaFreeHost(void *place) { return free(place), cudaSuccess; }
cudaError_t cudaFreeAsync(void *place, cudaStream_t stream) { return free(place), cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t *left, size_t *whole) { return *left = *whole = (size_t)16 << 30, cudaSuccess; }
/* What is read as a single byte is whether a step may be taken: it may, or each step would be looked into. */
static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    memmove(to, from, bytes);
    if (bytes == 1 && kind != cudaMemcpyHostToDevice) *(char *)to = 1;
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    return copy(to, from, bytes, kind);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    return copy(to, from, bytes, kind);
}
cudaError_t cudaMemset(void *place, int value, size_t bytes) { return memset(place, value, bytes), cudaSuccess; }
cudaError_t cudaMemsetAsync(void *place, int value, size_t bytes, cudaStream_t stream) {
    return memset(place, value, bytes), cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *time, cudaEvent_t begin, cudaEvent_t end) { return *time = 0, cudaSuccess; }
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
    return function(data), cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel, int threads, size_t shared) {
    return *blocks = 2, cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *kernel, int threads,
                                                                   size_t shared, unsigned flags) {
    return *blocks = 2, cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *found, const void *kernel) {
    memset(found, 0, sizeof *found);
    found->ptxVersion = found->binaryVersion = capability();
    found->maxThreadsPerBlock = 1024;
    return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t error) { return "of the pretend card"; }
const char *cudaGetErrorName(cudaError_t error) { return "pretended"; }

/* What nvcc's host code calls: kernels are registered and launched, and come to nothing. */
cudaError_t cudaLaunchKernel(const void *kernel, dim3 blocks, dim3 threads, void **arguments, size_t shared,
                             cudaStream_t stream) {
    return launches++, cudaSuccess;
}
cudaError_t __cudaLaunchKernel(void *kernel, dim3 blocks, dim3 threads, void **arguments, size_t shared,
                               cudaStream_t stream) {
    return launches++, cudaSuccess;
}
cudaError_t __cudaGetKernel(void **kernel, const void *function) { return *kernel = (void *)function, cudaSuccess; }
static struct {
    dim3 blocks, threads;
    size_t shared;
    void *stream;
} configuration;
unsigned __cudaPushCallConfiguration(dim3 blocks, dim3 threads, size_t shared, void *stream) {
    configuration.blocks = blocks, configuration.threads = threads;
    configuration.shared = shared, configuration.stream = stream;
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *blocks, dim3 *threads, size_t *shared, void *stream) {
    *blocks = configuration.blocks, *threads = configuration.threads;
    *shared = configuration.shared, *(void **)stream = configuration.stream;
    return cudaSuccess;
}
static void *registered[8];
void **__cudaRegisterFatBinary(void *binary) { return registered; }
void __cudaRegisterFatBinaryEnd(void **handle) {}
void __cudaUnregisterFatBinary(void **handle) {}
void __cudaRegisterFunction(void **handle, const char *function, char *name, const char *device, int threads, void *a,
                            void *b, void *c, void *d, int *e) {}
void __cudaRegisterVar(void **handle, char *variable, char *address, const char *name, int external, size_t size,
                       int constant, int global) {}
char __cudaInitModule(void **handle) { return 1; }
