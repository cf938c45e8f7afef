// The gradient of a grid's table: 64-bit integers as in csrc/cuda/grid.h, against float32.
#include "bench.h"
#include "cuda/grid.h"

using namespace neus;

// The contributions of one point in one level, each given to add(place, value).
template <typename Add>
__device__ inline void contribute(const Grid &grid, long n, long i, const Scattered &from, Add add) {
    const long r = i % n;
    const int l = (int)(i / n);
    const Cell cell(grid.level[l], from.points + r * 3);
    for (int f = 0; f < FEATURES; f++)
        for (int c = 0; c < CORNERS; c++)
            add(cell.corner[c] + f, cell.part(c, from.features[r * from.stride + l * FEATURES + f], 0.f, nullptr));
}

static void scatter_float(const Grid &grid, long n, const Scattered &from, float *d_table) {
    clear(d_table, grid.size);
    each(n * grid.active, [=] __device__(long i) {
        contribute(grid, n, i, from, [=](long at, float part) { atomicAdd(d_table + at, part); });
    });
}

static void compare(long n) {
    GridSizes sizes{{}, {}, IS_REHEARSAL ? 3 : 10};  // confs/fast.conf: 10 levels from 16 to 256 cells, 2^17 rows
    for (int l = 0; l < sizes.active; l++) {
        const int cells = (int)(16. * std::pow(16., l / 9.) + 0.5), corners = (cells + 1) * (cells + 1) * (cells + 1);
        sizes.resolutions.push_back(cells);
        sizes.entries.push_back(std::min(corners, 1 << 17));
    }
    const Grid grid = read_grid(sizes);
    const long width = (long)sizes.active * FEATURES;
    std::vector<float> points = bench::uniform(3 * n, -1.f, 1.f);  // on a sphere, so that many share rows
    for (long r = 0; r < n; r++) {
        const float *p = &points[3 * r], length = 2.f * std::sqrt(p[0] * p[0] + p[1] * p[1] + p[2] * p[2]) + 1e-6f;
        for (int j = 0; j < 3; j++) points[3 * r + j] /= length;
    }
    const bench::Array<float> at(points), features(bench::uniform(n * width, -1.f, 1.f));
    bench::Array<float> table(std::vector<float>(grid.size, 0.f));
    const Scattered from{at.values, features.values, width, nullptr, 0, nullptr};
    std::vector<float> expected;
    const auto measure = [&](const char *variant, void (*function)(const Grid &, long, const Scattered &, float *)) {
        const double time = bench::microseconds([&] { function(grid, n, from, table.values); });
        if (expected.empty()) expected = table.get();
        bench::print("scatter", std::to_string(n) + " points", variant, time, bench::difference(table.get(), expected),
                     1e-9 * n * width * CORNERS, "G additions/s");
    };
    measure("64-bit integers", scatter);
    measure("float32", scatter_float);
}

int main() {
    if (IS_REHEARSAL) return compare(64), 0;
    for (long n : {1l << 13, 1l << 16, 1l << 18}) compare(n);
}
