// CPU definitions of models/ops/csrc/cuda/device.h, to test the logic of CUDA sources. Blocks run one after another,
// their threads as fibers of one system thread. Errors are detected if a result depends on the order of threads or
// blocks, if memory is read before it is written, if scratch is overrun, or if not all threads reach a barrier, or not all
// lanes of a warp a call that they make together.
#pragma once
#include <ucontext.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using std::isfinite;

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct float4 {
    float x, y, z, w;
};
struct float2 {
    float x, y;
};
struct uint4 {
    uint32_t x, y, z, w;
};
static dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emulation {

enum Order { UP, DOWN, SHUFFLED, DRY };
static int order = UP;  // of threads between two barriers, of blocks, and of work without either; DRY: nothing runs
constexpr size_t STACK = 1 << 16, SHARED_BYTES = 48 << 10;  // 48 KiB: available to a block on every GPU
constexpr size_t MOST_SHARED = 227 << 10;  // to a block that asks for it, on 9.0
static long card_shared = MOST_SHARED;     // the same on the emulated card
static bool rounds_factors = false;        // as train.tf32 asks for
static int card_multiprocessors = 0;       // 0: an H100's where nothing runs, else one, so that few points take several passes
constexpr unsigned MOST_THREADS = 1024, LANES = 32;

// What was started since the last call of `emulated_work`.
struct Product {
    long rows, columns, depth;
    bool is_aligned;  // all operands, and all lengths along their rows, are whole vectors of 16 bytes
};
static std::vector<Product> products;
static long launches, bytes, most_bytes;  // bytes: of scratch at a time

enum State { READY, AT_BARRIER, IN_WARP, DONE };
struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    State state;
    int barrier;  // the number of that where it waits
    size_t shared_taken;  // of the block's shared memory
};
// What the lanes of a warp that have arrived bring to the call that they make together.
struct Warp {
    const char *call;
    unsigned arrived;
    void *brought[LANES];
};
static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
static ucontext_t scheduler;
static unsigned current;
static std::function<void()> body;
alignas(64) static unsigned char shared_memory[MOST_SHARED];
static size_t shared_bytes;

// 0 ... count - 1 in the selected order.
inline std::vector<long> ordered(long count) {
    std::vector<long> places(count);
    std::iota(places.begin(), places.end(), 0l);
    if (order == DOWN) std::reverse(places.begin(), places.end());
    static std::mt19937 random(1);
    if (order == SHUFFLED) std::shuffle(places.begin(), places.end(), random);
    return places;
}

static std::exception_ptr failure;

inline void enter() {
    try {
        body();
    } catch (...) {  // must not leave the fiber, which has no handler
        failure = std::current_exception();
    }
    fibers[current].state = DONE;
    swapcontext(&fibers[current].context, &scheduler);
}

inline void wait(State state) {
    fibers[current].state = state;
    swapcontext(&fibers[current].context, &scheduler);
}

// A barrier of so many threads of the block.
inline void wait_for(int number, unsigned threads) {
    fibers[current].barrier = number;
    fibers[current].state = AT_BARRIER;
    const auto is_there = [=](const Fiber &one) { return one.state == AT_BARRIER && one.barrier == number; };
    if (number < 0 || number > 15 || threads % LANES) throw std::runtime_error("a barrier that there is not");
    if (std::count_if(fibers.begin(), fibers.begin() + blockDim.x, is_there) == threads)
        for (Fiber &one : fibers)
            if (is_there(one)) one.state = READY;
    if (fibers[current].state == AT_BARRIER) return wait(AT_BARRIER);
}

// A call of all lanes of a warp: the last to arrive does work(what each lane brought) for all of them.
template <typename Brought, typename Work>
inline void together(const char *call, Brought &brought, Work work) {
    Warp &warp = warps[current / LANES];
    if (warp.arrived > 0 && warp.call != call) throw std::runtime_error("lanes of a warp that make different calls");
    warp.call = call;
    warp.brought[current % LANES] = &brought;
    if (++warp.arrived < LANES) return wait(IN_WARP);
    work([&warp](unsigned lane) -> Brought & { return *(Brought *)warp.brought[lane]; });
    warp.arrived = 0;
    for (unsigned lane = 0; lane < LANES; lane++) fibers[current / LANES * LANES + lane].state = READY;
}

