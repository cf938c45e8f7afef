// Replaces the header of Jittor that csrc/cuda/device.h includes: memory that is kept for the next scratch of its size,
// as in Jittor's pool, so that the time of an operation does not contain allocations.
#pragma once
#include <cuda_runtime.h>
#include <cstddef>
#include <map>

namespace jittor {

struct Allocator {
    std::multimap<size_t, void *> free;
};

struct Executor {
    Allocator kept, *allocator = &kept;
};
inline Executor exe;

struct Allocation {
    void *ptr = nullptr;
    size_t size;
    Allocator *from;

    Allocation(Allocator *from_, size_t size_) : size(size_), from(from_) {
        const auto found = from->free.find(size);
        if (found == from->free.end()) {
            if (cudaMalloc(&ptr, size) != cudaSuccess) throw std::runtime_error("there is no memory on the GPU");
        } else {
            ptr = found->second;
            from->free.erase(found);
        }
    }
    Allocation(Allocation &&other) : ptr(other.ptr), size(other.size), from(other.from) { other.ptr = nullptr; }
    ~Allocation() {
        if (ptr) from->free.emplace(size, ptr);
    }
};

}  // namespace jittor
