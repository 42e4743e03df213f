/// Walks an untrusted HDF5 file once and notes what it holds. Private: Reader is the public face.
#pragma once

#include "fp8/base/file.h"
#include "fp8/h5/types.h"

namespace fp8::h5 {

/// What a file holds.
struct Contents {
  std::vector<Entry> entries;                             ///< datasets, sorted by name
  std::map<std::string, Attributes, std::less<>> groups;  ///< attributes by full path; "" is the root
};

/// Opens a regular file for reading; a pipe or a folder is refused without waiting for it.
File open_regular(const std::string& path);
/// Checks the superblock by itself, before HDF5 sees the file. `user_block`: the file must have one, and superblock 2
/// or 3 without an extension.
void check_superblock(const File& file, bool user_block);
/// Everything in `file` that is on the allow-list; throws on anything that is not. `strict` refuses metadata without
/// checksums.
Contents scan(const File& file, bool strict);

}  // namespace fp8::h5
