// Short passes over one row at a time: the row was just read into the first-level cache, so passes are nearly free and
// no combination of options needs a loop of its own.
#include "epilogue.h"

#include <cstddef>
#include <span>

#include "fp8/dtype/convert.h"

namespace fp8::gemm {
namespace {

using dtype::Bf16;
using dtype::DType;

constexpr std::int64_t kParallelFrom = 16384;  // elements below which threads cost more than they give

void multiply(float* v, std::int64_t n, float by) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) v[i] *= by;
}

void multiply(float* v, std::int64_t n, const float* by) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) v[i] *= by[i];
}

template <class T>
void add(float* v, std::int64_t n, const T* what) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) v[i] += dtype::to_float(what[i]);
}

void finish_row(float* v, std::int64_t row, const Epilogue& e, const tensor::View& c) {
  const std::int64_t n = c.shape[1];
  if (e.scale_a != nullptr) multiply(v, n, e.scale_a[e.scale_a_rows ? row : 0]);
  if (e.scale_b != nullptr && e.scale_b_columns) multiply(v, n, e.scale_b);
  if (e.scale_b != nullptr && !e.scale_b_columns) multiply(v, n, *e.scale_b);
  if (!e.bias.empty() && e.bias.dtype == DType::f32) add(v, n, static_cast<const float*>(e.bias.data));
  if (!e.bias.empty() && e.bias.dtype == DType::bf16) add(v, n, static_cast<const Bf16*>(e.bias.data));
  if (c.dtype == DType::bf16) {
    Bf16* out = static_cast<Bf16*>(c.data) + row * c.stride[0];
    dtype::convert(std::span<const float>(v, static_cast<std::size_t>(n)), std::span(out, static_cast<std::size_t>(n)));
    return;
  }
  float* out = static_cast<float*>(c.data) + row * c.stride[0];
  if (e.accumulate) add(v, n, out);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = v[i];
}

}  // namespace

Epilogue epilogue_of(const Operand& a, const Operand& b, const Options& options) {
  Epilogue e;
  e.scale_a = static_cast<const float*>(a.inverse_scale.data);
  e.scale_a_rows = a.inverse_scale.size() > 1;
  e.scale_b = static_cast<const float*>(b.inverse_scale.data);
  e.scale_b_columns = b.inverse_scale.size() > 1;
  e.bias = options.bias;
  e.accumulate = options.accumulate;
  return e;
}

void finish(float* sums, const Epilogue& epilogue, const tensor::View& c) {
  const std::int64_t rows = c.shape[0], columns = c.shape[1];
#pragma omp parallel for schedule(static) if (rows * columns >= kParallelFrom)
  for (std::int64_t row = 0; row < rows; ++row) finish_row(sums + row * columns, row, epilogue, c);
}

}  // namespace fp8::gemm
