/// The digests of a file: of each dataset, of the bytes between them, and of the whole. The expected values are in the
/// user block or kept by the writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/base/digest.h"
#include "fp8/base/file.h"
#include "fp8/h5/types.h"

namespace fp8::h5 {

/// A dataset's bytes, [offset, offset + bytes) of the file, the expected digest, and the allowed values.
struct Part {
  std::string name;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::string digest;
  DType dtype = DType::u8;
  Values values = Values::any;
  std::span<std::byte> into = {};  ///< buffer for the checked bytes: `bytes` long, or empty
};

/// Bytes that are read at a time to be digested; they stay in the cache until then.
inline constexpr std::size_t kDigestPiece = std::size_t{1} << 18;

/// Throws Error `path: /name: damaged` unless a dataset's bytes have the stated digest.
void check_digest(const std::string& path, std::string_view name, const Digest& digest, std::string_view stated);

/// Digests of the bytes from the user block's end to `size`.
struct FileDigests {
  std::string whole;    ///< digest of all bytes
  std::string between;  ///< digest of the bytes outside all parts
  /// `/name: reason` of each part that holds a forbidden value.
  std::vector<std::string> invalid;
};

/// Reads each byte of `file` once. Throws Error naming the first damaged one of `parts` (sorted by offset), and `path:
/// cut short` if a part ends after `size` or the file ends before `size`. Reads through `run`.
FileDigests check_digests(const File& file, const std::vector<Part>& parts, std::uint64_t size,
                          const PieceRunner& run = {});

}  // namespace fp8::h5
