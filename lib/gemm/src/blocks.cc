// Dequantization of an operand for a GEMM in f32, rows of memory in parallel.
#include "blocks.h"

#include <algorithm>

#include "fp8/dtype/element.h"

namespace fp8::gemm {
namespace {

constexpr std::int64_t kParallelFrom = 16384;  // elements; fewer run on one thread

}  // namespace

BlockSides sides_of(ScaleBlocks blocks) {
  constexpr std::int64_t kLong = 128, kShort = 32;
  return {blocks == ScaleBlocks::block1x32 ? kShort : kLong, blocks == ScaleBlocks::block128x128 ? kLong : 1};
}

BlockScales::BlockScales(const Operand& o, bool columns)
    : codes(columns ? o.matrix.transposed() : o.matrix),
      scales(o.inverse_scale),
      along(sides_of(o.blocks).along),
      across(sides_of(o.blocks).across) {}

void dequantize(const BlockScales& from, const tensor::View& to) {
  const bool by_rows = from.codes.stride[1] == 1;  // rows of memory are along K
  const std::size_t r = by_rows ? 0 : 1, c = 1 - r;
  const std::int64_t rows = to.shape[r], columns = to.shape[c];
  const std::int64_t down = by_rows ? from.across : from.along, step = by_rows ? from.along : from.across;
  const auto* const codes = static_cast<const dtype::Bf16*>(from.codes.data);
  const auto* const scales = static_cast<const float*>(from.scales.data);
#pragma omp parallel for schedule(static) if (rows * columns >= kParallelFrom)
  for (std::int64_t i = 0; i < rows; ++i) {
    const dtype::Bf16* const in = codes + i * from.codes.stride[r];
    float* const out = static_cast<float*>(to.data) + i * to.stride[r];
    const float* const scale = scales + i / down * from.scales.stride[r];
    const std::int64_t stride = from.scales.stride[c];
    if (step == 1 && stride == 1) {
#pragma omp simd
      for (std::int64_t j = 0; j < columns; ++j) out[j] = dtype::to_float(in[j]) * scale[j];
      continue;
    }
    for (std::int64_t begin = 0; begin < columns; begin += step) {
      const float by = scale[begin / step * stride];
      const std::int64_t end = std::min(columns, begin + step);
#pragma omp simd
      for (std::int64_t j = begin; j < end; ++j) out[j] = dtype::to_float(in[j]) * by;
    }
  }
}

}  // namespace fp8::gemm
