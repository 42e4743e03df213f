// Short loops over one row, one for each operation: the row is in the L1 cache, so several passes cost little.
#include "epilogue.h"

#include "fp8/dtype/element.h"

namespace fp8::gemm {
namespace {

using dtype::Bf16;
using dtype::DType;

void multiply(float* v, std::int64_t n, float by) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) v[i] *= by;
}

void multiply(float* v, std::int64_t n, const float* by) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) v[i] *= by[i];
}

void multiply_by_product(float* v, std::int64_t n, float scale_a, const Epilogue& e) {
  if (!e.scale_b_columns) return multiply(v, n, e.scale_b == nullptr ? scale_a : scale_a * *e.scale_b);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) v[i] *= scale_a * e.scale_b[i];
}

template <class T>
void add(float* v, std::int64_t n, const T* what) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) v[i] += dtype::to_float(what[i]);
}

void finish_row(float* v, std::int64_t row, const Epilogue& e, const tensor::View& c) {
  const std::int64_t n = c.shape[1];
  const float scale_a = e.scale_a == nullptr ? 1.0f : e.scale_a[e.scale_a_rows ? row : 0];
  if (e.product_of_scales) {
    multiply_by_product(v, n, scale_a, e);
  } else {
    if (e.scale_a != nullptr) multiply(v, n, scale_a);
    if (e.scale_b != nullptr && e.scale_b_columns) multiply(v, n, e.scale_b);
    if (e.scale_b != nullptr && !e.scale_b_columns) multiply(v, n, *e.scale_b);
  }
  if (!e.bias.empty() && e.bias.dtype == DType::f32) add(v, n, static_cast<const float*>(e.bias.data));
  if (!e.bias.empty() && e.bias.dtype == DType::bf16) add(v, n, static_cast<const Bf16*>(e.bias.data));
  if (c.dtype == DType::bf16) {
    Bf16* out = static_cast<Bf16*>(c.data) + row * c.stride[0];
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) out[i] = dtype::to_bf16(v[i]);
    return;
  }
  float* out = static_cast<float*>(c.data) + row * c.stride[0];
  if (e.accumulate) add(v, n, out);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = v[i];
}

}  // namespace

constinit const EpilogueKernels FP8_ISA::kEpilogueKernels{finish_row};

}  // namespace fp8::gemm
