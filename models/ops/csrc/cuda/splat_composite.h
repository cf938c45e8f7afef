// Rasterise Gaussians front to back. A block renders a tile, a thread a pixel. A block tests all Gaussians in depth
// order, in batches, and uses those with a window that intersects the tile, so that memory does not grow with the
// number of pairs. The reference is ops/splat_raster.py.
//
// The contributions of tiles to a Gaussian are added as integers, so that the sum does not depend on the order: a
// coarse part, and a fine part of the remainder. Together they have the precision of float32 for gradients from FINEST
// to LARGEST.
#pragma once
#include "reduce.h"
#include "splat_order.h"
#include "splat_surfel.h"

namespace neus {

constexpr int TILE = THREADS >= 256 ? 16 : 8;  // pixels along a side
constexpr int BATCH = 16;                      // Gaussians that a tile processes together in the backward pass
constexpr int PER_GAUSSIAN = THREADS / BATCH;  // threads for each of these Gaussians
static_assert(TILE * TILE == THREADS, "a thread for each pixel");
// Units 2^-20 and 2^-69: contributions of a tile are below 2^29, so that 2^13 tiles stay below 2^62 coarse units; each
// remainder is below 2^49 fine units.
constexpr double COARSE = 1048576.0, FINE = 562949953421312.0, LARGEST = 536870912.0;

// The layout, passed with a launch.
struct Canvas {
    int width, height;
    int tiles() const { return ((width + TILE - 1) / TILE) * ((height + TILE - 1) / TILE); }
};

template <typename Form>
struct Entry {
    typename Form::Splat splat;
    Window window;
};

// The Gaussians in depth order: entries [count] with indices order [count]; the first seen[0] are visible.
template <typename Form>
struct Queue {
    Scratch<Entry<Form>> entry_scratch;
    Scratch<int> order_scratch, seen_scratch;
    Entry<Form> *entries;
    int *order, *seen;

