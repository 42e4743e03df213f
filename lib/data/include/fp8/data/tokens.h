/// Token files, fp8-tokens(5): a writer that streams and a reader that maps. One HDF5 file of contiguous datasets
/// /tokens, /documents and optionally /mask, behind a digest in the user block. Not a tokenizer (tokenize.h) and no
/// batches (sampler.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "fp8/dtype/dtype.h"

namespace fp8::data {

/// Largest vocabulary: ids fit an int32.
inline constexpr std::int64_t kMaxVocabSize = (std::int64_t{1} << 31) - 1;

/// The narrowest of u8, u16, u32 that holds ids below `vocab_size`. Throws Error unless it is from 1 to kMaxVocabSize.
dtype::DType token_type(std::int64_t vocab_size);

/// What a token file says of itself.
struct TokenInfo {
  std::int64_t tokens = 0;          ///< number of tokens, at least 1
  std::int64_t documents = 0;       ///< number of documents, at least 1
  std::int64_t vocab_size = 0;      ///< every id is below it
  std::optional<std::int64_t> eos;  ///< id that ends a document, if there is one
  bool mask = false;                ///< whether /mask is there
};

/// A token file under a temporary name until finish() commits it. Memory use does not grow with the tokens: they wait
/// in nameless files beside the target, because HDF5 wants to know how many there are.
class TokenWriter {
 public:
  /// Begins a file for `path`. Throws Error when it exists and not `force`, or cannot be made. `with_mask`: append
  /// takes a mask.
  TokenWriter(const std::string& path, std::int64_t vocab_size, std::optional<std::int64_t> eos, bool with_mask,
              bool force);
  ~TokenWriter();
  TokenWriter(TokenWriter&&) noexcept;
  TokenWriter& operator=(TokenWriter&&) noexcept;

  /// Appends tokens of the current document, each below vocab_size; `mask` is as long, or empty without one. Throws
  /// Error that names the position of an id that is too large.
  void append(std::span<const std::uint32_t> tokens, std::span<const std::uint8_t> mask = {});
  /// Ends the current document; one without tokens is not counted.
  void end_document();
  /// Tokens so far.
  std::int64_t tokens() const;
  /// Ends the last document, writes the file, verifies and commits it. Throws Error when there are no tokens. The
  /// writer is spent.
  TokenInfo finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A token file, checked and open for reading. Reading is const and safe from several threads.
class TokenFile {
 public:
  /// Opens and checks format, shapes and that documents increase; with `verify` also the digest of the whole file and
  /// every id. Without it ids are checked as they are read, so that opening stays quick. Throws Error `path: reason`.
  explicit TokenFile(const std::string& path, bool verify = false);
  ~TokenFile();
  TokenFile(TokenFile&&) noexcept;
  TokenFile& operator=(TokenFile&&) noexcept;

  /// Path it was opened by.
  const std::string& path() const;
  /// What it says of itself.
  const TokenInfo& info() const;
  /// The digest in the user block: the same tokens made again have the same digest.
  const std::string& digest() const;
  /// First token of document `i`, 0 <= i <= documents; the last is the number of tokens.
  std::int64_t document(std::int64_t i) const;
  /// Tokens [first, first + out.size()) as int32. Throws Error past the end, and naming the position of an id that is
  /// not below vocab_size.
  void read(std::int64_t first, std::span<std::int32_t> out) const;
  /// Whether tokens [first, first + out.size()) are targets that count: 0 or not; 1 where there is no mask. Throws
  /// Error past the end.
  void read_mask(std::int64_t first, std::span<std::uint8_t> out) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fp8::data
