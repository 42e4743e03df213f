/// Scans an HDF5 file once and lists its contents. Private; the public interface is Reader.
#pragma once

#include "fp8/base/file.h"
#include "fp8/h5/types.h"

namespace fp8::h5 {

/// Contents of a file.
struct Contents {
  std::vector<Entry> entries;                             ///< datasets, sorted by name
  std::map<std::string, Attributes, std::less<>> groups;  ///< attributes by full path; "" is the root
};

/// Checks the superblock before HDF5 opens the file. With `user_block` the file must have a user block, and superblock
/// 2 or 3 without an extension.
void check_superblock(const File& file, bool user_block);
/// Lists a plain file whose contents are all on the allow-list; throws otherwise. HDF5 reads the metadata, and 1.10
/// crashes on some forged metadata.
Contents scan(const File& file);
/// Scans a file with a user block like scan(), but without HDF5: forged files cause at most an Error. Refuses metadata
/// without checksums.
Contents walk(const File& file);

/// The dtype of `entry`: from its attribute `dtype`, which must match the stored type; without the attribute the stored
/// type.
DType named_dtype(DType stored, const Entry& entry, const std::string& path);
/// Sorts the entries by name; throws if two share bytes.
void finish(Contents& contents, const std::string& path);

}  // namespace fp8::h5
