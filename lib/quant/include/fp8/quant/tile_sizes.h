/// Sizes of the parts of a matrix that blocks and threads of the kernels process. Private to this crate.
#pragma once

namespace fp8::quant {

inline constexpr int kCastThreads = 256;        ///< threads of a block
inline constexpr int kPiece = 8;                ///< adjacent elements of a thread
inline constexpr int kTile = 128;               ///< rows and columns of a block
inline constexpr int kGroups = kTile / kPiece;  ///< patches along a tile
static_assert(kGroups * kGroups == kCastThreads, "a thread has one patch");

inline constexpr int kAmaxRows = 128, kAmaxColumns = 256;  ///< tile of a block that computes amaxes
static_assert(kAmaxColumns == kCastThreads, "a thread finishes one column");

}  // namespace fp8::quant