    Queue(const Canvas &is, const typename Form::Inputs &in, const int *radii, long count)
        : entry_scratch(count), order_scratch(count), seen_scratch(1) {
        entries = entry_scratch.values, order = order_scratch.values, seen = seen_scratch.values;
        by_depth(count, in.depths, radii, order, seen);
        fill(is.width, is.height, in, count, entries, order, seen);
    }
    static void fill(int width, int height, const typename Form::Inputs in, long count, Entry<Form> *entries,
                     const int *order, const int *seen) {
        each(count, [=] __device__(long rank) {
            if (rank >= seen[0]) return;
            entries[rank].splat = Form::splat(in, order[rank]);
            entries[rank].window = Form::reach_of(entries[rank].splat, width, height);
        });
    }
};

// A tile and this thread's pixel in it.
struct Pixel {
    int x0, y0;
    float px, py;
    long index;  // in the image; -1 outside
    __device__ Pixel(const Canvas &is, int tile, int t) {
        const int across = (is.width + TILE - 1) / TILE, x = t % TILE, y = t / TILE;
        x0 = tile % across * TILE, y0 = tile / across * TILE;
        px = x + 0.5f, py = y + 0.5f;
        index = x0 + x < is.width && y0 + y < is.height ? (long)(y0 + y) * is.width + x0 + x : -1;
    }
    __device__ bool is_touched(const Window &w) const {
        return w.left <= w.right && w.top <= w.bottom && w.left < x0 + TILE && w.right >= x0 && w.top < y0 + TILE &&
               w.bottom >= y0;
    }
};

// The next THREADS Gaussians that intersect the tile, by depth rank; returns their number. All threads of the block
// must call it.
template <typename Form>
__device__ inline int touching(const Entry<Form> *entries, int start, int seen, const Pixel &pixel, int *sums, int *found) {
    const int t = threadIdx.x, rank = start + t;
    const int is_one = rank < seen && pixel.is_touched(entries[rank].window) ? 1 : 0;
    __syncthreads();
    sums[t] = is_one;
    __syncthreads();
    for (int step = 1; step < THREADS; step *= 2) {
        const int before = t >= step ? sums[t - step] : 0;
        __syncthreads();
        sums[t] += before;
        __syncthreads();
    }
    if (is_one) found[sums[t] - 1] = rank;
    const int all = sums[THREADS - 1];
    __syncthreads();
    return all;
}

// The transmittance of a pixel.
template <typename Form>
struct Light {
    float left = 1.f, origin = 0.f;
    bool live;
    // Whether a Gaussian contributes; then its weight and the transmittance before it.
    __device__ bool meets(const Opacity &opacity, const typename Form::Hit &hit, float &weight, float &before) {
        if (!live || !(opacity.alpha >= LARGEST_FRACTION)) return false;
        before = left;
        const float after = before * (1.f - opacity.alpha);
        if (after <= LEAST_LEFT) {
            live = false;
            return false;
        }
        weight = before * opacity.alpha;
        left = after;
        origin = Form::origin(hit, before, weight, origin);
        return true;
    }
};

// picture [H, W, channels + 1]: weighted sums, the opacity last.
template <typename Form>
__global__ inline void composite_kernel(Canvas is, const int *seen, const Entry<Form> *entries, const float *background,
                                        float *picture) {
    SHARED(int, sums, THREADS);
    SHARED(int, found, THREADS);
    SHARED(typename Form::Splat, splats, THREADS);
    const Pixel pixel(is, blockIdx.x, threadIdx.x);
    Light<Form> light;
    light.live = pixel.index >= 0;
    float shown[Form::CHANNELS] = {};
    for (int start = 0; start < seen[0]; start += THREADS) {
        __syncthreads();
        if (block_sum(light.live ? 1 : 0, sums) == 0) break;
        const int count = touching(entries, start, seen[0], pixel, sums, found), t = threadIdx.x;
        if (t < count) splats[t] = Form::seen_from(entries[found[t]].splat, pixel.x0, pixel.y0);
        __syncthreads();
        for (int k = 0; k < count && light.live; k++) {
            typename Form::Hit hit;
            const Opacity opacity(splats[k].opacity, Form::sigma(splats[k], pixel.px, pixel.py, hit));
            float weight, before;
            if (light.meets(opacity, hit, weight, before)) Form::add(shown, splats[k], hit, weight, before, light.origin);
        }
    }
    if (pixel.index < 0) return;
    float *to = picture + pixel.index * (Form::CHANNELS + 1);
    for (int c = 0; c < Form::CHANNELS; c++) to[c] = shown[c] + (c < 3 ? light.left * background[c] : 0.f);
    to[Form::CHANNELS] = 1.f - light.left;
}

template <typename Form>
inline void composite(const Raster &raster, const typename Form::Inputs &in, const int *radii, long count,
                      const float *background, float *picture) {
    const Canvas is{raster.width, raster.height};
    const Queue<Form> queue(is, in, radii, count);
    launch(composite_kernel<Form>, dim3((unsigned)is.tiles()), THREADS, is, queue.seen, queue.entries, background, picture);
}

// Add a tile's contribution to the two sums of a number; lost[0] records contributions that are not finite.
__device__ inline void add_part(float part, unsigned long long *sums, int *lost) {
    if (part == 0.f) return;
    if (!isfinite(part)) {
        atomicOr(lost, 1);
        return;
    }
    const double value = fmin(fmax((double)part, -LARGEST), LARGEST) * COARSE, whole = rint(value);
    const double fine = rint((value - whole) * FINE);
    if (whole != 0.0) atomicAdd(sums, (unsigned long long)(long long)whole);
    if (fine != 0.0) atomicAdd(sums + 1, (unsigned long long)(long long)fine);
}

// A column of shared memory: the numbers of one pixel.
struct Column {
    const float *at;
    __device__ float operator[](int c) const { return at[c * THREADS]; }
};

// The gradients of a pixel for a batch of Gaussians: work [2 BATCH, THREADS] contains those of the exponent, and the
// weights.
template <typename Form>
__device__ inline void look(const typename Form::Splat *splats, int size, const Pixel &pixel, Column g,
                            Light<Form> &light, float &rest, float *work) {
    for (int k = 0; k < size; k++) {
        typename Form::Hit hit;
        const Opacity opacity(splats[k].opacity, Form::sigma(splats[k], pixel.px, pixel.py, hit));
        float weight = 0.f, before = 0.f, passed = 0.f;
        if (light.meets(opacity, hit, weight, before)) {
            const float worth = g[Form::SUMMED] + Form::worth(g, splats[k], hit, light.origin);
            rest -= weight * worth;
            passed = (before * worth - rest / (1.f - opacity.alpha)) * opacity.passes;
        }
        work[k * THREADS + threadIdx.x] = passed;
        work[(BATCH + k) * THREADS + threadIdx.x] = weight;
    }
}

// The gradients of a batch from the result of `look`: PER_GAUSSIAN threads per Gaussian, then one. All threads of the block
// must call it.
template <typename Form>
__device__ inline void gather(const Canvas &is, const typename Form::Splat *splats, const int *ranks, int size,
                              const Pixel &pixel, const float *cotangents, const float *origins, float *work,
                              unsigned long long *totals, int *lost) {
    const int t = threadIdx.x, k = t / PER_GAUSSIAN;
    float acc[Form::GRADIENTS] = {};
    for (int p = t % PER_GAUSSIAN; k < size && p < THREADS; p += PER_GAUSSIAN) {
        const float passed = work[k * THREADS + p], weight = work[(BATCH + k) * THREADS + p];
        if (weight == 0.f) continue;
        typename Form::Hit hit;
        Form::sigma(splats[k], p % TILE + 0.5f, p / TILE + 0.5f, hit);
        acc[Form::D_OPACITY] += passed;
        Form::back(acc, splats[k], hit, -passed, weight, Column{cotangents + p}, origins[p]);
    }
    __syncthreads();
    for (int c = 0; c < Form::GRADIENTS; c++) work[c * THREADS + t] = acc[c];
    __syncthreads();
    if (t >= size) return;
    float record[Form::GRADIENTS];
    for (int c = 0; c < Form::GRADIENTS; c++) {
        float sum = 0.f;
        for (int lane = 0; lane < PER_GAUSSIAN; lane++) sum += work[c * THREADS + t * PER_GAUSSIAN + lane];
        record[c] = sum;
    }
    record[Form::D_OPACITY] /= splats[t].opacity;
    Form::finish(splats[t], pixel.x0, pixel.y0, record);
    for (int c = 0; c < Form::GRADIENTS; c++)
        add_part(record[c], totals + 2 * ((long)ranks[t] * Form::GRADIENTS + c), lost);
}

// totals [count, gradients, 2] by rank.
template <typename Form>
__global__ inline void composite_backward_kernel(Canvas is, const int *seen, const Entry<Form> *entries,
                                                 const float *picture, const float *d_picture, unsigned long long *totals,
                                                 int *lost) {
    constexpr int ALL = Form::CHANNELS + 1, HEARD = Form::SUMMED + 1;  // the opacity's cotangent follows those of sums
    static_assert(Form::GRADIENTS <= 2 * BATCH, "gradients of all threads have room where the pulls were");
    SHARED(int, sums, THREADS);
    SHARED(int, found, THREADS);
    SHARED(typename Form::Splat, splats, BATCH);
    SHARED(float, cotangents, HEARD * THREADS);
    SHARED(float, origins, THREADS);
    SHARED(float, work, 2 * BATCH * THREADS);
    const int t = threadIdx.x;
    const Pixel pixel(is, blockIdx.x, t);
    Light<Form> light;
    light.live = pixel.index >= 0;
    float rest = 0.f;
    for (int c = 0; c < HEARD; c++) {
        const long at = pixel.index * ALL + (c < Form::SUMMED ? c : Form::CHANNELS);
        const float by = light.live ? d_picture[at] : 0.f;
        cotangents[c * THREADS + t] = by;
        if (light.live) rest += picture[at] * by;
    }
    for (int start = 0; start < seen[0]; start += THREADS) {
        __syncthreads();
        if (block_sum(light.live ? 1 : 0, sums) == 0) break;
        const int count = touching(entries, start, seen[0], pixel, sums, found);
        for (int first = 0; first < count; first += BATCH) {
            const int size = count - first < BATCH ? count - first : BATCH;
            if (t < size) splats[t] = Form::seen_from(entries[found[first + t]].splat, pixel.x0, pixel.y0);
            __syncthreads();
            look<Form>(splats, size, pixel, Column{cotangents + t}, light, rest, work);
            origins[t] = light.origin;
            __syncthreads();
            gather<Form>(is, splats, found + first, size, pixel, cotangents, origins, work, totals, lost);
            __syncthreads();
        }
    }
}

// The gradients of the inputs from an image and its cotangent.
template <typename Form>
inline void composite_backward(const Raster &raster, const typename Form::Inputs &in, const int *radii, long count,
                               const float *picture, const float *d_picture, const typename Form::Outputs &outputs) {
    constexpr int GRADIENTS = Form::GRADIENTS;
    const Canvas is{raster.width, raster.height};
    const Queue<Form> queue(is, in, radii, count);
    Scratch<unsigned long long> total_scratch(2 * count * GRADIENTS);
    Scratch<int> lost_scratch(1);
    unsigned long long *totals = total_scratch.values;
    int *lost = lost_scratch.values;
    const int *order = queue.order;
    const typename Form::Outputs out = outputs;
    clear(totals, 2 * count * GRADIENTS);
    clear(lost, 1);
    launch(composite_backward_kernel<Form>, dim3((unsigned)is.tiles()), THREADS, is, queue.seen, queue.entries, picture,
           d_picture, totals, lost);
    each(count, [=] __device__(long rank) {
        float values[GRADIENTS];
        for (int c = 0; c < GRADIENTS; c++) {
            const unsigned long long *parts = totals + 2 * (rank * GRADIENTS + c);
            const double found = ((double)(long long)parts[0] + (double)(long long)parts[1] / FINE) / COARSE;
            values[c] = lost[0] ? NAN : (float)found;  // NaN if any contribution is not finite
        }
        Form::write(out, order[rank], values);
    });
}

}  // namespace neus
