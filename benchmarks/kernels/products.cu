// Matrix products of a step through csrc/cuda/device.h with today's strides, in float32 and TF32; and gradients of
// weights, with the depth in one part and in several.
#include "bench.h"

using namespace neus;

#ifdef __CUDACC__
namespace jittor {
cublasHandle_t cublas_handle;
int use_tensorcore = 0;
}
static void start() { demand(cublasCreate(&jittor::cublas_handle) == CUBLAS_STATUS_SUCCESS, "cublasCreate", 1); }
static void use_tf32(bool is_used) { jittor::use_tensorcore = is_used; }

// C [rows, columns] of each part = A^T B, where A is [parts * depth, rows] and B [parts * depth, columns].
static void products_of_parts(int parts, int rows, int columns, int depth, const float *a, const float *b, float *c) {
    const float one = 1.f, zero = 0.f;
    const cublasComputeType_t kind = jittor::use_tensorcore ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasStatus_t status = cublasGemmStridedBatchedEx(
        jittor::cublas_handle, CUBLAS_OP_N, CUBLAS_OP_T, columns, rows, depth, &one, b, CUDA_R_32F, columns,
        (long long)depth * columns, a, CUDA_R_32F, rows, (long long)depth * rows, &zero, c, CUDA_R_32F, columns,
        (long long)rows * columns, parts, kind, CUBLAS_GEMM_DEFAULT);
    if (status != CUBLAS_STATUS_SUCCESS) demand(false, told(status).c_str(), status);
}
#else
static void start() {}
static void use_tf32(bool) {}
static void products_of_parts(int parts, int rows, int columns, int depth, const float *a, const float *b, float *c) {
    for (long p = 0; p < parts; p++)
        product(rows, columns, depth, 1.f, a + p * depth * rows, rows, true, b + p * depth * columns, columns, false, 0.f,
                c + p * rows * columns, columns);
}
#endif

// y [rows, outputs] = x [rows, inputs] W^T [outputs, inputs], with strides.
struct Forward {
    const char *name;
    int inputs, outputs, stride_x, stride_w, stride_y;
};
constexpr Forward FORWARD[] = {
    {"hidden", 256, 256, 256, 256, 256},      {"encoded point", 39, 256, 40, 40, 256},
    {"before the skip", 256, 217, 256, 256, 220}, {"after the skip", 217, 256, 220, 256, 256},
    {"colour", 289, 256, 292, 292, 256},
};

static void forward(const Forward &shape, long rows) {
    const bench::Array<float> x(bench::uniform(rows * shape.stride_x, -1.f, 1.f));
    const bench::Array<float> w(bench::uniform((long)shape.outputs * shape.stride_w, -1.f, 1.f));
    bench::Array<float> y(std::vector<float>(rows * shape.stride_y, 0.f));
    std::vector<float> expected;
    for (bool is_reduced : {false, true}) {
        use_tf32(is_reduced);
        const auto work = [&] {
            product(rows, shape.outputs, shape.inputs, 1.f, x.values, shape.stride_x, false, w.values,
                    shape.stride_w, true, 0.f, y.values, shape.stride_y);
        };
        const double time = bench::microseconds(work);
        if (expected.empty()) expected = y.get();
        bench::print("product", std::to_string(rows) + " rows", std::string(shape.name) + (is_reduced ? ", TF32" : ""), time,
                     bench::difference(y.get(), expected), 2e-9 * rows * shape.inputs * shape.outputs, "GFLOP/s");
    }
}

static void weights(long rows) {
    constexpr int OUTPUTS = IS_REHEARSAL ? 16 : 256, INPUTS = OUTPUTS;
    const bench::Array<float> d_y(bench::uniform(rows * OUTPUTS, -1.f, 1.f)), x(bench::uniform(rows * INPUTS, -1.f, 1.f));
    bench::Array<float> found(std::vector<float>(OUTPUTS * INPUTS, 0.f));
    float *to = found.values;
    std::vector<float> expected;
    for (bool is_reduced : {false, true}) {
        use_tf32(is_reduced);
        const auto measure = [&](const std::string &variant, auto work) {
            const double time = bench::microseconds(work);
            if (expected.empty()) expected = found.get();
            bench::print("weight gradient", std::to_string(rows) + " rows", variant + (is_reduced ? ", TF32" : ""), time,
                         bench::difference(found.get(), expected), 2e-9 * rows * INPUTS * OUTPUTS, "GFLOP/s");
        };
        measure("one product", [&] {
            product(OUTPUTS, INPUTS, rows, 1.f, d_y.values, OUTPUTS, true, x.values, INPUTS, false, 0.f, to, INPUTS);
        });
        for (int parts : {4, 16}) {
            measure(std::to_string(parts) + " parts of the depth", [&] {
                Scratch<float> scratch((long)parts * OUTPUTS * INPUTS);
                const float *sums = scratch.values;
                products_of_parts(parts, OUTPUTS, INPUTS, (int)(rows / parts), d_y.values, x.values, scratch.values);
                each(OUTPUTS * INPUTS, [=] __device__(long i) {
                    float sum = 0.f;
                    for (int part = 0; part < parts; part++) sum += sums[(long)part * OUTPUTS * INPUTS + i];
                    to[i] = sum;
                });
            });
        }
    }
}

int main() {
    start();
    for (long rows : bench::ROWS) {
        for (const Forward &shape : FORWARD) forward(shape, rows);
        weights(rows);
    }
}
