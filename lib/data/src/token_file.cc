// Reading a token file: HDF5 is asked once where the numbers lie, then the file is mapped.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <variant>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/data/tokens.h"
#include "fp8/h5/reader.h"
#include "fp8/h5/user_block.h"

namespace fp8::data {
namespace {

using dtype::DType;

// A whole file, mapped for reading.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const File& file, std::uint64_t size) : size_(static_cast<std::size_t>(size)) {
    data_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.fd(), 0);
    if (data_ == MAP_FAILED) throw_errno(file.path(), "cannot map", errno);
  }
  ~Mapping() {
    if (data_ != nullptr && data_ != MAP_FAILED) ::munmap(data_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  const std::byte* data() const { return static_cast<const std::byte*>(data_); }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

// Elements may lie at any address in a file.
template <class T>
T load(const std::byte* base, std::int64_t i) {
  T v;
  std::memcpy(&v, base + static_cast<std::size_t>(i) * sizeof(T), sizeof(T));
  return v;
}

template <class T>
std::int64_t widen(const std::byte* base, std::int64_t first, std::span<std::int32_t> out, std::int64_t vocab_size) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint32_t id = load<T>(base, first + static_cast<std::int64_t>(i));
    largest = id > largest ? id : largest;
    out[i] = static_cast<std::int32_t>(id);
  }
  if (largest < vocab_size) return -1;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (static_cast<std::uint32_t>(out[i]) >= vocab_size) return first + static_cast<std::int64_t>(i);
  }
  return -1;
}

std::int64_t integer_attribute(const h5::Attributes& root, const std::string& path, const char* name) {
  const auto found = root.find(name);
  if (found == root.end()) throw Error(path + ": attribute \"" + name + "\" is missing");
  if (!std::holds_alternative<std::int64_t>(found->second)) {
    throw Error(path + ": attribute \"" + name + "\" is not an integer");
  }
  return std::get<std::int64_t>(found->second);
}

}  // namespace

struct TokenFile::State {
  explicit State(const std::string& file, bool verify) : path(file) {
    if (verify) h5::verify_file(path, h5::kTokensMagic);
    const h5::Reader reader(path, h5::kTokensMagic);
    digest = reader.stated_digest();
    read_attributes(reader.group(""));
    read_datasets(reader);
    const File raw = File::open_read(path);
    if (raw.size() != reader.file_bytes()) throw Error(path + ": changed while it was opened");
    map = std::make_unique<Mapping>(raw, reader.file_bytes());
    tokens = map->data() + reader.contiguous_offset("tokens");
    documents = map->data() + reader.contiguous_offset("documents");
    if (info.mask) mask = map->data() + reader.contiguous_offset("mask");
    check_documents();
  }
  void read_attributes(const h5::Attributes& root) {
    if (h5::text_or_empty(root, "format") != "fp8-tokens") throw Error(path + ": not a token file");
    const std::int64_t version = integer_attribute(root, path, "version");
    if (version != 1) throw Error(path + ": version " + std::to_string(version) + " is not known (1 is)");
    info.vocab_size = integer_attribute(root, path, "vocab_size");
    if (info.vocab_size < 1 || info.vocab_size > kMaxVocabSize) {
      throw Error(path + ": vocab_size " + std::to_string(info.vocab_size) + " is out of range");
    }
    const std::int64_t eos = root.contains("eos") ? integer_attribute(root, path, "eos") : -1;
    if (eos >= info.vocab_size) throw Error(path + ": eos is not below vocab_size");
    if (eos >= 0) info.eos = eos;
  }
  void read_datasets(const h5::Reader& reader) {
    const h5::Entry& t = reader.at("tokens");
    const h5::Entry& d = reader.at("documents");
    type = t.dtype;
    if (type != DType::u8 && type != DType::u16 && type != DType::u32) {
      throw Error(path + ": /tokens: must be uint8, uint16 or uint32");
    }
    if (t.shape.size() != 1 || t.shape[0] < 1) throw Error(path + ": /tokens: must be a vector of at least one token");
    if (d.dtype != DType::u64 || d.shape.size() != 1 || d.shape[0] < 2) {
      throw Error(path + ": /documents: must be a uint64 vector of at least two offsets");
    }
    info.tokens = t.shape[0];
    info.documents = d.shape[0] - 1;
    const h5::Entry* m = reader.find("mask");
    info.mask = m != nullptr;
    if (m != nullptr && (m->dtype != DType::u8 || m->shape != t.shape)) {
      throw Error(path + ": /mask: must be uint8, as long as /tokens");
    }
  }
  void check_documents() const {
    std::uint64_t before = load<std::uint64_t>(documents, 0);
    bool increasing = before == 0;
    for (std::int64_t i = 1; i <= info.documents && increasing; ++i) {
      const auto next = load<std::uint64_t>(documents, i);
      increasing = next > before;
      before = next;
    }
    if (!increasing || before != static_cast<std::uint64_t>(info.tokens)) {
      throw Error(path + ": /documents: must increase from 0 to " + std::to_string(info.tokens));
    }
  }

