// The input is a text, a newline and a tokenizer.json. An accepted tokenizer encodes the text, whole and in parts, to
// the same ids and decodes them.
#include <vector>

#include "fp8/base/text.h"
#include "fp8/token/tokenizer.h"
#include "fuzz.h"

namespace {

using namespace fp8;

// Encodes the text in two parts, divided at division(), and compares the ids.
void encode_in_parts(const token::Tokenizer& tokenizer, const std::string& text,
                     const std::vector<std::uint32_t>& whole) {
  const std::optional<std::size_t> place = tokenizer.division(text);
  if (!place) return;
  fuzz::require(*place > 0 && *place < text.size(), "a text is divided inside");
  token::Encoder encoder(tokenizer);
  std::vector<std::uint32_t> ids;
  if (!encoder.encode_part(text, *place, {true, false}, true, ids)) return;
  const std::string rest = text.substr(*place);
  encoder.encode_part(rest, rest.size(), {false, true}, true, ids);
  fuzz::require(ids == whole, "parts have the ids of the whole");
}

}  // namespace

FP8_FUZZ(encode) {
  const std::string_view input = fuzz::text_of(data, size);
  const std::size_t newline = input.find('\n');
  if (newline == std::string_view::npos) return 0;
  // Adds a space and a newline at which the text can be divided.
  const std::string text = std::string(input.substr(0, newline)) + " and\nso " + std::string(input.substr(0, newline));
  const std::string path = fuzz::folder().write("tokenizer.json", input.substr(newline + 1));
  return fuzz::judge([&] {
    const token::Tokenizer tokenizer(path);
    token::Encoder encoder(tokenizer);
    std::vector<std::uint32_t> ids;
    encoder.encode(text, true, ids);
    for (const std::uint32_t id : ids) fuzz::require(id < tokenizer.vocab_size(), "ids are of the vocabulary");
    for (const bool skip : {false, true})
      fuzz::require(valid_utf8(tokenizer.decode(ids, skip)), "decoded text is UTF-8");
    encode_in_parts(tokenizer, text, ids);
  });
}
