// Tokens of a batch in host memory. Private to train.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "fp8/model/decoder.h"

namespace fp8::train {

// The elements of a view i32.
inline std::span<std::int32_t> ints_of(const tensor::View& v) {
  return {v.as<std::int32_t>(), static_cast<std::size_t>(v.size())};
}

// The number of targets that have a loss.
inline std::int64_t count_targets(std::span<const std::int32_t> targets) {
  return static_cast<std::int64_t>(targets.size()) - std::count(targets.begin(), targets.end(), kIgnoredTarget);
}

}  // namespace fp8::train
