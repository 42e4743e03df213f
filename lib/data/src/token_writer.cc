// Tokens, document offsets and mask are collected in unnamed files; finish() copies them into the HDF5 file.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "blocks.h"
#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/data/tokens.h"
#include "fp8/h5/user_block.h"
#include "fp8/h5/writer.h"

namespace fp8::data {
namespace {

using dtype::DType;
constexpr std::size_t kSpoolPiece = std::size_t{1} << 20;

// Bytes collected on disk until they are complete. The file has no name, so the system deletes it in any case.
class Spool {
 public:
  // In the folder of `target`, which errors name.
  explicit Spool(const std::string& target) : file_(File::unnamed(parent_directory(target), target)) {}

  void append(std::span<const std::byte> bytes) {
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    digests_.update(bytes);
    size_ += bytes.size();
    if (buffer_.size() >= kSpoolPiece) flush();
  }
  void copy_to(h5::Writer& out) {
    flush();
    std::vector<std::byte> piece(kSpoolPiece);
    for (std::uint64_t at = 0; at < size_; at += piece.size()) {
      piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kSpoolPiece, size_ - at)));
      file_.pread_exact(piece, at);
      out.write(piece);
    }
  }
  // Digests of the blocks of all bytes; no bytes may follow.
  std::vector<std::byte> digests() { return digests_.finish(); }

 private:
  void flush() {
    file_.write_all(buffer_);
    buffer_.clear();
  }

  File file_;
  std::vector<std::byte> buffer_;
  std::uint64_t size_ = 0;
  BlockDigester digests_;
};

template <class T>
void append_as(std::span<const std::uint32_t> tokens, Spool& spool) {
  std::array<T, 4096> narrow;
  while (!tokens.empty()) {
    const std::size_t n = std::min(tokens.size(), narrow.size());
    std::transform(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n), narrow.begin(),
                   [](std::uint32_t id) { return static_cast<T>(id); });
    spool.append(std::as_bytes(std::span(narrow).first(n)));
    tokens = tokens.subspan(n);
  }
}

}  // namespace

DType token_type(std::int64_t vocab_size) {
  if (vocab_size < 1 || vocab_size > kMaxVocabSize) {
    throw Error("vocabulary size " + std::to_string(vocab_size) + " is not from 1 to " + std::to_string(kMaxVocabSize));
  }
  return vocab_size <= 256 ? DType::u8 : vocab_size <= 65536 ? DType::u16 : DType::u32;
}

struct TokenWriter::State {
  State(const std::string& path, std::int64_t vocab_size, bool with_mask, bool force)
      : target(path),
        type(token_type(vocab_size)),
        file(path, force),
        tokens(path),
        documents(path),
        mask(with_mask ? std::optional<Spool>(std::in_place, path) : std::nullopt) {
    add_document();
  }
  void add_document() {
    const auto offset = static_cast<std::uint64_t>(info.tokens);
    documents.append(std::as_bytes(std::span(&offset, 1)));
    document_begin = info.tokens;
  }
  // Errors about the temporary file name the target, which the user gave.
  void write() try {
    h5::Writer out(file.path(), h5::kTokensMagic);
    out.attribute("", "format", std::string("fp8-tokens"));
    out.attribute("", "version", std::int64_t{1});
    out.attribute("", "vocab_size", info.vocab_size);
    out.attribute("", "eos", info.eos.value_or(-1));
    if (info.tokenizer) out.attribute("", "tokenizer", *info.tokenizer);
    if (info.sequence_length) out.attribute("", "sequence_length", *info.sequence_length);
    if (info.chat_template) {
      out.attribute("", "template", info.chat_template->text);
      out.attribute("", "template_digest", info.chat_template->digest);
    }
    const auto put = [&](const char* name, DType dtype, std::int64_t count, Spool& spool) {
      out.begin_dataset(name, dtype, {&count, 1});
      spool.copy_to(out);
      out.end_dataset();
    };
    const auto put_digests = [&](const char* name, Spool& spool) {
      const std::vector<std::byte> digests = spool.digests();
      const std::array<std::int64_t, 2> shape{static_cast<std::int64_t>(digests.size() / kDigestBytes), kDigestBytes};
      out.dataset(name, DType::u8, shape, digests);
    };
    put("tokens", type, info.tokens, tokens);
    put_digests("digests", tokens);
    put("documents", DType::u64, info.documents + 1, documents);
    if (mask) put("mask", DType::u8, info.tokens, *mask);
    if (mask) put_digests("mask_digests", *mask);
    out.finish();
  } catch (const Error& e) {
    const std::string message = e.what();
    if (!message.starts_with(file.path())) throw;
    throw Error(target + message.substr(file.path().size()), e.code());
  }

