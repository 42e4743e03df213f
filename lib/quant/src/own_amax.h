/// Casts of tensors whose delayed scale is not known yet. Private to this crate.
#pragma once

#include "fp8/quant/quantize.h"

namespace fp8::quant {

/// The options with which a tensor is cast: with KnownScale::own_amax the rule is `current`, without a known scale.
inline CastOptions options_of_cast(CastOptions options) {
  if (!options.known.own_amax) return options;
  options.known = {.scale = {}, .inverse_scale = {}, .amax = options.known.amax};
  options.rule = ScaleRule::current;
  return options;
}

}  // namespace fp8::quant
