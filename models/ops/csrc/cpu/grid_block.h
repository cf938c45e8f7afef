// A grid and its small network on blocks of points: value, feature and input gradient in one forward pass, and the
// gradients of table and weights from the cotangents of all three.
//
// Notation: x = (point, features of the active levels) is the input of the network, h_l = softplus(a_l) the output of
// hidden layer l of H, s_l = softplus'(a_l). The gradient is the sweep c_{H-1} = W_H[0], u_l = c_l s_l, c_{l-1} = u_l
// W_l, to c_{-1}, the derivative of the distance with respect to x. Its part for the features of a level is the `pull`,
// which the derivatives of the features map to the point. Points are constants.
#pragma once
#include "grid.h"
#include "softplus.h"

namespace neus {

constexpr int POINT = 3;                  // channels of x in front of the features

struct GridShape : GridSizes {
    std::vector<Level> grid;
    explicit GridShape(const GridSizes &sizes) : GridSizes(sizes), grid(read_levels(sizes)) {}
    int hidden() const { return (int)widths.size() / 2 - 1; }
    int width(int layer) const { return padded(widths[2 * layer + 1]); }
    long all_hidden() const {
        long total = 0;
        for (int l = 0; l < hidden(); l++) total += width(l);
        return total;
    }
    // Floats per block stored between forward and backward pass, and those for the gradient of the table.
    long recorded() const { return BLOCK * all_hidden() + 5l * active * PAIRS; }
    long left() const { return POINT * (BLOCK + PAIRS) + (long)active * PAIRS; }
};

// The stored values of a block.
struct GridRecord {
    float *hidden;    // h_l, one after the other, [BLOCK, width]
    float *features;  // [active, PAIRS]
    float *slopes;    // of the features along the axes, [active, 3, PAIRS]
    float *pull;      // [active, PAIRS]

    GridRecord(const GridShape &shape, float *at) : hidden(at) {
        features = hidden + BLOCK * shape.all_hidden();
        slopes = features + (long)shape.active * PAIRS;
        pull = slopes + 3l * shape.active * PAIRS;
    }
};

// The values of a block for the gradient of the table: its points [3, BLOCK], the cotangents of its gradients [3,
// PAIRS], repeated for every feature, and those of its features [active, PAIRS].
struct GridLeft {
    float *points, *push, *features;
    explicit GridLeft(float *at) : points(at), push(at + POINT * BLOCK), features(push + POINT * PAIRS) {}
};

struct GridBlock {
    const GridShape &shape;
    const std::vector<Layer> &layers;
    Cells cells[2];  // of this level and of the next, whose rows are prefetched
    float *scratch_record, *points, *input;
    // Of layer l: h_l (in the record), s_l, c_l, and the cotangent of a_l through s_l.
    std::vector<float *> hidden, slopes, carried, bent;
    float *wide_a, *wide_b, *wide_c;

    static long widest(const GridShape &shape) {
        int width = 0;
        for (int entry : shape.widths) width = std::max(width, padded(entry));
        return width;
    }
    static size_t scratch(const GridShape &shape, const std::vector<Layer> &layers) {
        return shape.recorded() + POINT * BLOCK + BLOCK * (4 + 3 * layers.size()) * widest(shape);
    }

    GridBlock(const GridShape &shape_, const std::vector<Layer> &layers_, Arena &arena)
        : shape(shape_), layers(layers_), hidden(shape.hidden()) {
        const long wide = widest(shape);
        scratch_record = arena.take(shape.recorded());
        points = arena.take(POINT * BLOCK);
        input = arena.take(BLOCK * wide);
        for (const Layer &layer : layers) {
            slopes.push_back(arena.take(BLOCK * wide));
            carried.push_back(arena.take(BLOCK * wide));
            bent.push_back(arena.take(BLOCK * wide));
        }
        wide_a = arena.take(BLOCK * wide);
        wide_b = arena.take(BLOCK * wide);
        wide_c = arena.take(BLOCK * wide);
        // c_{H-1} is equal for all points: the row of the distance in the last layer.
        for (int r = 0; r < BLOCK && shape.hidden() > 0; r++)
            std::copy(layers.back().weight, layers.back().weight + layers.back().inputs,
                      carried[shape.hidden() - 1] + r * shape.width(shape.hidden() - 1));
    }

