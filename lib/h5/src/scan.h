/// Walks an HDF5 file once and notes what it holds. Private: Reader is the public face.
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
/// Everything in a plain file that is on the allow-list; throws on anything that is not. HDF5 reads the metadata, and
/// 1.10 crashes on some that is forged.
Contents scan(const File& file);
/// The same for a file behind a user block, without HDF5: whatever the file holds, an Error is the worst. Refuses
/// metadata without checksums.
Contents walk(const File& file);

/// The dtype of `entry`: by its attribute `dtype`, which must fit what is stored; without the attribute as stored.
DType named_dtype(DType stored, const Entry& entry, const std::string& path);
/// Sorts the entries by name; throws where two share bytes.
void finish(Contents& contents, const std::string& path);

}  // namespace fp8::h5
