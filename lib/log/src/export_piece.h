// The pieces of an export. Private to the crate.
#pragma once

#include <cstddef>

namespace fp8::log {

// Bytes that are collected before a sink gets them.
inline constexpr std::size_t kExportPiece = std::size_t{1} << 16U;

}  // namespace fp8::log