    long input_stride() const { return padded(layers[0].inputs); }
    long inputs_of(int l) const { return l > 0 ? shape.width(l - 1) : input_stride(); }
    const float *input_of(int l) const { return l > 0 ? hidden[l - 1] : input; }

    // Compute the point and features of a block, with the derivatives of the features if requested.
    void encode(const float *table, const float *from, int count, const GridRecord &record, bool with_slopes) {
        transpose_points(from, count, points);
        for (int l = 0; l <= shape.active; l++) {
            if (l < shape.active) {
                locate(shape.grid[l], points, cells[l % 2]);
                prefetch(table + shape.grid[l].start, cells[l % 2]);
            }
            if (l > 0)
                interpolate(table + shape.grid[l - 1].start, cells[(l - 1) % 2], record.features + (l - 1) * PAIRS,
                            with_slopes ? record.slopes + 3 * (l - 1) * PAIRS : nullptr);
        }
        fill_input(record);
    }

    void fill_input(const GridRecord &record) {
        for (int axis = 0; axis < POINT; axis++)
            for (int r = 0; r < BLOCK; r++) input[r * input_stride() + axis] = points[axis * BLOCK + r];
        for (int l = 0; l < shape.active; l++)
            put_columns(record.features + l * PAIRS, input, input_stride(), POINT + l * FEATURES);
        place_hidden(record);
    }

    void place_hidden(const GridRecord &record) {
        float *at = record.hidden;
        for (int l = 0; l < shape.hidden(); l++, at += (long)BLOCK * shape.width(l - 1)) hidden[l] = at;
    }

    // Compute h_l and, if requested, s_l; then the outputs in wide_a, [BLOCK, width(H)].
    void values(bool with_slopes) {
        for (int l = 0; l < shape.hidden(); l++) {
            const long stride = shape.width(l);
            float *slope = slopes[l];
            auto bend = [=](Vec a, int i, int n) {
                return softplus(a, with_slopes ? (Unaligned *)(slope + i * stride + n) : nullptr);
            };
            layers[l].forward.multiply(BLOCK, input_of(l), inputs_of(l), hidden[l], stride,
                                       FromRow{layers[l].start.data()}, bend);
        }
        const int last = shape.hidden();
        layers[last].forward.multiply(BLOCK, input_of(last), inputs_of(last), wide_a, shape.width(last),
                                      FromRow{layers[last].start.data()});
    }

    // Restore x and s_l from the record, store the points for the table, and prefetch the next block's record.
    void resume(const float *from, int count, const GridRecord &record, const GridLeft &leave) {
        expect(record.hidden + shape.recorded(), shape.recorded());
        transpose_points(from, count, points);
        std::memcpy(leave.points, points, POINT * BLOCK * sizeof(float));
        fill_input(record);
        recover_slopes();
    }

    // The cotangents of the features, from those of x in wide_b.
    void leave_features(const GridLeft &leave) const {
        for (int l = 0; l < shape.active; l++)
            take_columns(wide_b, input_stride(), POINT + l * FEATURES, leave.features + l * PAIRS);
    }

    // s_l again, from h_l.
    void recover_slopes() {
        for (int l = 0; l < shape.hidden(); l++)
            for (long i = 0; i < BLOCK * shape.width(l); i += LANES)
                *(Unaligned *)(slopes[l] + i) = softplus_slope(*(Unaligned *)(hidden[l] + i));
    }

    // c_l of all layers down to `lowest`; c_{-1} in wide_b, [BLOCK, input_stride()].
    void sweep(int lowest) {
        for (int l = shape.hidden() - 1; l > lowest; l--) {
            times(BLOCK * shape.width(l), carried[l], slopes[l], wide_c);
            layers[l].backward.multiply(BLOCK, wide_c, shape.width(l), l > 0 ? carried[l - 1] : wide_b, inputs_of(l));
        }
    }

    static void times(long size, const float *a, const float *b, float *to) {
        for (long i = 0; i < size; i += LANES)
            *(Unaligned *)(to + i) = *(const Unaligned *)(a + i) * *(const Unaligned *)(b + i);
    }

