/// The parts of an HDF5 file that describe it, read by plain reads and without HDF5, which a forged file can crash:
/// object headers, and the heap and tree in which large groups keep their links. Only what has a checksum is read:
/// format version 2 of object headers. What the parts mean is the business of walk.cc. Private to the crate. Source:
/// HDF5 File Format Specification, version 3.0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/base/file.h"

namespace fp8::h5 {

/// An address that is none.
inline constexpr std::uint64_t kNoAddress = ~std::uint64_t{0};

/// Checksum of HDF5's metadata. Source: Bob Jenkins, lookup3 (public domain), hashlittle() with initial value 0.
std::uint32_t metadata_checksum(std::span<const std::byte> bytes);

/// Where an error is: a file, and the object being looked at.
struct Place {
  std::string path;
  std::string name;
  /// Throws Error `path: /name: reason`.
  [[noreturn]] void fail(const std::string& reason) const;
};

/// Bytes read front to back; throws where they end too early.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const Place& place) : bytes_(bytes), place_(&place) {}
  /// The next little-endian number of `width` <= 8 bytes.
  std::uint64_t number(std::size_t width);
  /// The next `count` bytes.
  std::span<const std::byte> take(std::uint64_t count);
  /// Bytes that are left.
  std::size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  const Place* place_;
};

/// Reads parts of one file behind its user block. Each byte of a file describes one thing at most, so all parts
/// together are no larger than the file: more is refused, which ends every circle, and so are more than 64 MiB in one
/// part or 4 GiB in all, which bounds time and memory.
class Metadata {
 public:
  explicit Metadata(const File& file);

  /// What errors name; the walk sets the object.
  Place place;

  /// `length` bytes at `address`, which count.
  std::vector<std::byte> read(std::uint64_t address, std::uint64_t length);
  /// The same, which must begin with `signature` and end with the checksum of what is before.
  std::vector<std::byte> block(std::uint64_t address, std::uint64_t length, std::string_view signature);
  /// Up to 64 bytes at `address`, as far as there are any; they do not count.
  std::vector<std::byte> peek(std::uint64_t address) const;

 private:
  const File& file_;
  std::uint64_t bytes_;  // behind the user block
  std::uint64_t left_;   // that may still be read
};

/// A message of an object header.
struct Message {
  std::uint8_t type = 0;
  bool shared = false;              ///< its body lies elsewhere
  std::span<const std::byte> body;  ///< in the header's chunks
};

/// An object header with its continuations; empty messages are left out.
struct ObjectHeader {
  std::vector<std::vector<std::byte>> chunks;
  std::vector<Message> messages;

  /// The first message of `type`, or null.
  const Message* find(std::uint8_t type) const;
};

/// Reads the object header at `address`.
ObjectHeader read_object_header(Metadata& file, std::uint64_t address);

/// What a heap keeps under the names in a tree.
struct DenseObjects {
  std::vector<std::vector<std::byte>> blocks;       ///< of the heap
  std::vector<std::span<const std::byte>> objects;  ///< in the blocks, in the order of the tree
};

/// Reads the objects of the heap at `heap` that the tree at `tree` names; `tree_type` is 5 for links, 8 for attributes.
/// Refuses more than `limit`.
DenseObjects read_dense(Metadata& file, std::uint64_t heap, std::uint64_t tree, int tree_type, std::size_t limit);

}  // namespace fp8::h5
