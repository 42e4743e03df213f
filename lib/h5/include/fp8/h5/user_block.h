/// The 512 bytes before the HDF5 part of a file: `<magic> 1 <length> <digest>\n` and zeros. Length is the size of the
/// whole file in bytes, digest the XXH3-128 of all bytes after the block, 32 hex digits. It sees what dataset digests
/// do not: metadata, slack, truncated and appended bytes. Any change of the block itself is seen because its form is
/// fixed to the last byte.
#pragma once

#include <functional>
#include <span>

#include "fp8/h5/types.h"

namespace fp8::h5 {

/// What a user block states.
struct UserBlock {
  std::uint64_t file_bytes = 0;  ///< size of the whole file
  std::string digest;            ///< XXH3-128 of the bytes after the block, 32 hex digits
};

/// The block's 512 bytes for these values.
std::string format_user_block(std::string_view magic, const UserBlock& block);
/// Reads the block of `path` and checks it against the file's size, which costs nothing. Throws Error `path: reason`
/// when the file has no such block, is of an unknown version, or is shorter or longer than stated.
UserBlock read_user_block(const std::string& path, std::string_view magic);
/// Says where the bytes of a dataset are wanted: Entry::bytes of host memory, or none.
using Destination = std::function<std::span<std::byte>(const Entry&)>;
/// Reads every byte of `path` once: the whole-file digest and each dataset's. Throws Error naming the dataset that is
/// damaged where one can be named. Returns what the block states. Bytes that `destination` (which may be empty) gives a
/// place are left there, so that loading does not read twice; when this throws they are not to be believed.
UserBlock verify_file(const std::string& path, std::string_view magic, const Destination& destination = {});

}  // namespace fp8::h5
