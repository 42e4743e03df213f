// Digests of a dataset, one per 64 KiB, so that a reader of some rows can check them without reading the whole dataset.
// Private to the crate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8/base/digest.h"
#include "fp8/h5/reader.h"

namespace fp8::data {

constexpr std::size_t kBlockBytes = std::size_t{1} << 16;
constexpr std::size_t kDigestBytes = 16;  // high half first, both big-endian

// Digests the blocks of bytes that arrive in pieces.
class BlockDigester {
 public:
  void update(std::span<const std::byte> bytes);
  // One digest per block; the last block may be short.
  std::vector<std::byte> finish();

 private:
  void end_block();

  Digester block_;
  std::size_t in_block_ = 0;
  std::vector<std::byte> digests_;
};

// An integer vector of a token file; each block is compared with its digest whenever some of it is read: a file may
// change under a run. Reading is const and thread-safe. The h5::Reader must outlive this.
class CheckedVector {
 public:
  // `digests` is the name of the uint8 [blocks, 16] digests of `dataset`. If the file has none, the whole dataset is
  // compared with its digest here. Throws Error `path: /dataset: reason`.
  CheckedVector(const h5::Reader& file, std::string dataset, const std::string& digests);
  // Bytes [begin, begin + out.size()), whole elements within the dataset.
  void read(std::uint64_t begin, std::span<std::byte> out) const;

 private:
  void read_bytes(std::uint64_t begin, std::span<std::byte> out) const;
  void check(std::uint64_t block, std::span<const std::byte> bytes) const;

  const h5::Reader& file_;
  std::string dataset_;
  std::uint64_t bytes_ = 0, element_bytes_ = 1;
  std::vector<std::byte> digests_;  // empty if everything was compared in the constructor
};

}  // namespace fp8::data
