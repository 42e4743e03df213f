// Memory and scales of casts that other crates' kernels compute.
#include "fp8/quant/producer.h"

#include "device_cast.h"
#include "matrix.h"

namespace fp8::quant {

bool can_produce(const Context& ctx, const CastPair& casts, const CastOptions& options) {
  const bool one_format = !casts.last.fp8() || !casts.first.fp8() || casts.last.format == casts.first.format;
  if (!on_device(ctx) || options.emulate || options.split.ranks != nullptr || options.known.own_amax || !one_format ||
      (!casts.last.fp8() && !casts.first.fp8()))
    return false;
  const bool known = options.known.is_known() || !options.amax.empty();
  const auto can = [known](const Cast& cast) {
    return !cast.fp8() || cast.granularity == Granularity::block1x128 ||
           cast.granularity == Granularity::block128x128 || (cast.granularity == Granularity::tensor && known);
  };
  return can(casts.last) && can(casts.first);
}

ProducedCodes begin_produced(const Context& ctx, std::int64_t rows, std::int64_t cols, const CastPair& casts,
                             const CastOptions& options, device::PooledMemory* keep) {
  View shape{};
  shape.rank = 2;
  shape.shape = {rows, cols, 0, 0};
  const QuantizedPair pair = allocate_pair(ctx, shape, casts, options, keep);
  if (options.known.scale.empty())
    for (const Quantized* q : {&pair.last, &pair.first})
      if (computes_scales(pair, *q))
        scales_from_amax(ctx, options.amax, {q->format, options.rule, options.power_of_2}, q->scale, q->inverse_scale);
  const bool counts_both = keep != nullptr && options.counts != nullptr;
  return {pair, casts.shared() && !counts_both, options.power_of_2, options.known.amax, options.counts};
}

double bytes_of_produced(const ProducedCodes& to) {
  double bytes = 0;
  for (const Quantized* q : {&to.codes.last, &to.codes.first})
    if (!q->codes.empty()) bytes += tensor::bytes_of(q->codes) + (has_blocks(*q) ? 2 * tensor::bytes_of(q->scale) : 0);
  return bytes;
}

}  // namespace fp8::quant
