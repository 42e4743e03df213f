// The blocks of scales that have both dimensions. Private to the crate.
#pragma once

#include <cstdint>

#include "fp8/quant/scale.h"

namespace fp8::shard {

// Extent of a square block of scales.
inline constexpr std::int64_t kSquare = quant::block_extent(quant::Granularity::block128x128).across;

}  // namespace fp8::shard