// The next part of the block's shared memory: the same for all threads, which allocate in the same order.
inline void *take_shared(size_t bytes) {
    size_t &taken = fibers[current].shared_taken;
    void *piece = shared_memory + taken;
    taken += (bytes + 15) / 16 * 16;
    if (taken > shared_bytes) throw std::runtime_error("more shared memory than a block has");
    return piece;
}

inline void run_block(unsigned count) {
    std::memset(shared_memory, 0xff, shared_bytes);  // NaN, so that reads before writes are detected
    if (fibers.size() < count) fibers.resize(count);
    warps.assign((count + LANES - 1) / LANES, {});
    for (unsigned t = 0; t < count; t++) {
        Fiber &fiber = fibers[t];
        fiber.state = READY;
        fiber.shared_taken = 0;
        fiber.stack.resize(STACK);
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = STACK;
        fiber.context.uc_link = &scheduler;
        makecontext(&fiber.context, enter, 0);
    }
    const auto all = [count](State state) {
        return std::all_of(fibers.begin(), fibers.begin() + count, [=](const Fiber &one) { return one.state == state; });
    };
    while (!all(DONE)) {
        bool has_run = false;
        for (long t : ordered(count)) {
            if (fibers[t].state != READY) continue;
            has_run = true;
            current = (unsigned)t;
            threadIdx = dim3(current);
            swapcontext(&scheduler, &fibers[t].context);
            if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
        }
        if (has_run) continue;
        throw std::runtime_error("a barrier that a thread does not reach");
    }
}

// The nearest half, of two the even one; infinity from 65,520 on.
inline uint16_t half_of(float x) {
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const double size = std::fabs((double)x);
    if (std::isnan(x)) return sign | 0x7e00;
    if (size >= 65520.0) return sign | 0x7c00;
    const int exponent = size < std::ldexp(1.0, -14) ? -14 : std::ilogb(size);  // below are subnormal numbers
    return sign | (uint16_t)((exponent + 14) * 1024 + (int)std::nearbyint(std::ldexp(size, 10 - exponent)));
}

inline float float_of(uint16_t half) {
    const int exponent = half >> 10 & 31, digits = half & 1023;
    const float size = exponent == 31 ? (digits ? NAN : INFINITY)
                                      : std::ldexp((float)(exponent ? 1024 + digits : digits), (exponent ? exponent : 1) - 25);
    return half & 0x8000 ? -size : size;
}

inline float half_at(const uint32_t *pairs, int i) { return float_of((uint16_t)(pairs[i / 2] >> 16 * (i % 2))); }

// sum + a . b of eight values, as tensor cores add: every term loses its digits below the 24 of the largest.
inline float dot8(float sum, const float *a, const float *b) {
    double terms[9] = {sum}, largest = std::fabs((double)sum), total = 0;
    for (int i = 0; i < 8; i++) {
        terms[i + 1] = (double)a[i] * b[i];
        largest = std::max(largest, std::fabs(terms[i + 1]));
    }
    if (!(largest > 0) || std::isinf(largest)) return sum + (float)std::accumulate(terms + 1, terms + 9, 0.0);
    const double unit = std::ldexp(1.0, std::ilogb(largest) - 23);
    for (double term : terms) total += std::trunc(term / unit) * unit;
    const float nearest = (float)total;
    return std::fabs((double)nearest) > std::fabs(total) ? std::nextafter(nearest, 0.f) : nearest;
}

struct Fragments {
    float *sums;
    const uint32_t *a;
    uint32_t b[2];
};

// mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32, from the layout of fragments in PTX: in groups of four lanes.
inline void multiply_matrices(Fragments &own) {
    together("mma", own, [](auto of) {
        float a[16][16], b[8][16], c[16][8];
        for (int lane = 0; lane < 32; lane++) {
            const int group = lane / 4, pair = 2 * (lane % 4);
            for (int i = 0; i < 8; i++)
                a[group + 8 * (i / 2 % 2)][pair + 8 * (i / 4) + i % 2] = half_at(of(lane).a, i);
            for (int i = 0; i < 4; i++) b[group][pair + 8 * (i / 2) + i % 2] = half_at(of(lane).b, i);
            for (int i = 0; i < 4; i++) c[group + 8 * (i / 2)][pair + i % 2] = of(lane).sums[i];
        }
        for (int lane = 0; lane < 32; lane++)
            for (int i = 0; i < 4; i++) {
                const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
                of(lane).sums[i] = dot8(dot8(c[row][column], a[row], b[column]), a[row] + 8, b[column] + 8);
            }
    });
}

struct MatrixRows {
    uint32_t *fragments;
    const uint16_t *row;
};

// ldmatrix.sync.aligned.m8n8.x4.shared.b16, with .trans if turned: lane 8 i + r gives row r of matrix i.
inline void load_matrices(MatrixRows &own, bool is_turned) {
    const auto offset = (const unsigned char *)own.row - shared_memory;
    if (offset < 0 || offset + 16 > (long)shared_bytes || offset % 16) throw std::runtime_error("a row that ldmatrix cannot read");
    together(is_turned ? "ldmatrix.trans" : "ldmatrix", own, [=](auto of) {
        for (int lane = 0; lane < 32; lane++)
            for (int i = 0; i < 4; i++) {
                const int row = lane / 4, column = 2 * (lane % 4);
                const auto at = [&](int r, int c) { return (uint32_t)of(8 * i + r).row[c]; };
                of(lane).fragments[i] = is_turned ? at(column, row) | at(column + 1, row) << 16
                                                  : at(row, column) | at(row, column + 1) << 16;
            }
    });
}

}  // namespace emulation

inline void __syncthreads() { emulation::wait_for(0, blockDim.x); }

inline float atomicAdd(float *to, float value) { return std::exchange(*to, *to + value); }

inline unsigned long long atomicAdd(unsigned long long *to, unsigned long long value) {
    const unsigned long long old = *to;
    *to += value;
    return old;
}
inline int atomicOr(int *to, int value) {
    const int old = *to;
    *to |= value;
    return old;
}
inline unsigned atomicMax(unsigned *to, unsigned value) {
    const unsigned old = *to;
    *to = std::max(old, value);
    return old;
}

// Rounded separately: the emulation is compiled without contraction.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }

// As on a GPU where nothing runs, else so few that some points already take several passes through a network.
#define ACTIVATION_FLOATS (emulation::order == emulation::DRY ? 16384l * 260 : 1040l)

#define SHARED_OF_LAUNCH(name) unsigned char *name = emulation::shared_memory
#define SHARED(type, name, count) type *name = (type *)emulation::take_shared((count) * sizeof(type))

namespace neus {

constexpr int THREADS = 64;
constexpr long MANY_THREADS = 1 << 10;
constexpr long GUARD = 16;  // values behind scratch that must stay as they are

template <typename T>
struct Scratch {
    T *values;
    explicit Scratch(long count_)
        : count(emulation::order == emulation::DRY ? 0 : count_ > 0 ? count_ : 1),
          memory((count + GUARD) * sizeof(T), 0xff), bytes(count_ * sizeof(T)) {
        values = (T *)memory.data();
        emulation::bytes += bytes;
        emulation::most_bytes = std::max(emulation::most_bytes, emulation::bytes);
    }
    Scratch(Scratch &&other)
        : values(other.values), count(other.count), memory(std::move(other.memory)),
          bytes(std::exchange(other.bytes, 0)) {}
    ~Scratch() noexcept(false) {
        emulation::bytes -= bytes;
        for (size_t i = count * sizeof(T); i < memory.size(); i++)
            if (memory[i] != 0xff && !std::uncaught_exceptions()) throw std::runtime_error("a write beyond scratch");
    }

