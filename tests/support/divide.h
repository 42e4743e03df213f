/// Rewrites checkpoints into blocks that are split unevenly in every dimension, as other meshes would write them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/ckpt/writer.h"
#include "manifest_parts.h"

namespace fp8::test {

/// The elements of a block of a tensor whose bytes are `whole`, one by one.
inline std::vector<std::byte> cut(const ckpt::TensorMeta& meta, const ckpt::Block& block,
                                  const std::vector<std::byte>& whole) {
  const auto size = static_cast<std::int64_t>(dtype::size_of(meta.dtype));
  std::vector<std::byte> bytes;
  for (std::int64_t i = 0; i < block.elements(); ++i) {
    std::int64_t rest = i, stride = size, at = 0;
    for (std::size_t d = meta.shape.size(); d-- > 0;) {
      at += (block.offset[d] + rest % block.extent[d]) * stride;
      rest /= block.extent[d];
      stride *= meta.shape[d];
    }
    bytes.insert(bytes.end(), whole.begin() + at, whole.begin() + at + size);
  }
  return bytes;
}

/// Appends the parts of a block for ranks [first, last), halved in one dimension after the other from `dimension` on,
/// each at another place. Ranks for which no element is left have no part.
inline void split(const ckpt::Block& block, std::size_t dimension, std::int64_t first, std::int64_t last,
                  std::vector<std::pair<std::int64_t, ckpt::Block>>& parts) {
  const std::size_t rank = block.extent.size();
  std::size_t tried = 0;
  while (tried < rank && block.extent[(dimension + tried) % rank] < 2) ++tried;
  if (tried == rank || last - first == 1) return parts.emplace_back(last - 1, block), void();
  const std::size_t d = (dimension + tried) % rank;
  const std::int64_t middle = (first + last) / 2, extent = block.extent[d],
                     place = std::clamp<std::int64_t>(extent * (2 + first) / (3 + last), 1, extent - 1);
  ckpt::Block before = block, after = block;
  before.extent[d] = place;
  after.offset[d] += place;
  after.extent[d] -= place;
  split(before, d + 1, first, middle, parts);
  split(after, d + 1, middle, last, parts);
}

/// Copies the checkpoint `from` to the folder `to` of `ranks` files. Throws Error.
inline void divide(const std::string& from, const std::string& to, std::int64_t ranks) {
  const ckpt::Checkpoint source = ckpt::Checkpoint::open(from);
  const std::string folder = ckpt::begin_folder(to);
  std::vector<ckpt::FileEntry> entries;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    ckpt::ShardWriter writer(folder, rank, ranks, source.kind());
    if (rank == 0) {
      writer.document("config", source.config());
      writer.document("train", source.train());
      writer.document("provenance", source.provenance());
      if (source.tokenizer()) writer.tokenizer(*source.tokenizer());
      if (source.tokenizer_id()) writer.tokenizer_id(*source.tokenizer_id());
      writer.huggingface(source.huggingface());
    }
    for (const ckpt::TensorMeta& meta : source.tensors()) {
      std::vector<std::byte> whole(meta.bytes());
      source.read(meta.name, whole);
      std::vector<std::pair<std::int64_t, ckpt::Block>> parts;
      if (!whole.empty()) split(ckpt::whole_block(meta), 0, 0, ranks, parts);
      for (const auto& [owner, block] : parts)
        if (owner == rank) writer.tensor(meta, block, cut(meta, block, whole));
    }
    entries.push_back(writer.finish());
  }
  ckpt::commit_folder(folder, to, source.kind(), mesh_of(ranks), entries);
}

}  // namespace fp8::test
