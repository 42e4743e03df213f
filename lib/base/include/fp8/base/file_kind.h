/// Kinds of files: those that are no text, by their first bytes, and those that can be read only once.
#pragma once

#include <cstdint>
#include <string>
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

/// Whether `path` is a named pipe or a character device, links followed: it can be read only once, and reading may wait
/// for ever. False if it does not exist.
bool is_stream(const std::string& path);

}  // namespace fp8
