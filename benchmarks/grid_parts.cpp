// The parts of the grid operations timed one by one, beside a naive scalar grid; bm_grid.py compiles it behind the native
// text of models/ops/grid_sdf.py and runs it: grid_parts POINTS REPEATS LEVELS COARSEST FINEST LOG2_ROWS HIDDEN OUTPUTS.
// One line "name seconds cpu_seconds" for every call, in turn; the latter of all threads together.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

using namespace neus;

constexpr int SAMPLES_OF_A_RAY = 24;  // which lie a hundredth apart, as packed samples do
constexpr float STEP = 0.01f;
constexpr size_t STREAM = 1 << 26;  // bytes of a copy: far beyond the caches

static GridSizes make_sizes(char **given) {
    const int levels = std::atoi(given[0]), rows = 1 << std::atoi(given[3]);
    const double coarsest = std::atof(given[1]), finest = std::atof(given[2]);
    std::map<std::string, double> data{{"resolutions", levels}, {"entries", levels}, {"active", levels}, {"keeps", 1}};
    for (int l = 0; l < levels; l++) {
        const double cells = std::floor(coarsest * std::pow(finest / coarsest, l / (levels - 1.0)) + 0.5);
        data["resolutions" + std::to_string(l)] = cells;
        data["entries" + std::to_string(l)] = std::min<double>(std::pow(cells + 1, 3), rows);
    }
    const double widths[] = {3.0 + FEATURES * levels, std::atof(given[4]), std::atof(given[4]), std::atof(given[5])};
    data["widths"] = 4;
    for (int i = 0; i < 4; i++) data["widths" + std::to_string(i)] = widths[i];
    return GridSizes(data);
}

// The grid as one would write it down: every corner of every level of every point, one number after the other.
struct Naive {
    const std::vector<Level> &grid;
    const float *table;

    size_t row(const Level &level, const int *cell, int corner) const {
        const uint32_t x = cell[0] + (corner & 1), y = cell[1] + (corner >> 1 & 1), z = cell[2] + (corner >> 2);
        const uint32_t side = level.resolution + 1;
        return level.dense ? x + side * (y + side * z) : (x ^ y * HASH_Y ^ z * HASH_Z) & level.mask;
    }

    template <typename Use>
    void corners(const Level &level, const float *point, Use use) const {
        int cell[3];
        float share[3];
        const float half = 0.5f * level.resolution;
        for (int a = 0; a < 3; a++) {
            const float place = (point[a] + 1.f) * half;
            cell[a] = (int)place;
            share[a] = place - cell[a];
        }
        for (int c = 0; c < CORNERS; c++) {
            float w[3], slope[3];
            for (int a = 0; a < 3; a++) {
                w[a] = c >> a & 1 ? share[a] : 1.f - share[a];
                slope[a] = c >> a & 1 ? half : -half;
            }
            use(row(level, cell, c), w[0] * w[1] * w[2], slope[0] * w[1] * w[2], slope[1] * w[0] * w[2],
                slope[2] * w[0] * w[1]);
        }
    }

    void forward(long n, const float *points, const float *pull, float *features, float *gradient) const {
        const int width = (int)grid.size() * FEATURES;
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++)
            for (size_t l = 0; l < grid.size(); l++) {
                const float *from = table + grid[l].start;
                float *to = features + i * width + l * FEATURES;
                to[0] = to[1] = 0.f;
                corners(grid[l], points + 3 * i, [&](size_t row, float w, float, float, float) {
                    for (int f = 0; f < FEATURES; f++) to[f] += w * from[row * FEATURES + f];
                });
            }
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++)
            for (size_t l = 0; l < grid.size(); l++) {
                const float *from = table + grid[l].start, *p = pull + i * width + l * FEATURES;
                float *g = gradient + 3 * i;
                corners(grid[l], points + 3 * i, [&](size_t row, float, float x, float y, float z) {
                    const float s = from[row * FEATURES] * p[0] + from[row * FEATURES + 1] * p[1];
                    g[0] += x * s;
                    g[1] += y * s;
                    g[2] += z * s;
                });
            }
    }

    void backward(long n, const float *points, const float *pull, const float *d_features, const float *d_gradient,
                  float *carried, float *d_table) const {
        const int width = (int)grid.size() * FEATURES;
#pragma omp parallel for schedule(static)
        for (long i = 0; i < n; i++)
            for (size_t l = 0; l < grid.size(); l++) {
                const float *from = table + grid[l].start, *h = d_gradient + 3 * i;
                float *to = carried + i * width + l * FEATURES;
                to[0] = to[1] = 0.f;
                corners(grid[l], points + 3 * i, [&](size_t row, float, float x, float y, float z) {
                    for (int f = 0; f < FEATURES; f++)
                        to[f] += (x * h[0] + y * h[1] + z * h[2]) * from[row * FEATURES + f];
                });
            }
#pragma omp parallel for schedule(dynamic)
        for (int l = (int)grid.size() - 1; l >= 0; l--) {
            float *to = d_table + grid[l].start;
            std::memset(to, 0, grid[l].size * sizeof(float));
            for (long i = 0; i < n; i++) {
                const float *p = pull + i * width + l * FEATURES, *d = d_features + i * width + l * FEATURES;
                const float *h = d_gradient + 3 * i;
                corners(grid[l], points + 3 * i, [&](size_t row, float w, float x, float y, float z) {
                    const float s = x * h[0] + y * h[1] + z * h[2];
                    for (int f = 0; f < FEATURES; f++) to[row * FEATURES + f] += w * d[f] + s * p[f];
                });
            }
        }
    }
};