  std::string path;
  std::string digest;
  TokenInfo info;
  DType type = DType::u8;
  std::unique_ptr<const Mapping> map;
  const std::byte* tokens = nullptr;
  const std::byte* documents = nullptr;
  const std::byte* mask = nullptr;
};

TokenFile::TokenFile(const std::string& path, bool verify) : state_(std::make_unique<State>(path, verify)) {
  if (!verify) return;
  std::vector<std::int32_t> piece(std::size_t{1} << 16);
  for (std::int64_t at = 0; at < info().tokens; at += static_cast<std::int64_t>(piece.size())) {
    piece.resize(static_cast<std::size_t>(std::min<std::int64_t>(1 << 16, info().tokens - at)));
    read(at, piece);
  }
}

TokenFile::~TokenFile() = default;
TokenFile::TokenFile(TokenFile&&) noexcept = default;
TokenFile& TokenFile::operator=(TokenFile&&) noexcept = default;

const std::string& TokenFile::path() const { return state_->path; }
const TokenInfo& TokenFile::info() const { return state_->info; }
const std::string& TokenFile::digest() const { return state_->digest; }
std::int64_t TokenFile::document(std::int64_t i) const {
  if (i < 0 || i > info().documents) throw Error(path() + ": no document " + std::to_string(i));
  return static_cast<std::int64_t>(load<std::uint64_t>(state_->documents, i));
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> out) const {
  const State& s = *state_;
  if (first < 0 || first > s.info.tokens || std::cmp_greater(out.size(), s.info.tokens - first)) {
    throw Error(s.path + ": tokens " + std::to_string(first) + " to " + std::to_string(first) + " + " +
                std::to_string(out.size()) + " are not in the file, which has " + std::to_string(s.info.tokens));
  }
  std::int64_t bad = -1;
  if (s.type == DType::u8) bad = widen<std::uint8_t>(s.tokens, first, out, s.info.vocab_size);
  if (s.type == DType::u16) bad = widen<std::uint16_t>(s.tokens, first, out, s.info.vocab_size);
  if (s.type == DType::u32) bad = widen<std::uint32_t>(s.tokens, first, out, s.info.vocab_size);
  if (bad >= 0) {
    const auto id = static_cast<std::uint32_t>(out[static_cast<std::size_t>(bad - first)]);
    throw Error(s.path + ": token " + std::to_string(bad) + " is " + std::to_string(id) +
                ", not below the vocabulary size " + std::to_string(s.info.vocab_size));
  }
}

bool TokenFile::counts(std::int64_t i) const {
  return state_->mask == nullptr || std::to_integer<int>(state_->mask[i]) != 0;
}

}  // namespace fp8::data
