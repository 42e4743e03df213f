/// Reads an untrusted HDF5 file. Opening scans the file once and accepts only what is on an allow-list: groups and
/// datasets reached by one hard link each, contiguous layout, no filter, no external storage, little-endian numbers of
/// known types, fixed-length text attributes, bounded names, ranks, depths and counts, and storage that lies inside the
/// file. Soft and external links, virtual and chunked datasets, and variable-length text are refused. After that, bytes
/// are read at checked offsets by plain reads, which makes a Reader thread-safe and free of type conversion. HDF5,
/// which forged metadata can crash, is not used. Digests of whole files are in user_block.h.
#pragma once

#include <memory>
#include <span>

#include "fp8/base/file.h"
#include "fp8/h5/types.h"

namespace fp8::h5 {

/// Opens a regular file for reading; throws for a pipe or a folder without blocking.
File open_regular(const std::string& path);

/// An open file. Movable, not copyable. All errors are Error with `path: /dataset: reason`.
class Reader {
 public:
  /// Opens and checks `path`. The file must begin with the user block of the magic word, have the length stated in the
  /// block, and use only HDF5's checksummed metadata (superblock 2 or 3); the digest is not checked here.
  Reader(const std::string& path, std::string_view magic);
  /// Reads a file that is open already and may have been removed since.
  Reader(File file, std::string_view magic);
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;
  ~Reader();

  /// Path as given.
  const std::string& path() const;
  /// The file itself.
  const File& file() const;
  /// Size of the file in bytes.
  std::uint64_t file_bytes() const;
  /// The digest stated in the user block (of all bytes after the block), 32 hex digits.
  const std::string& stated_digest() const;
  /// All datasets, sorted by name.
  const std::vector<Entry>& list() const;
  /// The dataset `name` (a leading slash is ignored), or null.
  const Entry* find(std::string_view name) const;
  /// The dataset `name`; throws when there is none.
  const Entry& at(std::string_view name) const;
  /// Attributes of the group `name`; "" or "/" is the root. Throws when there is no such group.
  const Attributes& group(std::string_view name) const;

  /// All bytes of a dataset as stored, into `out`, whose size must be Entry::bytes.
  void read(std::string_view name, std::span<std::byte> out) const;
  /// Rows [begin, end) of dimension 0 as stored, into `out`, whose size must be (end - begin) x Entry::row_bytes().
  void read_rows(std::string_view name, std::int64_t begin, std::int64_t end, std::span<std::byte> out) const;
  /// Reads a dataset and compares it with its attribute `digest`; throws `damaged` if they differ. Does nothing if the
  /// attribute is missing.
  void verify(std::string_view name) const;
  /// All bytes of a uint8 vector as text; throws when the dataset has another type, is longer than `limit`, or does not
  /// match its attribute `digest`.
  std::string read_text(std::string_view name, std::uint64_t limit = std::uint64_t{1} << 30) const;
  /// All elements of a dataset whose element size is sizeof(T), in order; throws when longer than `limit` bytes.
  template <class T>
  std::vector<T> read_as(std::string_view name, std::uint64_t limit = std::uint64_t{1} << 40) const {
    std::vector<T> values(element_count(name, sizeof(T), limit));
    read(name, std::as_writable_bytes(std::span(values)));
    return values;
  }

 private:
  struct State;
  std::size_t element_count(std::string_view name, std::size_t element_bytes, std::uint64_t limit) const;
  std::unique_ptr<const State> state_;
};

}  // namespace fp8::h5
