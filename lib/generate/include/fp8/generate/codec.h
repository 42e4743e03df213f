/// Between text and token ids: a tokenizer.json, or bytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/chat/template.h"
#include "fp8/ckpt/checkpoint.h"
#include "fp8/token/tokenizer.h"

namespace fp8::generate {

/// A tokenizer of a model.
class Codec {
 public:
  /// Bytes: an id is a byte, ids above 255 have no text.
  Codec() = default;
  /// A tokenizer, with the special tokens of its folder.
  explicit Codec(token::Tokenizer tokenizer);
  /// A tokenizer with these special tokens.
  Codec(token::Tokenizer tokenizer, chat::SpecialTokens special);
  /// The tokenizer of a checkpoint: its tokenizer.json, or bytes if its data was made with bytes; nothing if it has
  /// neither. `texts` are the files beside it, by name, which name the special tokens. Throws Error if it cannot be
  /// read.
  static std::optional<Codec> of(const ckpt::Checkpoint& checkpoint, const std::map<std::string, std::string>& texts);

  /// The tokenizer; null for bytes.
  const token::Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  /// Special tokens that tokenizer_config.json names.
  const chat::SpecialTokens& special() const { return special_; }
  /// Ids of a text, with those that the tokenizer adds around it.
  std::vector<std::uint32_t> encode(std::string_view text) const;
  /// Text of ids without special tokens; valid UTF-8, with U+FFFD for what is not.
  std::string decode(std::span<const std::uint32_t> ids) const;

 private:
  std::optional<token::Tokenizer> tokenizer_;
  chat::SpecialTokens special_;
};

}  // namespace fp8::generate
