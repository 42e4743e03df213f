// Short loops over one row. Scales and the result are one pass; a bias and products of scales take passes before it,
// while the row is in the L1 cache.
#include "epilogue.h"

#include "fp8/dtype/element.h"

namespace fp8::gemm {
namespace {

using dtype::Bf16;
using dtype::DType;
using dtype::from_float;

void multiply(float* v, std::int64_t n, float by) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) v[i] *= by;
}

void multiply(float* v, std::int64_t n, const float* by) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) v[i] *= by[i];
}

void multiply_by_product(float* v, std::int64_t n, float scale_a, const Epilogue& e) {
  const float* const scale_b = e.scale_b;
  const float factor = e.product_factor;
  if (!e.scale_b_columns) return multiply(v, n, (scale_b == nullptr ? scale_a : scale_a * *scale_b) * factor);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) v[i] *= scale_a * scale_b[i] * factor;
}

template <class T>
void add(float* v, std::int64_t n, const T* what) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) v[i] += dtype::to_float(what[i]);
}

template <class T, class Scale>
void write(const float* v, std::int64_t n, float scale_a, Scale scale_b, T* out) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = from_float<T>(v[i] * scale_a * scale_b(i));
}

template <class Scale>
void write(const float* v, std::int64_t row, float scale_a, Scale scale_b, bool accumulate, const tensor::View& c) {
  const std::int64_t n = c.shape[1], offset = row * c.stride[0];
  if (c.dtype == DType::bf16) return write(v, n, scale_a, scale_b, static_cast<Bf16*>(c.data) + offset);
  float* const out = static_cast<float*>(c.data) + offset;
  if (!accumulate) return write(v, n, scale_a, scale_b, out);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] += v[i] * scale_a * scale_b(i);
}

constexpr auto kOne = [](std::int64_t) { return 1.0f; };

void finish_row(float* v, std::int64_t row, const Epilogue& e, const tensor::View& c) {
  const std::int64_t n = c.shape[1];
  const float scale_a = e.scale_a == nullptr ? 1.0f : e.scale_a[e.scale_a_rows ? row : 0];
  const bool by_column = e.scale_b != nullptr && e.scale_b_columns;
  const float one_b = e.scale_b == nullptr || by_column ? 1.0f : *e.scale_b;
  if (e.bias.empty() && !e.product_of_scales) {
    if (!by_column)
      return write(
          v, row, scale_a, [one_b](std::int64_t) { return one_b; }, e.accumulate, c);
    return write(
        v, row, scale_a, [b = e.scale_b](std::int64_t i) { return b[i]; }, e.accumulate, c);
  }
  if (e.product_of_scales) {
    multiply_by_product(v, n, scale_a, e);
  } else {
    if (e.scale_a != nullptr) multiply(v, n, scale_a);
    if (by_column) multiply(v, n, e.scale_b);
    if (e.scale_b != nullptr && !by_column) multiply(v, n, one_b);
  }
  if (!e.bias.empty() && e.bias.dtype == DType::f32) add(v, n, static_cast<const float*>(e.bias.data));
  if (!e.bias.empty() && e.bias.dtype == DType::bf16) add(v, n, static_cast<const Bf16*>(e.bias.data));
  write(v, row, 1.0f, kOne, e.accumulate, c);
}

}  // namespace

constinit const EpilogueKernels FP8_ISA::kEpilogueKernels{finish_row};

}  // namespace fp8::gemm
