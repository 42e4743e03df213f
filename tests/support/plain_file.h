/// Plain HDF5 files of any program, such as reference values, read through HDF5. For files of the repository and of
/// tests: HDF5 may crash on damaged ones.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/base/file.h"
#include "fp8/h5/types.h"

namespace fp8::test {

/// An open file. Attributes of variable-length text are left out.
class PlainFile {
 public:
  explicit PlainFile(const std::string& path);

  /// All datasets, sorted by name.
  const std::vector<h5::Entry>& list() const { return entries_; }
  /// The dataset `name`, or null.
  const h5::Entry* find(std::string_view name) const;
  /// The dataset `name`; throws Error if there is none.
  const h5::Entry& at(std::string_view name) const;
  /// Attributes of a group; "" is the root.
  const h5::Attributes& group(std::string_view name) const { return groups_.find(name)->second; }
  /// Full paths of all groups, sorted, the root ("") first.
  std::vector<std::string> groups() const;

  /// All bytes of a dataset.
  void read(std::string_view name, std::span<std::byte> out) const;
  /// All elements of a dataset whose elements have sizeof(T) bytes, in order.
  template <class T>
  std::vector<T> read_as(std::string_view name) const {
    std::vector<T> values(elements(name, sizeof(T)));
    read(name, std::as_writable_bytes(std::span(values)));
    return values;
  }

 private:
  std::size_t elements(std::string_view name, std::size_t bytes) const;
  File file_;
  std::vector<h5::Entry> entries_;
  std::map<std::string, h5::Attributes, std::less<>> groups_;
};

}  // namespace fp8::test
