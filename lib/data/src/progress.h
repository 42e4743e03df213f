// Reports of progress. Private to the crate.
#pragma once

#include <cstdint>

namespace fp8::data {

// Tokens between two reports.
inline constexpr std::int64_t kProgressEvery = std::int64_t{1} << 22;

}  // namespace fp8::data
