// softplus(y + bias) and y * softplus'(h) on rows of 256 channels: by `each_value` as in csrc/cuda/softplus_net.h, and by
// other ways to reach the elements.
#include "bench.h"
#include "cuda/softplus.h"

using namespace neus;

constexpr int WIDTH = 256, LANES = WIDTH / 4;
constexpr float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

struct Softplus {
    __device__ float operator()(float x) const { return softplus(x); }
};
struct Slope {
    __device__ float operator()(float value) const { return softplus_slope(value); }
};
// With the hardware's powers and logarithms of 2.
struct FastSoftplus {
    __device__ float operator()(float x) const {
        return fmaxf(x, 0.f) + __log2f(1.f + exp2f(-fabsf(x) * (BETA * LOG2_E))) * (LN_2 / BETA);
    }
};
struct FastSlope {
    __device__ float operator()(float value) const { return 1.f - exp2f(-value * (BETA * LOG2_E)); }
};
// y = op(y + x), or y *= op(x).
template <typename Op, bool IsFactor>
struct Apply {
    Op op;
    __device__ float operator()(float y, float x) const { return IsFactor ? y * op(x) : op(y + x); }
};

// Row and column by a division.
template <typename Work>
__global__ void divided_kernel(long count, unsigned width, Work work) {
    const long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    if (i < count) work((int)((unsigned)i / width), (int)((unsigned)i % width), i);
}

// A block per row; x is a row for all, or one each, `stride` apart.
template <typename Work>
__global__ void row_kernel(long, float *y, const float *x, long stride, Work work) {
    const long at = blockIdx.x * (long)WIDTH + threadIdx.x;
    y[at] = work(y[at], x[blockIdx.x * stride + threadIdx.x]);
}

// Four rows per block, four channels per thread.
template <typename Work>
__global__ void vector_kernel(long rows, float *y, const float *x, long stride, Work work) {
    const long r = blockIdx.x * (long)(bench::THREADS / LANES) + threadIdx.x / LANES, c = 4 * (threadIdx.x % LANES);
    if (r >= rows) return;
    float4 *to = (float4 *)(y + r * WIDTH + c);
    const float4 b = *(const float4 *)(x + r * stride + c);
    float4 a = *to;
    a.x = work(a.x, b.x), a.y = work(a.y, b.y), a.z = work(a.z, b.z), a.w = work(a.w, b.w);
    *to = a;
}

template <typename Op, typename FastOp, bool IsFactor>
void compare(const std::string &name, long rows) {
    const long count = rows * WIDTH, stride = IsFactor ? WIDTH : 0;
    const std::vector<float> start = bench::uniform(count, -0.1f, 0.1f);
    const bench::Array<float> x(bench::uniform(IsFactor ? count : WIDTH, 0.f, 0.02f));
    bench::Array<float> y(start);
    std::vector<float> expected;
    float *to = y.values;
    const float *from = x.values;
    const auto measure = [&](const std::string &variant, auto work) {
        y.set(start);
        work();
        const std::vector<float> found = y.get();
        if (expected.empty()) expected = found;
        bench::print(name, std::to_string(rows) + "x256", variant, bench::microseconds(work),
                     bench::difference(found, expected), 1e-9 * count * (IsFactor ? 12 : 8), "GB/s");
    };
    const Apply<Op, IsFactor> apply{};
    const Apply<FastOp, IsFactor> fast{};
    const auto at_place = [=] __device__(int, int i, long at) { to[at] = apply(to[at], from[IsFactor ? at : i]); };
    const unsigned blocks = (unsigned)((count + bench::THREADS - 1) / bench::THREADS);
    const unsigned four = (unsigned)((rows * LANES + bench::THREADS - 1) / bench::THREADS);
    measure("each_value", [&] {
        each_value(rows, WIDTH, [=] __device__(float &y, float x) { y = apply(y, x); }, Updated{to, WIDTH},
                   Read{from, stride});
    });
    measure("each_place", [&] { each_place(rows, WIDTH, at_place); });
    measure("a division per element", [&] {
        launch(divided_kernel<decltype(at_place)>, dim3(blocks), bench::THREADS, count, WIDTH, at_place);
    });
    measure("a row per block",
            [&] { launch(row_kernel<decltype(apply)>, dim3((unsigned)rows), WIDTH, rows, to, from, stride, apply); });
    measure("float4", [&] {
        launch(vector_kernel<decltype(apply)>, dim3(four), bench::THREADS, rows, to, from, stride, apply);
    });
    measure("float4, ex2 and lg2", [&] {
        launch(vector_kernel<decltype(fast)>, dim3(four), bench::THREADS, rows, to, from, stride, fast);
    });
}

int main() {
    for (long rows : bench::ROWS) {
        compare<Softplus, FastSoftplus, false>("softplus", rows);
        compare<Slope, FastSlope, true>("slope", rows);
    }
}
