// Blocks of one tensor; how blocks cover a tensor is checked in cover.cc.
#include "fp8/ckpt/block.h"

#include <algorithm>

#include "fp8/base/checked.h"

namespace fp8::ckpt {

std::int64_t Block::elements() const { return checked_product(extent, "a block"); }

Block rows_block(const TensorMeta& meta, std::int64_t begin, std::int64_t end) {
  Block block = whole_block(meta);
  if (!meta.shape.empty()) {
    block.offset.front() = begin;
    block.extent.front() = end - begin;
  } else if (begin != 0 || end != 1) {
    throw Error(meta.name + ": a scalar has no rows " + std::to_string(begin) + " to " + std::to_string(end));
  }
  return block;
}

Block whole_block(const TensorMeta& meta) { return {std::vector<std::int64_t>(meta.shape.size(), 0), meta.shape}; }

bool is_whole_rows(const TensorMeta& meta, const Block& block) {
  return block.extent.size() == meta.shape.size() &&
         (meta.shape.empty() || std::equal(block.extent.begin() + 1, block.extent.end(), meta.shape.begin() + 1));
}

void check_block(const TensorMeta& meta, const Block& block, const std::string& what) {
  const std::size_t rank = meta.shape.size();
  if (block.offset.size() != rank || block.extent.size() != rank)
    throw Error(what + ": offset and extent of a block have lengths " + std::to_string(block.offset.size()) + " and " +
                std::to_string(block.extent.size()) + ", the shape of the tensor " + std::to_string(rank));
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t offset = block.offset[d], extent = block.extent[d];
    if (offset < 0 || extent < 0 || extent > meta.shape[d] - offset)
      throw Error(what + ": a block with offset " + std::to_string(offset) + " and extent " + std::to_string(extent) +
                  " is outside dimension " + std::to_string(d) + ", which has " + std::to_string(meta.shape[d]));
  }
  if (block.elements() == 0) throw Error(what + ": a block is empty");
}

}  // namespace fp8::ckpt
