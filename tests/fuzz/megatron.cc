// The index of a Megatron dataset whose .bin has 64 bytes: what is accepted has documents of ids below the vocabulary.
#include "fp8/data/tokenize.h"
#include "fuzz.h"

FP8_FUZZ(megatron) {
  using namespace fp8;
  fuzz::folder().write("x.idx", fuzz::text_of(data, size));
  fuzz::folder().write("x.bin", std::string(16, '\1') + std::string(48, '\0'));
  return fuzz::judge([&] {
    const data::TokenInfo made = data::tokenize({.inputs = {fuzz::folder().at("x.bin")},
                                                 .output = fuzz::folder().at("tokens.h5"),
                                                 .from = data::Source::megatron,
                                                 .vocab_size = 70000,
                                                 .dry_run = true});
    fuzz::require(made.documents > 0 && made.tokens >= made.documents, "documents have tokens");
  });
}
