/// Reading of a part of a block to its places in a part of the tensor. Private to the crate.
#pragma once

#include <cstdint>
#include <span>

#include "fp8/ckpt/block.h"
#include "fp8/h5/reader.h"

namespace fp8::ckpt {

/// Bytes that are read at a time through a buffer.
inline constexpr std::uint64_t kReadPiece = std::uint64_t{4} << 20;

/// Copies what `block` has of rows [begin, end) of a tensor from `file`, whose dataset of the tensor's name is the
/// block, to `out`, which is these rows of the whole tensor; other elements of `out` stay as they are. What is
/// contiguous in both is read straight to its place, the rest through a buffer of at most kReadPiece bytes.
void read_block(const h5::Reader& file, const TensorMeta& meta, const Block& block, std::int64_t begin,
                std::int64_t end, std::span<std::byte> out);

}  // namespace fp8::ckpt