   private:
    long count;
    std::vector<unsigned char> memory;
    long bytes;
};

inline bool is_reduced() { return emulation::rounds_factors; }
inline long most_shared() { return emulation::card_shared; }
inline int multiprocessors() {
    return emulation::card_multiprocessors ? emulation::card_multiprocessors : emulation::order == emulation::DRY ? 132 : 1;
}

template <typename... Parameters, typename... Arguments>
inline void launch_sharing(void (*kernel)(Parameters...), dim3 blocks, int threads, long shared, Arguments... arguments) {
    if (shared > most_shared()) throw std::runtime_error("more shared memory than the GPU gives a block");
    emulation::shared_bytes = shared;
    if (threads < 1 || threads > (int)emulation::MOST_THREADS) throw std::runtime_error("a block of so many threads");
    if (blocks.x < 1 || blocks.y < 1 || blocks.y > 65535 || blocks.z > 65535) throw std::runtime_error("so many blocks");
    emulation::launches++;
    if (emulation::order == emulation::DRY) return;
    gridDim = blocks;
    blockDim = dim3(threads);
    emulation::body = [=] { kernel(Parameters(arguments)...); };
    for (long b : emulation::ordered((long)blocks.x * blocks.y * blocks.z)) {
        blockIdx = dim3(b % blocks.x, b / blocks.x % blocks.y, b / blocks.x / blocks.y);
        emulation::run_block(threads);
    }
}

template <typename... Parameters, typename... Arguments>
inline void launch(void (*kernel)(Parameters...), dim3 blocks, int threads, Arguments... arguments) {
    launch_sharing(kernel, blocks, threads, emulation::SHARED_BYTES, arguments...);
}

template <typename Work>
inline void each(long count, Work work) {
    static_assert(std::is_trivially_copyable<Work>::value, "what the work captures travels to the card as bytes");
    if (count <= 0) return;
    emulation::launches++;
    if (emulation::order == emulation::DRY) return;
    for (long i : emulation::ordered(count)) work(i);
}

// Off by almost two units in the last place, as far as the instruction may be, to a side that depends on x.
inline float power_of_2(float x) {
    const double power = std::exp2((double)x);
    if (x == 0.f || std::isnan(x) || std::isinf(power)) return (float)power;
    if (power < std::numeric_limits<float>::min()) return 0.f;
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    const float nearest = (float)power, unit = std::nextafter(nearest, INFINITY) - nearest;
    return (float)(power + (bits * 2654435761u >> 31 ? 1.4 : -1.4) * unit);
}

// Off by one unit in the last place, to a side that depends on the value.
inline float reciprocal(float value) {
    const float nearest = 1.f / value;
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return std::isinf(value) || nearest == 0.f ? 0.f : std::nextafter(nearest, bits * 2654435761u >> 31 ? INFINITY : 0.f);
}

inline uint32_t halves(float low, float high) {
    return emulation::half_of(low) | (uint32_t)emulation::half_of(high) << 16;
}
inline float lower_half(uint32_t pair) { return emulation::float_of((uint16_t)pair); }
inline float upper_half(uint32_t pair) { return emulation::float_of((uint16_t)(pair >> 16)); }

inline void multiply_matrices(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    emulation::Fragments own{sums, a, {b0, b1}};
    emulation::multiply_matrices(own);
}

template <bool IS_TURNED>
inline void load_matrices(uint32_t (&fragments)[4], const uint16_t *row) {
    emulation::MatrixRows own{fragments, row};
    emulation::load_matrices(own, IS_TURNED);
}

inline int not_before(int value) { return value; }

inline float largest_of_warp(float value) {
    emulation::together("shfl", value, [](auto of) {
        float most = of(0);
        for (int lane = 1; lane < 32; lane++) most = std::max(most, of(lane));
        for (int lane = 0; lane < 32; lane++) of(lane) = most;
    });
    return value;
}

inline float sum_of_four(float value) {
    emulation::together("shfl 4", value, [](auto of) {
        for (int lane = 0; lane < 32; lane += 4) {
            const float sum = (of(lane) + of(lane + 1)) + (of(lane + 2) + of(lane + 3));
            for (int i = 0; i < 4; i++) of(lane + i) = sum;
        }
    });
    return value;
}

inline void wait_for_warp() {
    int none = 0;
    emulation::together("syncwarp", none, [](auto) {});
}
inline void wait_for(int number, int threads) { emulation::wait_for(number, threads); }
inline void fetch_ahead(const float *) {}

template <typename T>
inline void clear(T *values, long count) {
    if (emulation::order != emulation::DRY) std::memset((void *)values, 0, count * sizeof(T));
}

inline void copy_to_host(void *host, const void *values, long bytes, void *) { std::memcpy(host, values, bytes); }

inline void product(long rows, long columns, long depth, float scale, const float *a, long stride_a, bool turn_a,
                    const float *b, long stride_b, bool turn_b, float keep, float *c, long stride_c) {
    const long a_row = turn_a ? 1 : stride_a, a_step = turn_a ? stride_a : 1;
    const long b_column = turn_b ? stride_b : 1, b_step = turn_b ? 1 : stride_b;
    if (stride_a < (turn_a ? rows : depth) || stride_b < (turn_b ? depth : columns) || stride_c < columns)
        throw std::runtime_error("a stride that is less than a row");
    bool is_aligned = stride_a % 4 == 0 && stride_b % 4 == 0 && stride_c % 4 == 0 && columns % 4 == 0;
    is_aligned &= (turn_a ? rows : depth) % 4 == 0 && (turn_b ? depth : columns) % 4 == 0;
    for (const float *operand : {a, b, (const float *)c}) is_aligned &= (uintptr_t)operand % 16 == 0;
    emulation::products.push_back({rows, columns, depth, is_aligned});
    if (emulation::order == emulation::DRY) return;
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j++) {
            float sum = 0.f;
            for (long k = 0; k < depth; k++) sum += a[i * a_row + k * a_step] * b[j * b_column + k * b_step];
            float &to = c[i * stride_c + j];
            to = scale * sum + (keep != 0.f ? keep * to : 0.f);
        }
}

}  // namespace neus

