// Reading a token file by plain reads, never mapped: a file truncated during use is an error and not a signal, and
// pages read earlier do not count as memory of the process.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>
#include <variant>
#include <vector>

#include "blocks.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/file_kind.h"
#include "fp8/base/text.h"
#include "fp8/data/tokens.h"
#include "fp8/h5/reader.h"
#include "fp8/h5/user_block.h"

namespace fp8::data {
namespace {

using dtype::DType;

constexpr std::int64_t kReadElements = std::int64_t{1} << 16;  // elements read at a time

// Converts elements of type T at `raw` to int32, from the first on; `raw` may be the end of the memory of `out`, since
// writing never overtakes reading. Returns the index of an element that is not below `vocab_size`; -1 if none.
template <class T>
std::int64_t upcast(const std::byte* raw, std::span<std::int32_t> out, std::int64_t vocab_size) {
  std::int64_t bad = -1;
  for (std::size_t i = 0; i < out.size(); ++i) {
    T id;
    std::memcpy(&id, raw + i * sizeof(T), sizeof(T));
    if (id >= vocab_size && bad < 0) bad = static_cast<std::int64_t>(i);
    out[i] = static_cast<std::int32_t>(id);
  }
  return bad;
}

std::int64_t integer_attribute(const h5::Attributes& root, const std::string& path, const char* name) {
  const auto found = root.find(name);
  if (found == root.end()) throw Error(path + ": attribute \"" + name + "\" is missing");
  if (!std::holds_alternative<std::int64_t>(found->second)) {
    throw Error(path + ": attribute \"" + name + "\" is not an integer");
  }
  return std::get<std::int64_t>(found->second);
}

// Throws Error with the command that makes a token file of `path` if it is a file of text.
void refuse_source(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;
  const File file = File::open_read(path);
  std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), 4096)), '\0');
  file.pread_exact(std::as_writable_bytes(std::span(head)), 0);
  const FileKind kind = kind_of_file(head);
  if (kind == FileKind::checkpoint) throw Error(path + ": a checkpoint, not a token file");
  const bool cut = head.size() == 4096 && valid_utf8_length(head) + 3 >= head.size();  // in the middle of a character
  const bool text = kind == FileKind::unknown && head.find('\0') == std::string::npos && (valid_utf8(head) || cut);
  if (head.empty() || !text) return;
  const char first = head[std::min(head.find_first_not_of(" \t\r\n"), head.size() - 1)];
  const std::string from = is_plain_word(path) ? path : "FILE";
  const std::string to = std::filesystem::path(from).replace_extension(".h5").string();
  throw Error(path + ": " + (first == '{' || first == '[' ? "JSON" : "text") +
              ", not a token file; make one: fp8-tokenize " + from + " -o " + to +
              " (with --tokenizer and, for conversations, --template)");
}

}  // namespace

struct TokenFile::State {
  State(const std::string& file, bool verify) : reader(opened(file, verify)) {
    read_attributes(reader.group(""));
    read_datasets();
    check_documents();
    tokens.emplace(reader, "tokens", "digests");
    if (info.mask) mask.emplace(reader, "mask", "mask_digests");
  }
  static h5::Reader opened(const std::string& file, bool verify) try {
    if (verify) h5::verify_file(h5::Reader(file, h5::kTokensMagic));
    return h5::Reader(file, h5::kTokensMagic);
  } catch (const Error&) {
    refuse_source(file);
    throw;
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
    if (root.contains("sequence_length")) info.sequence_length = integer_attribute(root, path, "sequence_length");
    if (root.contains("template") || root.contains("template_digest")) {
      info.chat_template = {h5::text_or_empty(root, "template"), h5::text_or_empty(root, "template_digest")};
      if (!chat::is_stored(*info.chat_template))
        throw Error(path + ": attributes \"template\" and \"template_digest\" are not those of a chat template");
    }
    if (!root.contains("tokenizer")) return;
    info.tokenizer = h5::text_or_empty(root, "tokenizer");
    if (!is_tokenizer_id(*info.tokenizer))
      throw Error(path + ": attribute \"tokenizer\" is neither bytes nor a digest");
  }
  void read_datasets() {
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
    if (info.sequence_length && (*info.sequence_length < 2 || info.tokens % *info.sequence_length != 0)) {
      throw Error(path + ": sequence_length " + std::to_string(*info.sequence_length) + " does not divide " +
                  std::to_string(info.tokens) + " tokens");
    }
    if (m != nullptr && (m->dtype != DType::u8 || m->shape != t.shape)) {
      throw Error(path + ": /mask: must be uint8, as long as /tokens");
    }
  }
  void check_documents() const {
    reader.verify("documents");
    std::vector<std::uint64_t> offsets;
    std::uint64_t before = 0;
    bool increasing = true;
    for (std::int64_t i = 0; i <= info.documents && increasing; i += kReadElements) {
      offsets.resize(static_cast<std::size_t>(std::min(kReadElements, info.documents + 1 - i)));
      read_documents(i, offsets);
      for (std::size_t j = 0; j < offsets.size(); ++j) {
        increasing = increasing && (i == 0 && j == 0 ? offsets[j] == 0 : offsets[j] > before);
        before = offsets[j];
      }
    }
    if (!increasing || before != static_cast<std::uint64_t>(info.tokens)) {
      throw Error(path + ": /documents: must increase from 0 to " + std::to_string(info.tokens));
    }
  }
  void read_documents(std::int64_t first, std::span<std::uint64_t> out) const {
    reader.read_rows("documents", first, first + static_cast<std::int64_t>(out.size()), std::as_writable_bytes(out));
  }
  // Throws unless the file has `count` elements from `first` on.
  void check_range(std::int64_t first, std::size_t count) const {
    if (first >= 0 && first <= info.tokens && std::cmp_less_equal(count, info.tokens - first)) return;
    throw Error(path + ": tokens " + std::to_string(first) + " to " + std::to_string(first) + " + " +
                std::to_string(count) + " are not in the file, which has " + std::to_string(info.tokens));
  }

