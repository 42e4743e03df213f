// Indexed datasets of Megatron-LM (MMapIndexedDataset): PREFIX.idx lists the lengths and places of sequences in
// PREFIX.bin, and which sequences make a document. Source: Megatron-LM, megatron/core/datasets/indexed_dataset.py.
#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>
#include <vector>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "ids.h"

namespace fp8::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = {"MMIDIDX\0\0", 9};
constexpr std::size_t kHeader = 9 + 8 + 1 + 8 + 8;       // magic, version, type, sequences, documents
constexpr std::size_t kEntries = std::size_t{1} << 14U;  // entries of the index read at a time

// Integers of a type of the .bin, as the index names it.
struct IdType {
  std::uint8_t code;
  std::size_t size;
  bool is_signed;
};
constexpr std::array<IdType, 6> kTypes = {
    {{1, 1, false}, {2, 1, true}, {3, 2, true}, {4, 4, true}, {5, 8, true}, {8, 2, false}}};

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Integers of one kind in the index, read front to back in pieces.
template <class T>
class Column {
 public:
  Column(const File& file, std::uint64_t begin, std::uint64_t count) : file_(file), at_(begin), left_(count) {}
  T next() {
    if (place_ == piece_.size()) {
      piece_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(left_, kEntries)));
      file_.pread_exact(std::as_writable_bytes(std::span(piece_)), at_);
      at_ += piece_.size() * sizeof(T);
      left_ -= piece_.size();
      place_ = 0;
    }
    return piece_[place_++];
  }

 private:
  const File& file_;
  std::uint64_t at_, left_;
  std::vector<T> piece_;
  std::size_t place_ = 0;
};

// The index, its counts checked against the size of the file.
struct Index {
  explicit Index(const std::string& path) : file(File::open_read(path)) {
    std::array<std::byte, kHeader> header{};
    const std::uint64_t size = file.size();
    if (size >= kHeader) file.pread_exact(header, 0);
    if (size < kHeader || std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0) {
      throw Error(path + ": not the index of a Megatron dataset: it does not begin with MMIDIDX");
    }
    const auto version = load<std::uint64_t>(header.data() + 9);
    if (version != 1) throw Error(path + ": version " + std::to_string(version) + " is not known (1 is)");
    const auto code = load<std::uint8_t>(header.data() + 17);
    const auto* const found = std::ranges::find(kTypes, code, &IdType::code);
    if (found == kTypes.end()) {
      throw Error(path + ": its type " + std::to_string(code) + (code == 6 || code == 7 ? " (float)" : "") +
                  " is not one of token ids");
    }
    type = *found;
    sequences = load<std::uint64_t>(header.data() + 18);
    documents = load<std::uint64_t>(header.data() + 26);
    const std::uint64_t needed =
        checked_add(checked_add<std::uint64_t>(kHeader, checked_mul<std::uint64_t>(sequences, 12, path), path),
                    checked_mul<std::uint64_t>(documents, 8, path), path);
    if (needed != size) {
      throw Error(path + ": its header states " + std::to_string(sequences) + " sequences and " +
                  std::to_string(documents) + " bounds of documents, " + std::to_string(needed) +
                  " bytes, but it has " + std::to_string(size) +
                  (size == checked_add(needed, sequences, path) ? " (datasets with modes are not supported)" : ""));
    }
  }
  std::uint64_t lengths_at() const { return kHeader; }
  std::uint64_t pointers_at() const { return kHeader + sequences * 4; }
  std::uint64_t documents_at() const { return kHeader + sequences * 12; }

  File file;
  IdType type = kTypes[0];
  std::uint64_t sequences = 0, documents = 0;
};

