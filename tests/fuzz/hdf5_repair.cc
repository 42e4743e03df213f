// Finds structures by their signatures. The positions of checksums are those of the HDF5 file format specification,
// version 3.0.
#include "hdf5_repair.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "fp8/base/digest.h"
#include "fp8/h5/user_block.h"

// The checksum of metadata, a global symbol of libhdf5.
extern "C" std::uint32_t H5_checksum_metadata(const void* data, std::size_t size, std::uint32_t initial);
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace fp8::fuzz {
namespace {

using Bytes = std::span<std::uint8_t>;

std::uint64_t number(Bytes bytes, std::size_t at, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;) value = value << 8U | (at + i < bytes.size() ? bytes[at + i] : 0U);
  return value;
}

void put(Bytes bytes, std::size_t at, std::uint64_t value, std::size_t width) {
  if (at + width > bytes.size()) return;
  for (std::size_t i = 0; i < width; ++i) bytes[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
}

// Stores the checksum of [0, length) of `bytes` after it.
void seal(Bytes bytes, std::uint64_t length) {
  if (length > bytes.size() || bytes.size() - length < 4) return;
  put(bytes, length, H5_checksum_metadata(bytes.data(), length, 0), 4);
}

// Seals the first chunk of an object header, and its continuation chunks.
void seal_header(Bytes file, std::size_t at) {
  const Bytes bytes = file.subspan(at);
  const std::uint64_t flags = number(bytes, 5, 1), width = std::uint64_t{1} << (flags & 3U);
  const std::size_t begin = 6 + ((flags & 0x20U) != 0 ? 16 : 0) + ((flags & 0x10U) != 0 ? 4 : 0);
  const std::uint64_t length = number(bytes, begin, width);
  if (length > bytes.size()) return;
  const std::size_t end = begin + width + length, head = (flags & 4U) != 0 ? 6 : 4;
  for (std::size_t m = begin + width; m + head + 16 <= std::min(end, bytes.size());
       m += head + number(bytes, m + 1, 2)) {
    if (bytes[m] != 0x10) continue;  // continuation: address and length
    const std::uint64_t where = number(bytes, m + head, 8) + h5::kUserBlockBytes, size = number(bytes, m + head + 8, 8);
    if (where < file.size() && size >= 4 && size <= file.size() - where) seal(file.subspan(where), size - 4);
  }
  seal(bytes, end);
}

// Seals the header of a B-tree, and its root if the root is a leaf.
void seal_tree(Bytes file, std::size_t at) {
  const Bytes bytes = file.subspan(at);
  const std::uint64_t root = number(bytes, 16, 8) + h5::kUserBlockBytes;
  if (root < file.size() && number(bytes, 12, 2) == 0)
    seal(file.subspan(root), 6 + number(bytes, 10, 2) * number(bytes, 24, 2));
  seal(bytes, 34);
}

// Seals the header of a fractal heap and its root direct block. The checksum is inside the block and counts as zero.
void seal_heap(Bytes file, std::size_t at) {
  const Bytes bytes = file.subspan(at);
  const std::uint64_t root = number(bytes, 132, 8) + h5::kUserBlockBytes, size = number(bytes, 112, 8);
  const std::size_t checksum = 13 + (number(bytes, 128, 2) + 7) / 8;
  if (root < file.size() && size <= file.size() - root && checksum + 4 <= size && number(bytes, 140, 2) == 0) {
    const Bytes block = file.subspan(root, size);
    put(block, checksum, 0, 4);
    put(block, checksum, H5_checksum_metadata(block.data(), size, 0), 4);
  }
  seal(bytes, 142);
}

}  // namespace

void repair(Bytes file, std::string_view magic) {
  if (file.size() < h5::kUserBlockBytes + 48) return;
  const auto is = [&](std::size_t at, std::string_view signature) {
    return std::memcmp(file.data() + at, signature.data(), signature.size()) == 0;
  };
  const std::size_t last = file.size() - 4;
  for (std::size_t at = h5::kUserBlockBytes; at < last; ++at) {
    if (is(at, "OHDR")) seal_header(file, at);
    if (is(at, "BTHD")) seal_tree(file, at);
    if (is(at, "FRHP")) seal_heap(file, at);
  }
  const Bytes super = file.subspan(h5::kUserBlockBytes);
  put(super, 28, file.size(), 8);
  seal(super, 44);
  if (!is(0, magic)) return;
  const std::string digest = digest_of(std::as_bytes(super)).hex();
  const std::string block = h5::format_user_block(magic, {file.size(), digest});
  std::copy(block.begin(), block.end(), file.begin());
}

std::size_t mutate_hdf5(std::uint8_t* data, std::size_t size, std::size_t max_size, std::string_view magic) {
  const std::size_t mutated = LLVMFuzzerMutate(data, size, max_size);
  repair({data, mutated}, magic);
  return mutated;
}

}  // namespace fp8::fuzz
