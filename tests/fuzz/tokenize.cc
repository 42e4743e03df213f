// Inputs of fp8-tokenize. The first byte selects the format (by --from or by the file name), the vocabulary size,
// --eos, and whether a file is written, which must then be valid.
#include "fp8/data/tokenize.h"

#include <array>

#include "fuzz.h"

FP8_FUZZ(tokenize) {
  using namespace fp8;
  using data::Source;
  constexpr std::array<Source, 8> kFrom = {Source::automatic, Source::automatic, Source::automatic, Source::text,
                                           Source::jsonl,     Source::u16,       Source::u32,       Source::llmc};
  constexpr std::array<const char*, 8> kNames = {"x.bin", "x.jsonl", "x.u16", "x.txt", "x", "x.u16", "x", "x.bin"};
  if (size == 0) return 0;
  const std::size_t source = data[0] & 7U;
  data::TokenizeOptions options;
  options.inputs = {fuzz::folder().write(kNames.at(source), fuzz::text_of(data + 1, size - 1))};
  options.output = fuzz::folder().at("tokens.h5");
  options.from = kFrom.at(source);
  options.force = true;
  options.dry_run = (data[0] & 8U) == 0;  // writing is slow
  if ((data[0] & 16U) != 0) options.vocab_size = (data[0] & 32U) != 0 ? 70000 : 50257;
  if ((data[0] & 64U) != 0) options.eos = 10;
  return fuzz::judge([&] {
    const data::TokenInfo made = data::tokenize(options);
    if (options.dry_run) return;
    const data::TokenFile file(options.output, true);
    fuzz::require(file.info().tokens == made.tokens && file.info().documents == made.documents, "as many as said");
  });
}
