/// Reads an HDF5 file that nobody vouches for. Opening walks the file once and accepts only what is on an allow-list:
/// groups and datasets reached by one hard link each, contiguous layout, no filter, no external storage, little-endian
/// numbers of known types, fixed-length text attributes, bounded names, ranks, depths and counts, and storage that lies
/// inside the file. Soft and external links, virtual and chunked datasets, and variable-length text (whose decoding in
/// HDF5 trusts lengths in the file) are refused. After that bytes are read at checked offsets by plain reads, which
/// makes a Reader safe to share between threads and free of type conversion. A file behind a user block is read without
/// HDF5, which forged metadata can crash; plain files, which no program of the suite takes, go through it. Not here:
/// digests of whole files, see user_block.h.
#pragma once

#include <memory>
#include <span>

#include "fp8/h5/types.h"

namespace fp8::h5 {

/// An open file. Moves, does not copy. All errors are Error with `path: /dataset: reason`.
class Reader {
 public:
  /// Opens and checks `path`. With a magic word the file must begin with that user block, be of the length the block
  /// says, and use only HDF5's checksummed metadata (superblock 2 or 3); its bytes are not digested here. Without one
  /// any layout of HDF5 metadata is read (plain files of h5py).
  explicit Reader(const std::string& path, std::string_view magic = {});
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;
  ~Reader();

  /// Path as given.
  const std::string& path() const;
  /// Size of the file in bytes.
  std::uint64_t file_bytes() const;
  /// The digest that the user block states (of all bytes after it), 32 hex digits; empty without a magic word.
  const std::string& stated_digest() const;
  /// All datasets, sorted by name.
  const std::vector<Entry>& list() const;
  /// The dataset `name` (a leading slash is ignored), or null.
  const Entry* find(std::string_view name) const;
  /// The dataset `name`; throws when there is none.
  const Entry& at(std::string_view name) const;
  /// Attributes of the group `name`; "" or "/" is the root. Throws when there is no such group.
  const Attributes& group(std::string_view name) const;
  /// Full paths of all groups, sorted, the root ("") first.
  std::vector<std::string> groups() const;

  /// All bytes of a dataset as stored, into `out`, whose size must be Entry::bytes.
  void read(std::string_view name, std::span<std::byte> out) const;
  /// Rows [begin, end) of dimension 0 as stored, into `out`, whose size must be (end - begin) x Entry::row_bytes().
  void read_rows(std::string_view name, std::int64_t begin, std::int64_t end, std::span<std::byte> out) const;
  /// All bytes of a uint8 vector as text; throws when it is of another type, longer than `limit`, or not of the digest
  /// in its attribute `digest`.
  std::string read_text(std::string_view name, std::uint64_t limit = std::uint64_t{1} << 30) const;
  /// All elements of a dataset whose element size is sizeof(T), in order; throws when longer than `limit` bytes.
  template <class T>
  std::vector<T> read_as(std::string_view name, std::uint64_t limit = std::uint64_t{1} << 40) const {
    std::vector<T> values(element_count(name, sizeof(T), limit));
    read(name, std::as_writable_bytes(std::span(values)));
    return values;
  }
  /// Offset in the file of a dataset's first byte, for mapping it. Throws when the dataset is empty.
  std::uint64_t contiguous_offset(std::string_view name) const;

 private:
  struct State;
  std::size_t element_count(std::string_view name, std::size_t element_bytes, std::uint64_t limit) const;
  std::unique_ptr<const State> state_;
};

}  // namespace fp8::h5
