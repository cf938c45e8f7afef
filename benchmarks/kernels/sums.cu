// Sums of the columns of [rows, 256]: csrc/cuda/reduce.h, and vectors of four with several numbers of slices.
#include "bench.h"
#include "cuda/reduce.h"

using namespace neus;

constexpr int WIDTH = 256, LANES = WIDTH / 4, ROWS_OF_A_BLOCK = bench::THREADS / LANES;

// parts [blocks, 256].
__global__ void slices_kernel(long rows, const float *values, float *parts) {
    SHARED(float4, shared, ROWS_OF_A_BLOCK * LANES);
    const float *sums = (const float *)shared;
    const int c = 4 * (threadIdx.x % LANES), row = threadIdx.x / LANES;
    const long slices = gridDim.x, slice = blockIdx.x;
    float4 sum{0.f, 0.f, 0.f, 0.f};
    for (long r = slice * rows / slices + row; r < (slice + 1) * rows / slices; r += ROWS_OF_A_BLOCK) {
        const float4 value = *(const float4 *)(values + r * WIDTH + c);
        sum.x += value.x, sum.y += value.y, sum.z += value.z, sum.w += value.w;
    }
    shared[threadIdx.x] = sum;
    __syncthreads();
    float total = 0.f;
    for (int other = 0; other < ROWS_OF_A_BLOCK; other++) total += sums[other * WIDTH + threadIdx.x];
    parts[slice * WIDTH + threadIdx.x] = total;
}

int main() {
    for (long rows : bench::ROWS) {
        const bench::Array<float> values(bench::uniform(rows * WIDTH, -1.f, 2.f));
        bench::Array<float> sums(std::vector<float>(WIDTH, 0.f));
        float *to = sums.values;
        std::vector<float> expected;
        const auto measure = [&](const std::string &variant, auto work) {
            sums.set(std::vector<float>(WIDTH, 0.f));
            work();
            const std::vector<float> found = sums.get();
            if (expected.empty()) expected = found;
            bench::print("column sums", std::to_string(rows) + "x256", variant, bench::microseconds(work),
                         bench::difference(found, expected), 4e-9 * rows * WIDTH, "GB/s");
        };
        measure("add_columns", [&] { add_columns(rows, WIDTH, 1.f, values.values, WIDTH, to); });
        for (unsigned slices : {132u, 264u}) {
            measure("float4, " + std::to_string(slices) + " slices", [&] {
                Scratch<float> scratch((long)slices * WIDTH);
                float *parts = scratch.values;
                launch(slices_kernel, dim3(slices), bench::THREADS, rows, values.values, parts);
                each(WIDTH, [=] __device__(long i) {
                    float sum = 0.f;
                    for (unsigned slice = 0; slice < slices; slice++) sum += parts[slice * WIDTH + i];
                    to[i] += sum;
                });
            });
        }
    }
}