namespace emulation {

// Replaces Jittor's variable in functions that take lists.
struct Array {
    void *memory;
    long num;
    template <typename T>
    T *ptr() const {
        return (T *)memory;
    }
};
using Arrays = std::vector<const Array *>;

template <typename T>
struct Argument;
template <typename T>
struct Argument<T *> {
    static T *of(const Array *array) { return (T *)array->memory; }
};

template <typename Layout, typename... Parameters, size_t... I>
inline void spread(void (*function)(const Layout &, long, Parameters...), const Layout &layout, long rows,
                   const Arrays &arrays, std::index_sequence<I...>) {
    function(layout, rows, Argument<Parameters>::of(arrays.at(I))...);
}

// Call function(layout, rows, inputs ..., outputs ...).
template <typename Layout, typename... Parameters>
inline void call(void (*function)(const Layout &, long, Parameters...), const std::map<std::string, double> &numbers,
                 long rows, const Arrays &inputs, const Arrays &outputs) {
    Arrays all = inputs;
    all.insert(all.end(), outputs.begin(), outputs.end());
    if (all.size() != sizeof...(Parameters)) throw std::runtime_error("another number of arguments");
    spread(function, Layout(numbers), rows, all, std::index_sequence_for<Parameters...>());
}

// Call function(layout, inputs, outputs).
template <typename Layout>
inline void call(void (*function)(const Layout &, const Arrays &, const Arrays &),
                 const std::map<std::string, double> &numbers, long, const Arrays &inputs, const Arrays &outputs) {
    function(Layout(numbers), inputs, outputs);
}

}  // namespace emulation

// The shared memory that a block may ask for, and whether factors may be rounded.
extern "C" void emulated_card(long bytes, int rounds_factors) {
    emulation::card_shared = bytes;
    emulation::rounds_factors = rounds_factors;
}

// Copy at most `most` products since the last call to `copied` (rows, columns, depth, is aligned); returns how many
// there were, the number of launches beside them, and the most bytes of scratch at a time.
extern "C" long emulated_work(long *launches, long *bytes, long *copied, long most) {
    const long count = (long)emulation::products.size();
    for (long i = 0; i < std::min(count, most); i++) {
        const emulation::Product &one = emulation::products[i];
        const long values[] = {one.rows, one.columns, one.depth, one.is_aligned};
        std::copy(values, values + 4, copied + 4 * i);
    }
    *launches = std::exchange(emulation::launches, 0);
    *bytes = std::exchange(emulation::most_bytes, 0);
    emulation::products.clear();
    return count;
}
