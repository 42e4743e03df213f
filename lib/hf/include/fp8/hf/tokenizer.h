/// Identifier of a tokenizer.json, by which data and models record the tokenizer of their ids. No encoding here; only
/// the parts that determine ids are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fp8/json/value.h"

namespace fp8::hf {

/// Largest tokenizer.json; the largest published ones have some 30 MB.
inline constexpr std::size_t kMaxTokenizerBytes = std::size_t{1} << 28;

/// Digest and size of a vocabulary.
struct TokenizerIdentity {
  std::string digest;           ///< XXH3-128, 32 hexadecimal digits
  std::int64_t vocab_size = 0;  ///< largest id plus one, added tokens included
  std::string note{};           ///< a sentence about `truncation` and `padding`, which no tool applies; may be empty
};

/// The identity of a parsed tokenizer.json: a digest of its vocabulary (`model.vocab`, by id), its merges
/// (`model.merges`, in order; "a b" equals ["a", "b"]) and its added tokens (by id, with content and whether special).
/// Order of keys, white space and all other members are ignored. Throws Error `what: reason` if one of these is missing
/// or malformed, or the model is not BPE; `merges` and `added_tokens` may be missing. Digested are the 16 bytes
/// "fp8-tokenizer 1\n", then for the vocabulary, the merges and the added tokens their number and each entry: (id,
/// token), (left, right), (id, content, 0 or 1). A number has 8 bytes, little-endian; a text is its length in bytes,
/// then its bytes. Equal ids are ordered by the bytes of their texts.
TokenizerIdentity tokenizer_identity(const json::Value& tokenizer, const std::string& what);

/// Computes tokenizer_identity() from the text of a tokenizer.json; errors begin with `what`. Throws Error for text
/// over kMaxTokenizerBytes.
TokenizerIdentity parse_tokenizer_identity(std::string_view text, const std::string& what);

/// The id of the token `content` in a tokenizer.json that tokenizer_identity() accepts: an added token, else an entry
/// of the vocabulary; nothing if it has neither.
std::optional<std::int64_t> token_id(const json::Value& tokenizer, std::string_view content);

}  // namespace fp8::hf
