// A template, a newline, and a file of conversations: what is accepted gives documents of tokens of the vocabulary,
// within the cutoff, and packed sequences of the length that was asked for. The tokenizer has an id for every byte.
#include "fp8/data/chat.h"

#include <algorithm>

#include "byte_tokenizer.h"

namespace {

using namespace fp8;

void check(const data::ChatOptions& options, const chat::Row& row) {
  fuzz::require(row.ids.size() == row.mask.size(), "a mask has the length of the ids");
  fuzz::require(std::ranges::all_of(row.ids, [](std::uint32_t id) { return id < 259; }), "ids are of the vocabulary");
  std::size_t length = row.padding;
  for (const std::size_t n : row.lengths) length += n;
  fuzz::require(length == row.ids.size(), "lengths and padding add up");
  if (!options.pack)
    fuzz::require(!options.cutoff || std::cmp_less_equal(length, *options.cutoff), "within the cutoff");
  if (options.pack) fuzz::require(std::cmp_equal(length, *options.pack) && row.padding > 0, "a packed sequence");
}

}  // namespace

FP8_FUZZ(chat) {
  static const token::Tokenizer tokenizer = fuzz::byte_tokenizer();
  if (size == 0) return 0;
  const std::string_view input = fuzz::text_of(data + 1, size - 1);
  const std::size_t newline = std::min(input.find('\n'), input.size());
  data::ChatOptions options;
  options.tokenizer = &tokenizer;
  const std::string form = fuzz::folder().write("form.json", input.substr(0, newline));
  options.inputs = {fuzz::folder().write("x.json", input.substr(std::min(newline + 1, input.size())))};
  options.mask = static_cast<chat::Mask>(data[0] % 3);
  if ((data[0] & 4U) != 0) options.cutoff = 1 + (data[0] >> 4U);
  if ((data[0] & 8U) != 0) options.pack = 2 + 4 * (data[0] >> 4U);
  options.skip_bad = (data[0] & 16U) != 0 ? 1 : 0;
  options.eval_share = (data[0] & 32U) != 0 ? 0.3 : 0;
  options.too_long = (data[0] & 64U) != 0 ? data::TooLong::drop : data::TooLong::cut;
  return fuzz::judge([&] {
    options.form = chat::read_template(form);
    const auto [train, eval] =
        data::read_conversations(options, [&](const chat::Row& row, bool) { check(options, row); });
    fuzz::require(train.documents + eval.documents > 0, "something is left");
  });
}
