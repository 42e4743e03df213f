// Tokenizers of checkpoints.
#include "fp8/generate/codec.h"

#include <utility>

#include "fp8/base/error.h"
#include "fp8/token/utf8.h"

namespace fp8::generate {
Codec::Codec(token::Tokenizer tokenizer)
    : tokenizer_(std::move(tokenizer)), special_(chat::read_special_tokens(*tokenizer_)) {}

Codec::Codec(token::Tokenizer tokenizer, chat::SpecialTokens special)
    : tokenizer_(std::move(tokenizer)), special_(std::move(special)) {}

std::optional<Codec> Codec::of(const ckpt::Checkpoint& checkpoint, const std::map<std::string, std::string>& texts) {
  const std::optional<std::string> text = checkpoint.tokenizer();
  if (!text) return checkpoint.tokenizer_id() == "bytes" ? std::optional(Codec()) : std::nullopt;
  Codec codec;
  codec.tokenizer_.emplace(token::Tokenizer::parse(*text, checkpoint.path() + ": /tokenizer"));
  codec.special_ = chat::special_tokens_of(texts, checkpoint.path() + ": /huggingface/");
  return codec;
}

std::vector<std::uint32_t> Codec::encode(std::string_view text) const {
  std::vector<std::uint32_t> ids;
  if (tokenizer_) {
    token::Encoder(*tokenizer_).encode(text, true, ids);
  } else {
    for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  }
  return ids;
}

std::string Codec::decode(std::span<const std::uint32_t> ids) const {
  if (tokenizer_) return tokenizer_->decode(ids, true);
  std::string bytes;
  for (const std::uint32_t id : ids)
    if (id < 256) bytes += static_cast<char>(id);
  return token::replace_invalid(bytes);
}

}  // namespace fp8::generate