    // From c_{-1} in wide_b: the pull, and the gradient [count, 3].
    void to_points(const GridRecord &record, int count, float *gradient) {
        for (int l = 0; l < shape.active; l++)
            take_columns(wide_b, input_stride(), POINT + l * FEATURES, record.pull + l * PAIRS);
        for (int axis = 0; axis < 3; axis++) {
            float sums[PAIRS];
            for (int g = 0; g < BLOCK / GROUP; g++) {
                Vec sum{};
                for (int l = 0; l < shape.active; l++)
                    sum += at((const float *)record.pull + l * PAIRS, g) *
                           at((const float *)record.slopes + (3 * l + axis) * PAIRS, g);
                at(sums, g) = sum;
            }
            for (int r = 0; r < count; r++) {
                float total = wide_b[r * input_stride() + axis];
                for (int f = 0; f < FEATURES; f++) total += sums[r * FEATURES + f];
                gradient[r * 3 + axis] = total;
            }
        }
    }

    // The cotangents of the gradient [3, PAIRS] as those of c_{-1}, in wide_b.
    void from_points(const GridRecord &record, const float *push) {
        for (int axis = 0; axis < 3; axis++)
            for (int r = 0; r < BLOCK; r++) wide_b[r * input_stride() + axis] = push[axis * PAIRS + r * FEATURES];
        for (int l = 0; l < shape.active; l++) {
            float sums[PAIRS];
            for (int g = 0; g < BLOCK / GROUP; g++) {
                Vec sum{};
                for (int axis = 0; axis < 3; axis++)
                    sum += at(push + axis * PAIRS, g) * at((const float *)record.slopes + (3 * l + axis) * PAIRS, g);
                at(sums, g) = sum;
            }
            put_columns(sums, wide_b, input_stride(), POINT + l * FEATURES);
        }
    }

    // The cotangents of the sweep, from those of c_{-1} in wide_b, first layer to last: weight gradients, and bent[l].
    void backward_sweep(float *gradients) {
        float *into = wide_b, *other = wide_c;
        for (int l = 0; l < shape.hidden(); l++) {
            const long stride = shape.width(l);
            times(BLOCK * stride, carried[l], slopes[l], wide_a);
            add_weights(l, wide_a, into, gradients);
            const float *slope = slopes[l], *c = carried[l];
            float *to_bent = bent[l];
            auto finish = [=](Vec d, int i, int n) {
                const long at = i * stride + n;
                const Vec s = *(const Unaligned *)(slope + at), through = d * s;
                *(Unaligned *)(to_bent + at) = *(const Unaligned *)(c + at) * through * (1.f - s) * BETA;
                return through;
            };
            layers[l].forward.multiply(BLOCK, into, inputs_of(l), other, stride, FromZero{}, finish);
            std::swap(into, other);
        }
        add_rows(layers.back().inputs, into, shape.width(shape.hidden() - 1),
                 gradients + layers.back().gradient_offset);
    }

    // The cotangents of the values, last layer to first, from those of the outputs in wide_a, zero in rows past the
    // points; bent[l] joins them where `swept`. Leaves the cotangent of x in wide_b.
    void backward_values(float *gradients, bool swept) {
        for (int l = shape.hidden(); l >= 0; l--) {
            add_weights(l, wide_a, input_of(l), gradients);
            add_rows(layers[l].outputs, wide_a, shape.width(l), gradients + layers[l].bias_offset());
            const Panels &weights = layers[l].backward;
            if (l == 0) {
                weights.multiply(BLOCK, wide_a, shape.width(0), wide_b, inputs_of(0));
                return;
            }
            const long stride = inputs_of(l);
            const float *slope = slopes[l - 1], *joins = bent[l - 1];
            auto finish = [=](Vec d, int i, int n) {
                const long at = i * stride + n;
                d *= *(const Unaligned *)(slope + at);
                return swept ? d + *(const Unaligned *)(joins + at) : d;
            };
            weights.multiply(BLOCK, wide_a, shape.width(l), wide_b, stride, FromZero{}, finish);
            std::swap(wide_a, wide_b);
        }
    }

    // The gradient of layer l's matrix += cotangent^T input.
    void add_weights(int l, const float *cotangent, const float *from, float *gradients) const {
        const long stride = stride_of(layers[l].inputs);
        float *sum = gradients + layers[l].gradient_offset;
        product(shape.width(l), (int)inputs_of(l), BLOCK, cotangent, 1, shape.width(l), from, inputs_of(l), 2 * LANES,
                sum, stride, FromThere{sum, stride}, AsItIs{});
    }
};

}  // namespace neus
