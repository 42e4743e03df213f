// The epilogue, rows in parallel; the loops over a row are in epilogue.isa.cc.
#include "epilogue.h"

#include "fp8/dtype/e2m1.h"

namespace fp8::gemm {
namespace {

constexpr std::int64_t kParallelFrom = 16384;  // elements; fewer run on one thread

}  // namespace

Epilogue epilogue_of(const Operand& a, const Operand& b, const MatmulOptions& options) {
  Epilogue e;
  e.scale_a = static_cast<const float*>(a.inverse_scale.data);
  e.scale_a_rows = a.inverse_scale.size() > 1;
  e.scale_b = static_cast<const float*>(b.inverse_scale.data);
  e.scale_b_columns = b.inverse_scale.size() > 1;
  if (is_fp4(a.format)) {
    e.product_of_scales = true;
    e.product_factor = dtype::kFp4Alpha;
  }
  e.bias = options.bias;
  e.accumulate = options.accumulate;
  return e;
}

Epilogue Epilogue::shifted(std::int64_t row, std::int64_t column, std::int64_t columns) const {
  Epilogue e = *this;
  if (e.scale_a_rows) e.scale_a += row;
  if (e.scale_b_columns) e.scale_b += column;
  if (!e.bias.empty()) e.bias = e.bias.rows(column, column + columns);
  return e;
}

void finish(float* sums, std::int64_t stride, const Epilogue& epilogue, const tensor::View& c) {
  const std::int64_t rows = c.shape[0], columns = c.shape[1];
  const EpilogueKernels& kernels = epilogue_kernels();
#pragma omp parallel for schedule(static) if (rows * columns >= kParallelFrom)
  for (std::int64_t row = 0; row < rows; ++row) kernels.finish_row(sums + row * stride, row, epilogue, c);
}

}  // namespace fp8::gemm
