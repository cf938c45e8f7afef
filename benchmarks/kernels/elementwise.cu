// softplus(y + bias) and y * softplus'(h) on rows of 256 channels: by `each_value` as in csrc/cuda/softplus_net.h, by
// `each_place`, and with the hardware's powers and logarithms of 2.
#include "bench.h"
#include "cuda/softplus.h"

using namespace neus;

constexpr int WIDTH = 256;
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
    measure("each_value", [&] {
        each_value(rows, WIDTH, [=] __device__(float &y, float x) { y = apply(y, x); }, Updated{to, WIDTH},
                   Read{from, stride});
    });
    measure("each_place", [&] { each_place(rows, WIDTH, at_place); });
    measure("each_value, ex2 and lg2", [&] {
        each_value(rows, WIDTH, [=] __device__(float &y, float x) { y = fast(y, x); }, Updated{to, WIDTH},
                   Read{from, stride});
    });
}

int main() {
    for (long rows : bench::ROWS) {
        compare<Softplus, FastSoftplus, false>("softplus", rows);
        compare<Slope, FastSlope, true>("slope", rows);
    }
}
