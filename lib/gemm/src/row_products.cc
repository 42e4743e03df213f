// Blocks of columns of C on all threads; the loops over a block are in row_products.isa.cc.
#include "row_products.h"

#include <algorithm>
#include <span>

#include "fp8/base/round.h"
#include "fp8/dtype/convert.h"

namespace fp8::gemm {
namespace {

using dtype::DType;
using tensor::View;

constexpr std::int64_t kMostColumns = 64;        // most columns of a block, whose rows of W then stay in the L2 cache
constexpr std::int64_t kLeastColumns = 16;       // fewest columns of a block
constexpr std::int64_t kParallelFrom = 1 << 16;  // products; fewer run on one thread

// Rows of a view in f32: its own memory, or exact copies in `to`.
RowBlock<float> in_f32(const View& v, std::byte* to) {
  const std::int64_t rows = v.shape[0], columns = v.shape[1];
  if (v.dtype == DType::f32) return {v.as<float>(), v.stride[0], rows};
  auto* const out = reinterpret_cast<float*>(to);
  const auto n = static_cast<std::size_t>(columns);
  for (std::int64_t i = 0; i < rows; ++i)
    dtype::convert(std::span<const dtype::Bf16>(v.as<dtype::Bf16>() + i * v.stride[0], n),
                   std::span<float>(out + i * columns, n));
  return {out, columns, rows};
}

template <class T>
void multiply_columns(RowProductKernels::Multiply<T> multiply, RowBlock<float> x, const View& b, const View& c,
                      const Epilogue& epilogue, std::int64_t begin, std::int64_t end) {
  const std::int64_t columns = end - begin, k = b.shape[0];
  const RowBlock<T> w{b.as<T>() + begin * b.stride[1], b.stride[1], columns};
  const Epilogue here = epilogue.shifted(0, begin, columns);
  const View out = c.columns(begin, end);
  const EpilogueKernels& finish = epilogue_kernels();
  float sums[RowProductKernels::kRows * kMostColumns];
  for (std::int64_t i = 0; i < x.rows; i += RowProductKernels::kRows) {
    const std::int64_t rows = std::min(RowProductKernels::kRows, x.rows - i);
    multiply(k, {x.data + i * x.stride, x.stride, rows}, w, sums, kMostColumns);
    for (std::int64_t r = 0; r < rows; ++r) finish.finish_row(sums + r * kMostColumns, i + r, here, out);
  }
}

}  // namespace

bool RowProducts::fits(const View& a, const View& b) {
  return a.shape[1] > 0 && (a.stride[1] == 1 || a.shape[1] == 1) && (b.stride[0] == 1 || b.shape[0] == 1);
}

void RowProducts::run(bool dry, const View& a, const View& b, const View& c, const Epilogue& epilogue) {
  const std::int64_t m = c.shape[0], n = c.shape[1], k = a.shape[1];
  if (a.dtype != DType::f32) upcast_.need(static_cast<std::size_t>(m * k) * sizeof(float));
  if (dry) return;
  const RowBlock<float> x = in_f32(a, upcast_.memory());
  const std::int64_t threads = m * n * k < kParallelFrom ? 1 : device::host_threads();
  const std::int64_t each = std::clamp(divide_up(n, threads), kLeastColumns, kMostColumns);
  const std::int64_t blocks = divide_up(n, each);
  const RowProductKernels& kernels = row_product_kernels();
#pragma omp parallel for schedule(static) num_threads(static_cast <int>(threads))
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t begin = block * each, end = std::min(n, begin + each);
    if (b.dtype == DType::f32) {
      multiply_columns<float>(kernels.f32, x, b, c, epilogue, begin, end);
    } else {
      multiply_columns<dtype::Bf16>(kernels.bf16, x, b, c, epilogue, begin, end);
    }
  }
}

}  // namespace fp8::gemm
