/// Sizes of transfers, which all reads and writes share.
#pragma once

#include <cstddef>

namespace fp8 {

/// Bytes that one system call is asked for: Linux transfers at most about 2 GiB per call.
inline constexpr std::size_t kMostAtOnce = std::size_t{1} << 30U;

}  // namespace fp8
