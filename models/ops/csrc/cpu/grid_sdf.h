// A hash grid with a network on all points: blocks are distributed over threads, then the levels of the table. See
// grid_block.h.
#pragma once
#include "grid_block.h"

namespace neus {

inline std::vector<Layer> grid_layers(const GridShape &shape, const float *packed, bool with_backward) {
    return read_layers(packed, shape.widths.data(), (int)shape.widths.size() / 2, with_backward);
}

// The gradient of the table from the values of all blocks, one level per thread, in the order of the points. The sum
// does not depend on the number of threads, and the part of the table being written stays in the cache.
template <bool SLOPES>
inline void reduce_table(const GridShape &shape, long n, const float *left, const float *record, float *d_table) {
#pragma omp parallel
    {
        Cells cells;
#pragma omp for schedule(dynamic)
        for (int l = (int)shape.grid.size() - 1; l >= 0; l--) {
            const Level &level = shape.grid[l];
            float *gradient = d_table + level.start;
            std::memset(gradient, 0, level.size * sizeof(float));
            if (l >= shape.active) continue;
            for (long b = 0; b * BLOCK < n; b++) {
                const GridLeft from(const_cast<float *>(left + b * shape.left()));
                expect(from.points + shape.left(), POINT * (BLOCK + (SLOPES ? PAIRS : 0)));
                expect(from.features + shape.left() + l * PAIRS, PAIRS);
                locate(level, from.points, cells);
                const float *pull = nullptr;
                if (SLOPES) {
                    pull = GridRecord(shape, const_cast<float *>(record + b * shape.recorded())).pull + l * PAIRS;
                    expect(pull + shape.recorded(), PAIRS);
                }
                scatter<SLOPES>(cells, from.features + l * PAIRS, pull, from.push, gradient);
            }
        }
    }
}

// Outputs [n, O] alone, and the record for the backward pass where `sizes.keeps`.
inline void grid_values(const GridSizes &sizes, long n, const float *points, const float *table, const float *packed,
                        float *values, float *kept) {
    const GridShape shape(sizes);
    const std::vector<Layer> layers = grid_layers(shape, packed, false);
    const int outputs = layers.back().outputs;
    const long stride = shape.width(shape.hidden());
    each_block<GridBlock>(shape, layers, n, [&](GridBlock &block, long begin, int count) {
        const GridRecord record(shape, sizes.keeps ? kept + begin / BLOCK * shape.recorded() : block.scratch_record);
        block.encode(table, points + begin * 3, count, record, false);
        block.values(false);
        for (int r = 0; r < count; r++)
            std::memcpy(values + (begin + r) * outputs, block.wide_a + r * stride, outputs * sizeof(float));
    });
}

// Gradients of table and packed parameters from the cotangents of the outputs. `left` is scratch, [blocks,
// shape.left()].
inline void grid_values_backward(const GridSizes &sizes, long n, const float *points, const float *table,
                                 const float *packed, const float *kept, const float *d_values, float *d_table,
                                 float *d_packed, float *left) {
    const GridShape shape(sizes);
    const std::vector<Layer> layers = grid_layers(shape, packed, true);
    const int outputs = layers.back().outputs;
    const long stride = shape.width(shape.hidden());
    each_block<GridBlock>(shape, layers, n, d_packed, [&](GridBlock &block, long begin, int count, float *gradients) {
        const GridRecord record(shape, const_cast<float *>(kept + begin / BLOCK * shape.recorded()));
        const GridLeft leave(left + begin / BLOCK * shape.left());
        block.resume(points + begin * 3, count, record, leave);
        std::memset(block.wide_a, 0, BLOCK * stride * sizeof(float));
        for (int r = 0; r < count; r++)
            std::memcpy(block.wide_a + r * stride, d_values + (begin + r) * outputs, outputs * sizeof(float));
        block.backward_values(gradients, false);
        block.leave_features(leave);
    });
    reduce_table<false>(shape, n, left, nullptr, d_table);
}

// sdf [n, 1], feature [n, F], gradient [n, 3] and, where `sizes.keeps`, the record for the backward pass.
inline void grid_forward(const GridSizes &sizes, long n, const float *points, const float *table, const float *packed,
                         float *sdf, float *feature, float *gradient, float *kept) {
    const GridShape shape(sizes);
    const std::vector<Layer> layers = grid_layers(shape, packed, true);
    const int last = shape.hidden(), features = layers.back().outputs - 1;
    const long stride = shape.width(last);
    each_block<GridBlock>(shape, layers, n, [&](GridBlock &block, long begin, int count) {
        const GridRecord record(shape, sizes.keeps ? kept + begin / BLOCK * shape.recorded() : block.scratch_record);
        if (sizes.keeps) expect_to_write(record.hidden, BLOCK * shape.all_hidden());
        block.encode(table, points + begin * 3, count, record, true);
        block.values(true);
        for (int r = 0; r < count; r++) {
            sdf[begin + r] = block.wide_a[r * stride];
            std::memcpy(feature + (begin + r) * features, block.wide_a + r * stride + 1, features * sizeof(float));
        }
        block.sweep(-1);
        block.to_points(record, count, gradient + begin * 3);
    });
}

// Gradients of table and packed parameters from the cotangents of sdf, feature and gradient. `left` is scratch,
// [blocks, shape.left()].
inline void grid_backward(const GridSizes &sizes, long n, const float *points, const float *table, const float *packed,
                          const float *kept, const float *d_sdf, const float *d_feature, const float *d_gradient,
                          float *d_table, float *d_packed, float *left) {
    const GridShape shape(sizes);
    const std::vector<Layer> layers = grid_layers(shape, packed, true);
    const int last = shape.hidden(), features = layers.back().outputs - 1;
    const long stride = shape.width(last);
    each_block<GridBlock>(shape, layers, n, d_packed, [&](GridBlock &block, long begin, int count, float *gradients) {
        const GridRecord record(shape, const_cast<float *>(kept + begin / BLOCK * shape.recorded()));
        const GridLeft leave(left + begin / BLOCK * shape.left());
        block.resume(points + begin * 3, count, record, leave);
        for (int axis = 0; axis < POINT; axis++)
            for (int i = 0; i < PAIRS; i++) {
                const int r = i / FEATURES;
                leave.push[axis * PAIRS + i] = r < count ? d_gradient[(begin + r) * 3 + axis] : 0.f;
            }
        block.sweep(0);
        block.from_points(record, leave.push);
        block.backward_sweep(gradients);
        std::memset(block.wide_a, 0, BLOCK * stride * sizeof(float));
        for (int r = 0; r < count; r++) {
            block.wide_a[r * stride] = d_sdf[begin + r];
            std::memcpy(block.wide_a + r * stride + 1, d_feature + (begin + r) * features, features * sizeof(float));
        }
        block.backward_values(gradients, true);
        block.leave_features(leave);
    });
    reduce_table<true>(shape, n, left, kept, d_table);
}

}  // namespace neus
