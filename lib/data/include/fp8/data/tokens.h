/// Token files, fp8-tokens(5): a streaming writer and a random-access reader. One HDF5 file of contiguous datasets
/// /tokens, /documents and optionally /mask, with digests of blocks, and a digest in the user block. Tokenizing is in
/// tokenize.h, batches in sampler.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/chat/stored.h"
#include "fp8/dtype/dtype.h"

namespace fp8::data {

/// Largest vocabulary: ids fit an int32.
inline constexpr std::int64_t kMaxVocabSize = (std::int64_t{1} << 31) - 1;

/// The narrowest of u8, u16, u32 for ids below `vocab_size`. Throws Error unless vocab_size is from 1 to kMaxVocabSize.
dtype::DType token_type(std::int64_t vocab_size);

/// Attributes of a token file.
struct TokenInfo {
  std::int64_t tokens = 0;               ///< number of tokens, at least 1
  std::int64_t documents = 0;            ///< number of documents, at least 1
  std::int64_t vocab_size = 0;           ///< upper bound (exclusive) of the ids
  std::optional<std::int64_t> eos = {};  ///< id that ends a document, if any
  bool mask = false;                     ///< whether the file has /mask
  /// Length of packed sequences: the tokens are rows of this length, each of whole documents and padding. Nothing if
  /// the tokens are one stream.
  std::optional<std::int64_t> sequence_length = {};
  /// Tokenizer of the ids: "bytes", or the digest of a tokenizer (hf/tokenizer.h); nothing if unknown.
  std::optional<std::string> tokenizer = {};
  /// Chat template with which the documents were rendered; nothing if they are no conversations, or it is not known.
  std::optional<chat::StoredTemplate> chat_template = {};
};

/// Whether `id` is valid for TokenInfo::tokenizer: "bytes", or 32 hexadecimal digits.
bool is_tokenizer_id(std::string_view id);

/// A token file under a temporary name until finish() commits it. Tokens are first written to unnamed files in the
/// target's folder, because HDF5 needs their number in advance; memory use is 16 bytes per 64 KiB of them.
class TokenWriter {
 public:
  /// Starts a file for `path`. Throws Error when it exists and not `force`, or cannot be created. `with_mask`: append()
  /// takes a mask. `tokenizer` is TokenInfo::tokenizer.
  TokenWriter(const std::string& path, std::int64_t vocab_size, std::optional<std::int64_t> eos, bool with_mask,
              bool force, std::optional<std::string> tokenizer = {});
  /// Creates a file with the attributes of `info`, whose counts are ignored. Throws Error in finish() unless the number
  /// of tokens is a multiple of TokenInfo::sequence_length.
  TokenWriter(const std::string& path, const TokenInfo& info, bool force);
  ~TokenWriter();
  TokenWriter(TokenWriter&&) noexcept;
  TokenWriter& operator=(TokenWriter&&) noexcept;

  /// Appends tokens of the current document, each below vocab_size; `mask` has the same length, or is empty without a
  /// mask. Throws Error with the position of an id that is too large.
  void append(std::span<const std::uint32_t> tokens, std::span<const std::uint8_t> mask = {});
  /// Ends the current document; a document without tokens is not counted.
  void end_document();
  /// Tokens so far.
  std::int64_t tokens() const;
  /// Ends the last document, writes the file, verifies and commits it. Throws Error when there are no tokens. No call
  /// may follow.
  TokenInfo finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A token file, checked and open for reading. Reading is const and thread-safe.
class TokenFile {
 public:
  /// Opens and checks format, shapes, the digest of the documents and that they increase; with `verify` also the digest
  /// of the whole file and every id. Without `verify`, ids are checked when they are read, and blocks of tokens and
  /// mask are compared with their digests whenever they are read, so that opening is fast; a file without
  /// block digests is digested completely. Throws Error `path: reason`.
  explicit TokenFile(const std::string& path, bool verify = false);
  ~TokenFile();
  TokenFile(TokenFile&&) noexcept;
  TokenFile& operator=(TokenFile&&) noexcept;

  /// Path as given.
  const std::string& path() const;
  /// Attributes of the file.
  const TokenInfo& info() const;
  /// The digest in the user block; equal tokens give an equal digest.
  const std::string& digest() const;
  /// First token of each document, then the number of tokens.
  std::vector<std::int64_t> documents() const;
  /// Tokens [first, first + out.size()) as int32. Throws Error if the range is past the end, with the number of a
  /// damaged block, or with the position of an id that is not below vocab_size.
  void read(std::int64_t first, std::span<std::int32_t> out) const;
  /// Whether tokens [first, first + out.size()) count as targets: nonzero if so; all 1 without a mask. Throws Error if
  /// the range is past the end, or with the number of a damaged block.
  void read_mask(std::int64_t first, std::span<std::uint8_t> out) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fp8::data
