/// Lists the contents of an untrusted HDF5 file. Private; the public interface is Reader.
#pragma once

#include "fp8/base/file.h"
#include "fp8/h5/types.h"

namespace fp8::h5 {

/// Contents of a file.
struct Contents {
  std::vector<Entry> entries;                             ///< datasets, sorted by name
  std::map<std::string, Attributes, std::less<>> groups;  ///< attributes by full path; "" is the root
};

/// Lists a file with a user block whose contents are all on the allow-list, without HDF5, which some forged metadata
/// crashes; throws Error otherwise. Metadata without checksums (superblocks before 2) are refused.
Contents walk(const File& file);

}  // namespace fp8::h5