// The value of an id; throws if it is negative or too large for an id.
std::uint32_t id_at(const std::byte* from, const IdType& type, const std::string& path, std::uint64_t byte) {
  std::int64_t id = 0;
  if (type.size == 1) id = type.is_signed ? load<std::int8_t>(from) : std::int64_t{load<std::uint8_t>(from)};
  if (type.size == 2) id = type.is_signed ? load<std::int16_t>(from) : std::int64_t{load<std::uint16_t>(from)};
  if (type.size == 4) id = load<std::int32_t>(from);
  if (type.size == 8) id = load<std::int64_t>(from);
  if (id >= 0 && id <= std::numeric_limits<std::int32_t>::max()) return static_cast<std::uint32_t>(id);
  throw Error(path + ": byte " + std::to_string(byte) + " holds " + std::to_string(id) + ", which is not a token id");
}

// Appends the sequence of `length` ids at byte `begin`.
void read_sequence(const File& bin, const IdType& type, std::uint64_t begin, std::uint64_t length, Sink& sink) {
  std::vector<std::byte> raw;
  std::vector<std::uint32_t> ids;
  while (length > 0) {
    const std::uint64_t n = std::min<std::uint64_t>(length, kPiece / type.size);
    raw.resize(static_cast<std::size_t>(n) * type.size);
    bin.pread_exact(raw, begin);
    ids.clear();
    for (std::size_t i = 0; i < n; ++i) {
      ids.push_back(id_at(raw.data() + i * type.size, type, bin.path(), begin + i * type.size));
    }
    sink.append(ids);
    begin += raw.size();
    length -= n;
  }
}

}  // namespace

std::string megatron_prefix(const std::string& path) {
  return path.ends_with(".bin") || path.ends_with(".idx") ? path.substr(0, path.size() - 4) : path;
}

bool is_megatron(const std::string& path) {
  const std::string index = megatron_prefix(path) + ".idx";
  std::error_code ignored;
  if (!fs::is_regular_file(index, ignored)) return false;
  const File file = File::open_read(index);
  std::array<std::byte, kMagic.size()> head{};
  if (file.size() < head.size()) return false;
  file.pread_exact(head, 0);
  return std::memcmp(head.data(), kMagic.data(), head.size()) == 0;
}

void read_megatron(const std::string& path, Sink& sink) {
  const std::string prefix = megatron_prefix(path);
  const Index index(prefix + ".idx");
  const File bin = File::open_read(prefix + ".bin");
  const std::uint64_t size = bin.size();
  Column<std::int32_t> lengths(index.file, index.lengths_at(), index.sequences);
  Column<std::int64_t> pointers(index.file, index.pointers_at(), index.sequences);
  Column<std::int64_t> bounds(index.file, index.documents_at(), index.documents);
  const auto wrong = [&](const std::string& reason) { return Error(index.file.path() + ": " + reason); };
  if (index.documents == 0 || bounds.next() != 0) throw wrong("the bounds of documents do not begin with 0");
  std::uint64_t read = 0;
  for (std::uint64_t d = 1; d < index.documents; ++d) {
    const std::int64_t end = bounds.next();
    if (std::cmp_less(end, read) || std::cmp_greater(end, index.sequences)) {
      throw wrong("bound " + std::to_string(d) + " of documents is " + std::to_string(end) + ", not from " +
                  std::to_string(read) + " to " + std::to_string(index.sequences));
    }
    for (; std::cmp_less(read, end); ++read) {
      const std::int64_t length = lengths.next(), begin = pointers.next();
      if (length < 0 || begin < 0 || std::cmp_greater(begin, size) ||
          static_cast<std::uint64_t>(length) > (size - static_cast<std::uint64_t>(begin)) / index.type.size) {
        throw wrong("sequence " + std::to_string(read) + ", " + std::to_string(length) + " ids at byte " +
                    std::to_string(begin) + ", is not in " + bin.path());
      }
      read_sequence(bin, index.type, static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(length), sink);
    }
    sink.end_document();
  }
  if (read != index.sequences) throw wrong("the documents do not include all sequences");
}

}  // namespace fp8::data