  h5::Reader reader;
  const std::string& path = reader.path();
  TokenInfo info;
  DType type = DType::u8;
  std::optional<CheckedVector> tokens, mask;
};

bool is_tokenizer_id(std::string_view id) { return id == "bytes" || Digest::from_hex(id).has_value(); }

TokenFile::TokenFile(const std::string& path, bool verify) : state_(std::make_unique<State>(path, verify)) {
  if (!verify) return;
  std::vector<std::int32_t> piece;
  for (std::int64_t at = 0; at < info().tokens; at += kReadElements) {
    piece.resize(static_cast<std::size_t>(std::min(kReadElements, info().tokens - at)));
    read(at, piece);
  }
}

TokenFile::~TokenFile() = default;
TokenFile::TokenFile(TokenFile&&) noexcept = default;
TokenFile& TokenFile::operator=(TokenFile&&) noexcept = default;

const std::string& TokenFile::path() const { return state_->path; }
const TokenInfo& TokenFile::info() const { return state_->info; }
const std::string& TokenFile::digest() const { return state_->reader.stated_digest(); }
std::vector<std::int64_t> TokenFile::documents() const {
  std::vector<std::int64_t> offsets;
  std::vector<std::uint64_t> piece;
  for (std::int64_t i = 0; i <= info().documents; i += kReadElements) {
    piece.resize(static_cast<std::size_t>(std::min(kReadElements, info().documents + 1 - i)));
    state_->read_documents(i, piece);
    offsets.insert(offsets.end(), piece.begin(), piece.end());
  }
  return offsets;
}

void TokenFile::read(std::int64_t first, std::span<std::int32_t> out) const {
  const State& s = *state_;
  s.check_range(first, out.size());
  // The stored elements, which may be narrower than int32, are read into the end of `out`.
  const std::size_t width = dtype::size_of(s.type);
  const auto raw = std::as_writable_bytes(out).last(out.size() * width);
  s.tokens->read(static_cast<std::uint64_t>(first) * width, raw);
  std::int64_t bad = -1;
  if (s.type == DType::u8) bad = upcast<std::uint8_t>(raw.data(), out, s.info.vocab_size);
  if (s.type == DType::u16) bad = upcast<std::uint16_t>(raw.data(), out, s.info.vocab_size);
  if (s.type == DType::u32) bad = upcast<std::uint32_t>(raw.data(), out, s.info.vocab_size);
  if (bad < 0) return;
  const auto id = static_cast<std::uint32_t>(out[static_cast<std::size_t>(bad)]);
  throw Error(s.path + ": token " + std::to_string(first + bad) + " is " + std::to_string(id) +
              ", not below the vocabulary size " + std::to_string(s.info.vocab_size));
}

void TokenFile::read_mask(std::int64_t first, std::span<std::uint8_t> out) const {
  state_->check_range(first, out.size());
  if (state_->mask) return state_->mask->read(static_cast<std::uint64_t>(first), std::as_writable_bytes(out));
  std::fill(out.begin(), out.end(), std::uint8_t{1});
}

}  // namespace fp8::data
