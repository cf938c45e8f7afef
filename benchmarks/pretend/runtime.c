/* Stands in for libcudart.so: the memory of the card is the machine's, and its kernels do nothing. What is not here does
   nothing either and reports success (benchmarks/pretend/build.py writes that from the toolkit's header). */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#define ALIGNMENT 512
#define MOST_BLOCKS 65536

static size_t launches, allocations, waits, bytes_read;
size_t pretend_launches(void) { return launches; }
size_t pretend_allocations(void) { return allocations; }
size_t pretend_waits(void) { return waits; }
size_t pretend_bytes_read(void) { return bytes_read; }

/* A wait is a call that returns only when the card is done with what it was given before: kernels, copies and memory to
   fill that the host went on from. Without anything given since the last wait there is nothing to wait for. So are
   counted, by CUDA's own words ("API synchronization behavior" of the runtime's manual):
   - cudaDeviceSynchronize, cudaStreamSynchronize (of whatever stream: which one has the work is not followed);
   - cudaEventSynchronize, for what was given before the event was recorded;
   - cudaMemcpy between host and card, either way: it is in the order of the default stream, behind all that runs there,
     and returns when it is done. To the card too: from pinned memory it is synchronous, from other memory the stream is
     waited for first. Within the card no copy waits;
   - cudaMemcpyAsync from the card into memory of the host that is not pinned. Into pinned memory it does not wait, and
     to the card neither: memory that is not pinned is staged;
   - cudaFree and cudaFreeHost, which wait for the whole card; cudaFreeAsync does not.
   cudaMemset, cudaMalloc, queries, events recorded and waited for by streams do not wait. What is given to cuBLAS is not
   followed: kernels are given beside it. */
static size_t given, done;
static cudaError_t give(void) { return given++, cudaSuccess; }
static cudaError_t wait_for(size_t work) { return work > done ? (waits++, done = work, cudaSuccess) : cudaSuccess; }
static cudaError_t wait(void) { return wait_for(given); }
cudaError_t cudaDeviceSynchronize(void) { return wait(); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return wait(); }
cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return (*event = calloc(1, sizeof(size_t))) ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) { return cudaEventCreate(event); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return free(event), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return *(size_t *)event = given, cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return wait_for(*(size_t *)event); }

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

/* Whose memory an address is, as CUDA tells it: the card's, the host's pinned for copies, or the host's that it does not
   know. */
enum owner { PAGEABLE, PINNED, CARD };
static struct {
    char *begin;
    size_t bytes;
    enum owner owner;
} blocks[MOST_BLOCKS];
static size_t block_count;
static enum owner owner_of(const void *place) {
    for (size_t i = 0; i < block_count; i++)
        if ((const char *)place >= blocks[i].begin && (const char *)place < blocks[i].begin + blocks[i].bytes)
            return blocks[i].owner;
    return PAGEABLE;
}

/* Zeros: what kernels leave unwritten is then the same in every run, and takes no memory before it is touched. */
static cudaError_t reserve(void **place, size_t bytes, enum owner owner) {
    allocations++;
    *place = block_count < MOST_BLOCKS ? calloc(bytes / ALIGNMENT + 1, ALIGNMENT) : NULL;
    if (!*place) return cudaErrorMemoryAllocation;
    blocks[block_count].begin = *place, blocks[block_count].bytes = bytes, blocks[block_count++].owner = owner;
    return cudaSuccess;
}
static cudaError_t release(void *place) {
    for (size_t i = 0; i < block_count; i++)
        if (blocks[i].begin == place) {
            blocks[i] = blocks[--block_count];
            break;
        }
    return free(place), cudaSuccess;
}
cudaError_t cudaMalloc(void **place, size_t bytes) { return reserve(place, bytes, CARD); }
cudaError_t cudaMallocHost(void **place, size_t bytes) { return reserve(place, bytes, PINNED); }
cudaError_t cudaHostAlloc(void **place, size_t bytes, unsigned flags) { return reserve(place, bytes, PINNED); }
cudaError_t cudaMallocManaged(void **place, size_t bytes, unsigned flags) { return reserve(place, bytes, CARD); }
cudaError_t cudaMallocAsync(void **place, size_t bytes, cudaStream_t stream) { return reserve(place, bytes, CARD); }
cudaError_t cudaFree(void *place) { return wait(), release(place); }
cudaError_t cudaFreeHost(void *place) { return wait(), release(place); }
cudaError_t cudaFreeAsync(void *place, cudaStream_t stream) { return release(place); }
cudaError_t cudaMemGetInfo(size_t *left, size_t *whole) { return *left = *whole = (size_t)16 << 30, cudaSuccess; }
/* What is read as a single byte is whether a step may be taken: it may, or each step would be looked into. */
static cudaError_t copy(void *to, const void *from, size_t bytes, int is_waited_for) {
    const enum owner source = owner_of(from), target = owner_of(to);
    const int is_read = source == CARD && target != CARD, is_written = target == CARD && source != CARD;
    memmove(to, from, bytes);
    bytes_read += is_read ? bytes : 0;
    if (is_read && bytes == 1) *(char *)to = 1;
    if (is_waited_for ? is_read || is_written : is_read && target == PAGEABLE) return wait();
    return give();
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    return copy(to, from, bytes, 1);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    return copy(to, from, bytes, 0);
}
cudaError_t cudaMemset(void *place, int value, size_t bytes) { return memset(place, value, bytes), give(); }
cudaError_t cudaMemsetAsync(void *place, int value, size_t bytes, cudaStream_t stream) {
    return memset(place, value, bytes), give();
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
    return launches++, give();
}
cudaError_t __cudaLaunchKernel(void *kernel, dim3 blocks, dim3 threads, void **arguments, size_t shared,
                               cudaStream_t stream) {
    return launches++, give();
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
