/// The metadata of an HDF5 file, read by plain reads and without HDF5, which a forged file can crash: object headers,
/// and the heap and tree in which large groups keep their links. Only metadata with checksums is read: format version 2
/// of object headers. walk.cc interprets the messages. Private to the crate. Source: HDF5 File Format Specification,
/// version 3.0.
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

/// The undefined address.
inline constexpr std::uint64_t kNoAddress = ~std::uint64_t{0};

/// Checksum of HDF5's metadata. Source: Bob Jenkins, lookup3 (public domain), hashlittle() with initial value 0.
std::uint32_t metadata_checksum(std::span<const std::byte> bytes);

/// Location for errors: a file, and the current object.
struct Location {
  std::string path;
  std::string name;
  /// Throws Error `path: /name: reason`.
  [[noreturn]] void fail(const std::string& reason) const;
};

/// Reads bytes front to back; throws if they end too early.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const Location& place) : bytes_(bytes), place_(&place) {}
  /// The next little-endian number of `width` <= 8 bytes.
  std::uint64_t number(std::size_t width);
  /// The next `count` bytes.
  std::span<const std::byte> take(std::uint64_t count);
  /// Number of bytes left.
  std::size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  const Location* place_;
};

/// Reads metadata blocks of a file after its user block. Each byte of a valid file belongs to at most one block, so all
/// blocks together are at most as large as the file: larger totals are refused, which stops cycles; also more than 64
/// MiB per block or 4 GiB in all, which bounds time and memory.
class Metadata {
 public:
  explicit Metadata(const File& file);

  /// Location for errors; the walk sets the object.
  Location place;

  /// `length` bytes at `address`, counted towards the limit.
  std::vector<std::byte> read(std::uint64_t address, std::uint64_t length);
  /// Reads like read() a block that must begin with `signature` and end with the checksum of the preceding bytes.
  std::vector<std::byte> block(std::uint64_t address, std::uint64_t length, std::string_view signature);
  /// Up to 64 bytes at `address`, fewer at the end of the file; not counted.
  std::vector<std::byte> peek(std::uint64_t address) const;

 private:
  const File& file_;
  std::uint64_t bytes_;  // after the user block
  std::uint64_t left_;   // bytes that may still be read
};

/// A message of an object header.
struct Message {
  std::uint8_t type = 0;
  bool shared = false;              ///< its body is stored elsewhere
  std::span<const std::byte> body;  ///< bytes of the message in the header's chunks
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

/// The heap objects listed in a tree.
struct DenseObjects {
  std::vector<std::vector<std::byte>> blocks;       ///< blocks of the heap
  std::vector<std::span<const std::byte>> objects;  ///< objects in the blocks, in the order of the tree
};

/// Reads the objects of the heap at `heap` listed in the tree at `tree`; `tree_type` is 5 for links, 8 for attributes.
/// Throws Error for more than `limit`.
DenseObjects read_dense(Metadata& file, std::uint64_t heap, std::uint64_t tree, int tree_type, std::size_t limit);

}  // namespace fp8::h5
