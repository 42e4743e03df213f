// Packed FP4 codes of files as operands.
#include <vector>

#include "fp8/device/profile.h"
#include "fp8/dtype/convert.h"
#include "fp8/dtype/e2m1.h"
#include "fp8/quant/fp4.h"
#include "matrix.h"

namespace fp8::quant {
namespace {

using dtype::DType;

// Values of one row of codes times the scales of its blocks, which BF16 represents exactly.
void decode_row(const std::byte* codes, const std::uint8_t* scales, std::span<float> row, std::span<float> factors,
                std::span<dtype::Bf16> out) {
  constexpr auto kBlock = static_cast<std::size_t>(kFp4Block);
  dtype::to_floats(DType::e2m1, codes, row);
  dtype::to_floats(DType::e4m3, scales, factors);
  for (std::size_t b = 0; b < factors.size(); ++b) {
    const float factor = factors[b];
#pragma omp simd
    for (std::size_t c = b * kBlock; c < (b + 1) * kBlock; ++c) row[c] *= factor;
  }
  dtype::convert(row, out);
}

}  // namespace

Quantized from_packed(const Context& ctx, const View& codes, const View& scales, const View& amax,
                      ContractionAxis contract) {
  if (on_device(ctx)) throw Error("weights stored as FP4 codes are computed on CPUs only (--device cpu)");
  const std::int64_t rows = codes.shape[0], cols = codes.shape[1] * dtype::packed(DType::e2m1);
  const std::array<std::int64_t, 2> wanted = fp4_scales(rows, cols, ContractionAxis::last, true);
  const bool fits = codes.rank == 2 && scales.rank == 2 && scales.shape[0] == wanted[0] && scales.shape[1] == wanted[1];
  if (!fits || !codes.contiguous() || !scales.contiguous() || amax.size() != 1 || cols % kFp4Block != 0)
    throw Error("from_packed: codes, scales or the amax are not those of blocks of 16 x 16");
  Quantized q{.codes = tensor::allocate(ctx, DType::bf16, {rows, cols}, "fp8 codes"),
              .format = DType::e2m1,
              .granularity = Granularity::block16x16,
              .contract = contract,
              .scale = {},
              .inverse_scale = amax};
  const device::Timer timer(ctx, device::Work::cast, "decode", tensor::bytes_of(codes, scales, q.codes));
  if (ctx.dry) return q;
  const auto* const from = static_cast<const std::byte*>(codes.data);
  const auto* const of_blocks = static_cast<const std::uint8_t*>(scales.data);
#pragma omp parallel if (q.codes.size() >= kParallelElements)
  {
    std::vector<float> row(static_cast<std::size_t>(cols)), factors(static_cast<std::size_t>(wanted[1]));
#pragma omp for
    for (std::int64_t r = 0; r < rows; ++r)
      decode_row(from + r * codes.shape[1], of_blocks + r / kFp4Block * wanted[1], row, factors,
                 {q.codes.as<dtype::Bf16>() + r * cols, row.size()});
  }
  return q;
}

}  // namespace fp8::quant
