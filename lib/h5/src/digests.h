/// The digests of a file: of each dataset, of what lies between them, and of the whole. Not what they are compared with
/// in the end: that is in the user block, or in what a writer remembers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/base/digest.h"
#include "fp8/base/file.h"

namespace fp8::h5 {

/// A dataset's bytes, [offset, offset + bytes) of the file, and the digest that they must have.
struct Part {
  std::string name;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::string digest;
  std::span<std::byte> into = {};  ///< where who checks them leaves them, of `bytes` or of none
};

/// Throws Error `path: /name: damaged` unless a dataset's bytes have the digest that is stated.
void check_digest(const std::string& path, std::string_view name, const Digest& digest, std::string_view stated);

/// Digest of the bytes from the user block's end to `size` that lie in none of `parts`, which are sorted by offset.
std::string digest_between(const File& file, const std::vector<Part>& parts, std::uint64_t size);

/// Of bytes from the user block's end to `size`.
struct FileDigests {
  std::string whole;    ///< all of them
  std::string between;  ///< as digest_between
};

/// Reads each byte of `file` once. Throws Error naming the first of `parts` (sorted by offset) that is damaged.
FileDigests check_digests(const File& file, const std::vector<Part>& parts, std::uint64_t size);

}  // namespace fp8::h5
