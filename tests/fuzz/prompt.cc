// A stop text, a newline, and a record of a prompt: what is accepted gives ids of the vocabulary, or of the record,
// whose text is the same in parts as at once, up to the stop text. The tokenizer has an id for every byte.
#include "fp8/generate/prompt.h"

#include <algorithm>

#include "byte_tokenizer.h"
#include "fp8/base/text.h"
#include "fp8/generate/text_stream.h"

namespace {

using namespace fp8;

constexpr std::string_view kTemplate =
    R"({"begin":["{bos}","{system}"],"system":"<|m|>{content}","prompt":["<|m|>{user}"],"answer":["{answer}<|m|>"]})";

void check_text(const generate::Codec& codec, const generate::Ids& ids, const std::string& stop) {
  generate::TextStream stream(codec, {}, {stop});
  std::string joined;
  for (const std::uint32_t id : ids) {
    joined += stream.add(id);
    fuzz::require(valid_utf8(joined), "parts are UTF-8");
  }
  joined += stream.finish();
  fuzz::require(valid_utf8(joined), "parts are UTF-8");
  if (stop.empty()) return;
  fuzz::require(joined.find(stop) == std::string::npos, "nothing follows a stop text");
  fuzz::require(stream.stopped() || codec.decode(ids).find(stop) == std::string::npos || codec.tokenizer() != nullptr,
                "a stop text is found");
}

}  // namespace

FP8_FUZZ(prompt) {
  static const generate::Codec bytes, codec(fuzz::byte_tokenizer());
  static const std::string form = fuzz::folder().write("form.json", kTemplate);
  static const generate::PromptReader of_bytes(&bytes, std::nullopt), of_codec(&codec, chat::read_template(form));
  if (size == 0) return 0;
  const std::string_view input = fuzz::text_of(data + 1, size - 1);
  const std::size_t newline = std::min(input.find('\n'), input.size());
  const std::string stop(input.substr(0, newline));
  const std::string_view record = input.substr(std::min(newline + 1, input.size()));
  return fuzz::judge([&] {
    if ((data[0] & 2U) != 0) (void)generate::parse_ids(record);
    const bool in_bytes = (data[0] & 1U) != 0;
    const generate::Ids ids = (in_bytes ? of_bytes : of_codec).of_record(json::parse(record, "record"));
    check_text(in_bytes ? bytes : codec, ids, valid_utf8(stop) ? stop : "");
  });
}