  std::string target;
  DType type;
  AtomicFile file;
  Spool tokens;
  Spool documents;
  std::optional<Spool> mask;
  TokenInfo info;
  std::int64_t document_begin = 0;
};

TokenWriter::TokenWriter(const std::string& path, std::int64_t vocab_size, std::optional<std::int64_t> eos,
                         bool with_mask, bool force, std::optional<std::string> tokenizer)
    : TokenWriter(path,
                  TokenInfo{.vocab_size = vocab_size, .eos = eos, .mask = with_mask, .tokenizer = std::move(tokenizer)},
                  force) {}

TokenWriter::TokenWriter(const std::string& path, const TokenInfo& info, bool force) {
  token_type(info.vocab_size);
  if (info.tokenizer && !is_tokenizer_id(*info.tokenizer)) {
    throw Error("tokenizer: \"" + *info.tokenizer + "\" is not a digest");
  }
  static_assert(chat::kMostStoredBytes <= h5::kMaxAttributeBytes);
  if (info.chat_template && !chat::is_stored(*info.chat_template)) throw Error("not the form of a stored template");
  if (info.eos && (*info.eos < 0 || *info.eos >= info.vocab_size)) {
    throw Error("end-of-document id " + std::to_string(*info.eos) + " is not below the vocabulary size " +
                std::to_string(info.vocab_size));
  }
  state_ = std::make_unique<State>(path, info.vocab_size, info.mask, force);
  state_->info = info;
  state_->info.tokens = state_->info.documents = 0;
}

TokenWriter::~TokenWriter() = default;
TokenWriter::TokenWriter(TokenWriter&&) noexcept = default;
TokenWriter& TokenWriter::operator=(TokenWriter&&) noexcept = default;

void TokenWriter::append(std::span<const std::uint32_t> tokens, std::span<const std::uint8_t> mask) {
  State& s = *state_;
  const auto beyond =
      std::find_if(tokens.begin(), tokens.end(), [&](std::uint32_t id) { return id >= s.info.vocab_size; });
  if (beyond != tokens.end()) {
    throw Error(s.target + ": token " + std::to_string(s.info.tokens + (beyond - tokens.begin())) + " is " +
                std::to_string(*beyond) + ", not below the vocabulary size " + std::to_string(s.info.vocab_size));
  }
  if (mask.size() != (s.mask ? tokens.size() : 0)) throw Error(s.target + ": mask and tokens differ in length");
  if (s.type == DType::u8) append_as<std::uint8_t>(tokens, s.tokens);
  if (s.type == DType::u16) append_as<std::uint16_t>(tokens, s.tokens);
  if (s.type == DType::u32) append_as<std::uint32_t>(tokens, s.tokens);
  if (s.mask) s.mask->append(std::as_bytes(mask));
  s.info.tokens = checked_add(s.info.tokens, static_cast<std::int64_t>(tokens.size()), s.target);
}

void TokenWriter::end_document() {
  State& s = *state_;
  if (s.info.tokens == s.document_begin) return;
  ++s.info.documents;
  s.add_document();
}

std::int64_t TokenWriter::tokens() const { return state_->info.tokens; }

TokenInfo TokenWriter::finish() {
  end_document();
  State& s = *state_;
  if (s.info.tokens == 0) throw Error(s.target + ": no tokens to write");
  if (s.info.sequence_length && s.info.tokens % *s.info.sequence_length != 0) {
    throw Error(s.target + ": the last packed sequence is not complete");
  }
  s.write();
  s.file.commit();
  TokenInfo info = s.info;
  state_.reset();
  return info;
}

}  // namespace fp8::data