static std::vector<float> numbers(std::mt19937 &random, size_t count, float size) {
    std::uniform_real_distribution<float> uniform(-size, size);
    std::vector<float> values(count);
    for (float &value : values) value = uniform(random);
    return values;
}

static std::vector<float> points_on_rays(std::mt19937 &random, long n) {
    std::vector<float> points(3 * n);
    for (long first = 0; first < n; first += SAMPLES_OF_A_RAY) {
        const std::vector<float> origin = numbers(random, 3, 0.7f), towards = numbers(random, 3, 1.f);
        const float length = std::sqrt(towards[0] * towards[0] + towards[1] * towards[1] + towards[2] * towards[2]);
        for (long i = first; i < std::min<long>(n, first + SAMPLES_OF_A_RAY); i++)
            for (int a = 0; a < 3; a++) points[3 * i + a] = origin[a] + towards[a] / length * STEP * (i - first);
    }
    return points;
}

static double seconds(clockid_t clock) {
    timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

int main(int count, char **given) {
    if (count != 9) return 2;
    const long n = std::atol(given[1]), blocks = (n + BLOCK - 1) / BLOCK;
    const GridSizes sizes = make_sizes(given + 3);
    const GridShape shape(sizes);
    std::mt19937 random(0);
    const int outputs = sizes.widths.back(), features = (int)shape.grid.size() * FEATURES;
    const long rows = shape.grid.back().start + shape.grid.back().size;
    long weights = 0;
    for (size_t l = 0; l < sizes.widths.size(); l += 2) weights += (sizes.widths[l] + 1l) * sizes.widths[l + 1];
    const std::vector<float> table = numbers(random, rows, 0.1f), packed = numbers(random, weights, 0.3f);
    const std::vector<float> points = points_on_rays(random, n), d_sdf = numbers(random, n, 1.f);
    const std::vector<float> d_feature = numbers(random, n * (outputs - 1), 1.f), d_gradient = numbers(random, 3 * n, 1.f);
    const std::vector<float> pull = numbers(random, n * features, 1.f);
    std::vector<float> sdf(n), feature(n * (outputs - 1)), gradient(3 * n), kept(blocks * shape.recorded());
    std::vector<float> left(blocks * shape.left()), d_table(rows), d_packed(weights), flat(n * features), more(n * features);
    std::vector<char> stream(STREAM), copied(STREAM);
    const std::vector<Layer> layers = grid_layers(shape, packed.data(), true);
    const Naive naive{shape.grid, table.data()};
    auto record = [&](long begin) { return GridRecord(shape, kept.data() + begin / BLOCK * shape.recorded()); };
    auto leave = [&](long begin) { return GridLeft(left.data() + begin / BLOCK * shape.left()); };
    const std::vector<std::pair<const char *, std::function<void()>>> parts = {
        {"forward", [&] { grid_forward(sizes, n, points.data(), table.data(), packed.data(), sdf.data(), feature.data(), gradient.data(), kept.data()); }},
        {"backward", [&] { grid_backward(sizes, n, points.data(), table.data(), packed.data(), kept.data(), d_sdf.data(), d_feature.data(), d_gradient.data(), d_table.data(), d_packed.data(), left.data()); }},
        {"grid_forward", [&] { each_block<GridBlock>(shape, layers, n, [&](GridBlock &block, long begin, int size) {
             block.encode(table.data(), points.data() + 3 * begin, size, record(begin), true);
             block.to_points(record(begin), size, gradient.data() + 3 * begin);
         }); }},
        {"grid_backward", [&] {
             each_block<GridBlock>(shape, layers, n, [&](GridBlock &block, long begin, int) {
                 block.from_points(record(begin), leave(begin).push);
                 block.leave_features(leave(begin));
             });
             reduce_table<true>(shape, n, left.data(), kept.data(), d_table.data());
         }},
        {"network_forward", [&] { each_block<GridBlock>(shape, layers, n, [&](GridBlock &block, long begin, int) {
             block.place_hidden(record(begin));
             block.values(true);
             block.sweep(-1);
         }); }},
        {"network_backward", [&] { each_block<GridBlock>(shape, layers, n, d_packed.data(), [&](GridBlock &block, long begin, int, float *sums) {
             expect(record(begin).hidden + shape.recorded(), BLOCK * shape.all_hidden());
             block.place_hidden(record(begin));
             block.recover_slopes();
             block.sweep(0);
             block.backward_sweep(sums);
             block.backward_values(sums, true);
         }); }},
        {"naive_forward", [&] { naive.forward(n, points.data(), pull.data(), flat.data(), gradient.data()); }},
        {"naive_backward", [&] { naive.backward(n, points.data(), pull.data(), flat.data(), d_gradient.data(), more.data(), d_table.data()); }},
        {"copy", [&] {
#pragma omp parallel for schedule(static)
             for (size_t part = 0; part < 64; part++)
                 std::memcpy(copied.data() + part * (STREAM / 64), stream.data() + part * (STREAM / 64), STREAM / 64);
         }},
    };
    for (int repeat = 0; repeat < std::atoi(given[2]); repeat++)
        for (const auto &[name, work] : parts) {
            const double begin = seconds(CLOCK_MONOTONIC), spent = seconds(CLOCK_PROCESS_CPUTIME_ID);
            work();
            std::printf("%s %.9f %.9f\n", name, seconds(CLOCK_MONOTONIC) - begin,
                        seconds(CLOCK_PROCESS_CPUTIME_ID) - spent);
        }
}
