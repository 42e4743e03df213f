/// The 512 bytes before the HDF5 part of a file: `<magic> 1 <length> <digest>\n` and zeros. Length is the size of the
/// whole file in bytes, digest the XXH3-128 of all bytes after the block, 32 hex digits. It detects damage that dataset
/// digests do not cover: metadata, slack, truncated and appended bytes. Any change of the block itself is detected
/// because every byte of its form is fixed.
#pragma once

#include <functional>
#include <span>

#include "fp8/base/file.h"
#include "fp8/h5/reader.h"
#include "fp8/h5/types.h"

namespace fp8::h5 {

/// Contents of a user block.
struct UserBlock {
  std::uint64_t file_bytes = 0;  ///< size of the whole file
  std::string digest;            ///< XXH3-128 of the bytes after the block, 32 hex digits
};

/// The block's 512 bytes for these values.
std::string format_user_block(std::string_view magic, const UserBlock& block);
/// Reads the block of a file and compares the stated size with the file's size; the digest is not checked. Throws Error
/// `path: reason` when the file has no such block, has an unknown version, or is shorter or longer than stated.
UserBlock read_user_block(const File& file, std::string_view magic);
/// Whether `path` is a regular file that begins with `magic` and a blank. False if it cannot be read.
bool has_magic(const std::string& path, std::string_view magic);
/// Returns the buffer for the bytes of a dataset: Entry::bytes of host memory, or empty for none.
using Destination = std::function<std::span<std::byte>(const Entry&)>;
/// Returns the values that a dataset of this name may hold.
using ValueRule = std::function<Values(std::string_view name)>;
/// Reads every byte of an open file with a user block once, and checks the whole-file digest and each dataset's. Throws
/// Error that names the damaged dataset, where possible, or the dataset with a value that `rule` forbids (an empty
/// `rule` allows all). Bytes for which `destination` (may be empty) returns a buffer are copied to it, so that loading
/// needs no second read; if this throws, the buffers are invalid.
void verify_file(const Reader& reader, const Destination& destination = {}, const ValueRule& rule = {});

}  // namespace fp8::h5
