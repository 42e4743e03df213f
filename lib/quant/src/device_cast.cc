// Memory, launches and bytes of casts on a device, as quantize.cuh launches them.
#include "device_cast.h"

#include "cast_block.h"
#include "cuda.h"
#include "fp8/base/round.h"
#include "fp8/quant/row_groups.h"
#include "matrix.h"
#include "own_amax.h"
#include "split.h"

namespace fp8::quant {
namespace {

using dtype::DType;

constexpr std::string_view kCategory = "fp8 codes";

// An empty result for a cast with Granularity::none.
Quantized allocate_quantized(const Context& ctx, const View& x, const Cast& cast, ContractionAxis contract,
                             const KnownScale& known, device::PooledMemory* keep) {
  if (!cast.fp8()) return {};
  const std::int64_t count =
      cast.granularity == Granularity::tensor ? 1 : x.shape[contract == ContractionAxis::last ? 0 : 1];
  const auto scales = [&] {
    return block_extent(cast.granularity).along > 0
               ? allocate_block_scales(ctx, x.shape[0], x.shape[1], cast.granularity, contract, keep)
               : allocate_for_cast(ctx, keep, DType::f32, {count});
  };
  const bool last = contract == ContractionAxis::last;
  const std::int64_t step = cast.granularity == Granularity::block1x128 ? kDeviceRows : 1;
  const View codes =
      allocate_codes(ctx, round_up(x.shape[0], last ? step : 1), round_up(x.shape[1], last ? 1 : step), contract, keep);
  return {.codes = last ? codes.rows(0, x.shape[0]) : codes.columns(0, x.shape[1]),
          .format = cast.format,
          .granularity = cast.granularity,
          .contract = contract,
          .scale = known.scale.empty() ? scales() : known.scale,
          .inverse_scale = known.scale.empty() ? scales() : known.inverse_scale};
}

// Memory for the values of codes, with the same strides.
View values_of(const Context& ctx, const View& codes, DType type) {
  const std::int64_t n =
      codes.stride[1] == 1 ? codes.shape[0] * codes.stride[0] : codes.shape[1] * codes.stride[1];  // size with padding
  View out = codes;
  out.dtype = type;
  out.data = ctx.arena->allocate(static_cast<std::size_t>(n) * dtype::size_of(type), kCategory);
  return out;
}

// Launches of a cast, and how many of them read the source.
struct CastPasses {
  int launches = 0, of_source = 0;
  void add(int launch, int source) {
    launches += launch;
    of_source += source;
  }
};

// Amaxes and scales that are not of blocks, as scales_into() computes them.
void add_scales(CastPasses& passes, const CastPair& casts, const CastOptions& options) {
  bool all = false;
  int scales = 0, lines = 0;
  for (const Cast* cast : {&casts.last, &casts.first}) {
    const bool whole = cast->granularity == Granularity::tensor;
    const bool repeats = cast == &casts.first && casts.shared() && whole;
    if (!cast->fp8() || block_extent(cast->granularity).along > 0 || repeats) continue;
    ++scales;
    all = all || (whole && options.amax.empty());
    lines += whole ? 0 : 1;
  }
  const int results = (all ? 1 : 0) + lines;  // each is zeroed by a launch
  if (results > 0) passes.add(results + 1, 1);
  passes.add(scales, 0);
}

// Bytes of the scales of a cast: of rows zeros, amaxes, scales and their reciprocals, which are written and read again;
// of blocks scales and reciprocals.
double bytes_of_scales(const View& x, const Cast& cast, ContractionAxis contract) {
  if (!cast.fp8() || cast.granularity == Granularity::tensor) return 0;
  const bool last = contract == ContractionAxis::last;
  const std::int64_t lines = x.shape[last ? 0 : 1], length = x.shape[last ? 1 : 0];
  const BlockExtent block = block_extent(cast.granularity);
  if (block.along == 0) return kBytesOfRowScale * static_cast<double>(lines);
  return 12.0 * static_cast<double>(divide_up(lines, block.across) * divide_up(length, block.along));
}

}  // namespace

View allocate_codes(const Context& ctx, std::int64_t rows, std::int64_t cols, ContractionAxis contract,
                    device::PooledMemory* keep) {
  if (contract == ContractionAxis::last)
    return allocate_for_cast(ctx, keep, DType::u8, {rows, round_up(cols, kCodeStride)}).columns(0, cols);
  return allocate_for_cast(ctx, keep, DType::u8, {cols, round_up(rows, kCodeStride)}).columns(0, rows).transposed();
}

bool has_blocks(const Quantized& q) { return block_extent(q.granularity).along > 0; }

QuantizedPair allocate_pair(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& options,
                            device::PooledMemory* keep) {
  // A scale of the whole matrix is one scale, which is kept with the codes of `first`.
  const bool one_scale = casts.shared() && casts.last.granularity == Granularity::tensor;
  KnownScale known = options.known;
  if (one_scale && known.scale.empty())
    known = {allocate_for_cast(ctx, keep, DType::f32, {1}), allocate_for_cast(ctx, keep, DType::f32, {1}), known.amax};
  return {.last = allocate_quantized(ctx, x, casts.last, ContractionAxis::last, known, nullptr),
          .first = allocate_quantized(ctx, x, casts.first, ContractionAxis::first, known, keep)};
}

bool computes_scales(const QuantizedPair& pair, const Quantized& q) {
  const bool repeats = &q == &pair.first && pair.first.scale.data == pair.last.scale.data;
  return !q.codes.empty() && !has_blocks(q) && !repeats;
}

void reduce_amaxes(const Context& ctx, const Quantized& q, const CastOptions& options, const View& amaxes) {
  if (q.granularity == Granularity::row && covers_ranks({q.format, q.granularity}, q.contract, options.split))
    reduce(ctx, options.split, amaxes);
}

bool emulates(const CastOptions& options, const Quantized& q) {
  return (options.emulate || q.granularity == Granularity::block1x32) && !q.codes.empty();
}

View allocate_upcast(const Context& ctx, const View& codes) { return values_of(ctx, codes, DType::bf16); }

View allocate_folded(const Context& ctx, const Quantized& q, bool power_of_2) {
  return values_of(ctx, q.codes, power_of_2 || q.granularity == Granularity::block1x32 ? DType::bf16 : DType::f32);
}

QuantizedPair plan_pair(const Context& ctx, const View& x, const CastPair& casts, const CastOptions& given,
                        device::PooledMemory* keep) {
  const CastOptions options = options_of_cast(given);
  QuantizedPair pair = allocate_pair(ctx, x, casts, options, keep);
  for (Quantized* q : {&pair.last, &pair.first})
    if (options.known.scale.empty() && computes_scales(pair, *q)) reduce_amaxes(ctx, *q, options, q->scale);
  for (Quantized* q : {&pair.last, &pair.first}) {
    if (!emulates(options, *q)) continue;
    q->folded = has_blocks(*q);
    q->codes = q->folded ? allocate_folded(ctx, *q, options.power_of_2) : allocate_upcast(ctx, q->codes);
  }
  return pair;
}

bool is_laid_out(const View& codes, ContractionAxis contract) {
  return contract == ContractionAxis::last && codes.shape[1] % kCodeStride == 0;
}

View repack(const Context& ctx, const View& codes, ContractionAxis contract) {
  if (is_laid_out(codes, contract)) return codes;
  return ctx.dry ? allocate_codes(ctx, codes.shape[0], codes.shape[1], contract) : cuda::repack(ctx, codes, contract);
}

View upcast(const Context& ctx, const View& codes, dtype::DType format) {
  return ctx.dry ? allocate_upcast(ctx, codes) : cuda::upcast(ctx, codes, format);
}

device::Span span_of_cast(const View& x, const CastPair& casts, const CastOptions& given) {
  const CastOptions options = options_of_cast(given);
  CastPasses passes;
  if (options.known.scale.empty()) add_scales(passes, casts, options);
  const auto blocks = [](const Cast& cast) { return cast.fp8() && block_extent(cast.granularity).along > 0; };
  const bool both = casts.last.fp8() && casts.first.fp8();
  const int launches = both && casts.last.format != casts.first.format ? 2 : 1;
  passes.add(launches, launches);
  double of_codes = 0;
  for (const Cast& cast : {casts.last, casts.first}) {
    if (!cast.fp8()) continue;
    const auto size = static_cast<double>(x.size());
    of_codes += size;
    if (!options.emulate && cast.granularity != Granularity::block1x32) continue;
    passes.add(1, 0);
    const bool wide = blocks(cast) && !options.power_of_2 && cast.granularity != Granularity::block1x32;
    of_codes += size * (wide ? 5 : 3);
  }
  return {.work = device::Work::cast,
          .name = "quantize",
          .bytes = passes.of_source * tensor::bytes_of(x) + of_codes +
                   bytes_of_scales(x, casts.last, ContractionAxis::last) +
                   bytes_of_scales(x, casts.first, ContractionAxis::first),
          .flops = 2 * static_cast<double>(x.size()),
          .launches = passes.launches};
}

}  // namespace fp8::quant
