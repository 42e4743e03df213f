// Large groups: links and attributes are in a fractal heap, indexed by a B-tree of version 2.
#include <algorithm>
#include <bit>
#include <cstring>

#include "metadata.h"

namespace fp8::h5 {
namespace {

// Bytes needed for numbers up to `limit`.
std::size_t width_of(std::uint64_t limit) { return (std::max<std::size_t>(std::bit_width(limit), 1) - 1) / 8 + 1; }

// All records of a tree, each `record` bytes.
class Tree {
 public:
  Tree(Metadata& file, std::uint64_t address, int type, std::size_t record, std::size_t limit)
      : file_(file), record_(record), limit_(limit) {
    const std::vector<std::byte> bytes = file.block(address, 38, "BTHD");
    Cursor at(bytes, file.place);
    at.take(4);
    const std::uint64_t version = at.number(1), kind = at.number(1);
    node_ = at.number(4);
    if (version != 0 || kind != static_cast<std::uint64_t>(type) || at.number(2) != record || node_ < 64 ||
        node_ > (1U << 24))
      damaged();
    const std::uint64_t depth = at.number(2);
    if (depth > kMostLevels) damaged();
    at.take(2);
    const std::uint64_t root = at.number(8), count = at.number(2);
    measure(static_cast<std::size_t>(depth));
    if (count > 0) node(root, count, static_cast<std::size_t>(depth));
  }
  const std::vector<std::vector<std::byte>>& records() const { return records_; }

 private:
  static constexpr std::size_t kMostLevels = 8;
  static constexpr std::uint64_t kNodeBytes = 10;  // signature, version, type, checksum

  [[noreturn]] void damaged() const { file_.place.fail("damaged: the tree of its names cannot be read"); }

  // The size of a pointer to a child, and the maximum number of records per node, for each level.
  void measure(std::size_t depth) {
    most_.push_back((node_ - kNodeBytes) / record_);
    std::uint64_t below = most_[0];  // records in a subtree
    pointer_.push_back(0);
    total_.push_back(0);
    for (std::size_t level = 1; level <= depth; ++level) {
      pointer_.push_back(8 + width_of(most_[0]) + total_[level - 1]);
      if (kNodeBytes + pointer_[level] >= node_) damaged();
      most_.push_back((node_ - kNodeBytes - pointer_[level]) / (record_ + pointer_[level]));
      below = std::min<std::uint64_t>((most_[level] + 1) * below + most_[level], std::uint64_t{1} << 40);
      total_.push_back(width_of(below));
    }
  }

  void node(std::uint64_t address, std::uint64_t count, std::size_t level) {
    if (count > most_[level]) damaged();
    const std::uint64_t children = level > 0 ? (count + 1) * pointer_[level] : 0;
    const auto bytes = file_.block(address, kNodeBytes + count * record_ + children, level > 0 ? "BTIN" : "BTLF");
    Cursor at(bytes, file_.place);
    at.take(6);
    if (records_.size() + count > limit_) file_.place.fail("holds more than " + std::to_string(limit_) + " names");
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto record = at.take(record_);
      records_.emplace_back(record.begin(), record.end());
    }
    for (std::uint64_t i = 0; level > 0 && i <= count; ++i) {
      const std::uint64_t child = at.number(8), records = at.number(width_of(most_[0]));
      at.take(total_[level - 1]);
      node(child, records, level - 1);
    }
  }

  Metadata& file_;
  std::size_t record_;
  std::size_t limit_;
  std::uint64_t node_ = 0;
  std::vector<std::uint64_t> most_;
  std::vector<std::size_t> pointer_;
  std::vector<std::size_t> total_;  // width of the count of records below
  std::vector<std::vector<std::byte>> records_;
};

// The blocks of a heap and their objects.
class Heap {
 public:
  Heap(Metadata& file, std::uint64_t address) : file_(file), address_(address) {
    const std::vector<std::byte> bytes = file.block(address, 146, "FRHP");
    Cursor at(bytes, file.place);
    at.take(4);
    const std::uint64_t version = at.number(1);
    at.take(2);
    const std::uint64_t filters = at.number(2);
    checked_ = (at.number(1) & 2U) != 0;
    const std::uint64_t largest = at.number(4);
    at.take(96);
    width_ = at.number(2), start_ = at.number(8);
    const std::uint64_t direct = at.number(8), bits = at.number(2);
    at.take(2);
    const std::uint64_t root = at.number(8), rows = at.number(2);
    if (version != 0 || filters != 0 || !std::has_single_bit(width_) || !std::has_single_bit(start_) ||
        !std::has_single_bit(direct) || width_ > 1024 || direct < start_ || direct > (1U << 24) || bits > 48)
      damaged();
    direct_rows_ = static_cast<std::uint64_t>(std::countr_zero(direct) - std::countr_zero(start_)) + 2;
    offset_bytes_ = static_cast<std::size_t>((bits + 7) / 8);
    length_bytes_ = std::min((static_cast<std::size_t>(std::countr_zero(direct)) + 7) / 8,
                             (std::max<std::size_t>(std::bit_width(largest), 1) - 1 + 7) / 8);
    head_ = 13 + offset_bytes_ + (checked_ ? 4 : 0);
    most_rows_ = bits;
    if (root == kNoAddress) return;
    rows == 0 ? add_direct(root, start_, 0) : add_indirect(root, rows, 0);
  }

