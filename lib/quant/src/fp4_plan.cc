// Casts to NVFP4 on a GPU as plans need them: memory, launches and bytes. The passes are those of Transformer Engine's
// kernels: hadamard_transform_amax and the fused cast of rows and transformed columns.
#include "fp4_cast.h"
#include "fp8/device/profile.h"
#include "fp8/dtype/e2m1.h"
#include "fp8/quant/fp4.h"
#include "matrix.h"
#include "split.h"

namespace fp8::quant {
namespace {

using dtype::DType;

constexpr std::string_view kCategory = "fp8 codes";

// Codes, block scales and amax of one cast. A view of codes counts elements, of which the memory has two in each byte.
// cuBLASLt reads block scales in tiles of 128 rows and four scales.
Quantized allocate_fp4(const Context& ctx, const View& x, const Cast& cast, ContractionAxis contract) {
  constexpr std::int64_t kScaleRows = 128, kScaleColumns = 4;
  const bool last = contract == ContractionAxis::last;
  const std::int64_t rows = cast.hadamard ? round_up(x.shape[0], kFp4Block) : x.shape[0],
                     lines = last ? rows : x.shape[1], length = last ? x.shape[1] : rows,
                     stride = round_up(length, kFp4Block);
  View codes = tensor::allocate(ctx, DType::u8, {lines, stride / 2}, kCategory);
  tensor::allocate(ctx, DType::u8, {round_up(lines, kScaleRows), round_up(stride / kFp4Block, kScaleColumns)},
                   kCategory);
  codes.dtype = DType::e2m1;
  codes.shape = {lines, length};
  codes.stride = {stride, 1};
  return {.codes = last ? codes : codes.transposed(),
          .format = cast.format,
          .granularity = cast.granularity,
          .contract = contract,
          .scale = {},
          .inverse_scale = tensor::allocate(ctx, DType::f32, {1}, kCategory)};
}

}  // namespace

QuantizedPair plan_fp4(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& options) {
  if (!ctx.dry) throw Error("quantize: casts to FP4 are not available on a GPU");
  QuantizedPair pair{high_precision(x, ContractionAxis::last), high_precision(x, ContractionAxis::first)};
  double bytes = 2 * tensor::bytes_of(x);
  for (Quantized* q : {&pair.last, &pair.first}) {
    const Cast& cast = q == &pair.last ? casts.last : casts.first;
    if (!cast.fp8()) continue;
    *q = allocate_fp4(ctx, x, cast, q->contract);
    bytes += dtype::kFp4BytesOfElement * static_cast<double>(q->codes.size());
    if (options.split.ranks != nullptr) reduce(ctx, options.split, q->inverse_scale);
  }
  if (!casts.last.fp8() && !casts.first.fp8()) return pair;
  constexpr int kLaunches = 3;  // zeros of amaxes, amaxes, codes
  const device::Timer timer(ctx, {.work = device::Work::cast,
                                  .name = "cast to FP4",
                                  .bytes = bytes,
                                  .flops = 2 * static_cast<double>(x.size()),
                                  .launches = kLaunches});
  return pair;
}

}  // namespace fp8::quant
