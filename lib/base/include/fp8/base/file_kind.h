/// Kinds of files that are no text, by their first bytes.
#pragma once

#include <cstdint>
#include <string_view>

namespace fp8 {

/// Kind of a file.
enum class FileKind : std::uint8_t {
  unknown,
  checkpoint,
  tokens,
  hdf5,
  safetensors,
  numpy,
  parquet,
  gzip,
  zstd,
  zip,
  png,
  program
};

/// The kind of a file that begins with `head`, at least 16 bytes of it if it has as many. Pure.
FileKind kind_of_file(std::string_view head);

}  // namespace fp8