  // The object of a heap ID.
  std::span<const std::byte> object(std::span<const std::byte> id) const {
    Cursor at(id, file_.place);
    if (at.number(1) != 0) file_.place.fail("holds a link or attribute that is too large");
    const std::uint64_t offset = at.number(offset_bytes_), length = at.number(length_bytes_);
    const auto behind = std::upper_bound(begins_.begin(), begins_.end(), offset);
    if (behind == begins_.begin()) damaged();
    const auto block = static_cast<std::size_t>(behind - begins_.begin()) - 1;
    const std::span<const std::byte> bytes(blocks_[block]);
    const std::uint64_t first = offset - begins_[block];
    if (first < head_ || first > bytes.size() || length > bytes.size() - first) damaged();
    return bytes.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(length));
  }
  std::vector<std::vector<std::byte>> take_blocks() { return std::move(blocks_); }

 private:
  [[noreturn]] void damaged() const { file_.place.fail("damaged: the heap of its names cannot be read"); }

  // Checks the header of a block: its heap and its offset in the heap.
  void check_block(Cursor& at, std::uint64_t begin) const {
    at.take(4);
    if (at.number(1) != 0 || at.number(8) != address_ || at.number(offset_bytes_) != begin) damaged();
  }

  void add_direct(std::uint64_t address, std::uint64_t size, std::uint64_t begin) {
    std::vector<std::byte> bytes = file_.read(address, size);
    if (bytes.size() < head_ || std::memcmp(bytes.data(), "FHDB", 4) != 0) damaged();
    Cursor at(bytes, file_.place);
    check_block(at, begin);
    if (checked_) {  // the checksum is inside the block and counts as zero
      const std::uint64_t stated = at.number(4);
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(head_ - 4), 4, std::byte{0});
      if (metadata_checksum(bytes) != stated) file_.place.fail("damaged: its names differ from their checksum");
    }
    begins_.push_back(begin);
    blocks_.push_back(std::move(bytes));
  }

  void add_indirect(std::uint64_t address, std::uint64_t rows, std::uint64_t begin) {
    if (rows == 0 || rows > most_rows_) damaged();
    const auto bytes = file_.block(address, 13 + offset_bytes_ + rows * width_ * 8 + 4, "FHIB");
    Cursor at(bytes, file_.place);
    check_block(at, begin);
    for (std::uint64_t row = 0; row < rows; ++row) {
      const auto shift = static_cast<unsigned>(row == 0 ? 0 : row - 1);
      if (static_cast<unsigned>(std::countr_zero(start_)) + shift >= most_rows_) damaged();
      const std::uint64_t size = start_ << shift;
      for (std::uint64_t column = 0; column < width_; ++column, begin += size) {
        const std::uint64_t child = at.number(8);
        if (child == kNoAddress) continue;
        if (row < direct_rows_) {
          add_direct(child, size, begin);
        } else {
          if (size < start_ * width_) damaged();
          add_indirect(child, static_cast<std::uint64_t>(std::countr_zero(size / (start_ * width_))) + 1, begin);
        }
      }
    }
  }

  Metadata& file_;
  std::uint64_t address_;
  bool checked_ = false;  // whether direct blocks have checksums
  std::uint64_t width_ = 0, start_ = 0, direct_rows_ = 0, most_rows_ = 0;
  std::size_t offset_bytes_ = 0, length_bytes_ = 0, head_ = 0;
  std::vector<std::uint64_t> begins_;
  std::vector<std::vector<std::byte>> blocks_;
};

}  // namespace

DenseObjects read_dense(Metadata& file, std::uint64_t heap, std::uint64_t tree, int tree_type, std::size_t limit) {
  const bool links = tree_type == 5;
  const Tree names(file, tree, tree_type, links ? 11 : 17, limit);
  Heap store(file, heap);
  DenseObjects found;
  for (const std::vector<std::byte>& record : names.records()) {
    const std::span<const std::byte> bytes(record);
    // A link's record is a hash and an ID of 7 bytes, an attribute's an ID of 8 bytes, flags, an order and a hash.
    if (!links && (std::to_integer<unsigned>(record[8]) & 2U) != 0)
      file.place.fail("an attribute is shared, which is not allowed");
    found.objects.push_back(store.object(links ? bytes.subspan(4, 7) : bytes.first(8)));
  }
  found.blocks = store.take_blocks();  // moved, so the objects keep their addresses
  return found;
}

}  // namespace fp8::h5
