// The YAML file of `accelerate launch`. Private to the crate.
#pragma once

#include <optional>
#include <string>

#include "fp8/foreign/import.h"

namespace fp8::foreign {

// The FP8 settings of the file.
struct AccelerateFp8 {
  std::string backend;                  // "te", "torchao", "msamp"; empty: not stated
  std::optional<std::int64_t> history;  // length of the history of amaxes
  std::optional<std::string> algorithm, format;
  std::optional<std::int64_t> margin;
};

// Whether a document is a file of Accelerate.
bool is_accelerate(const Document& document);

// Its FP8 settings; nothing without `mixed_precision: fp8` and fp8_config.
std::optional<AccelerateFp8> accelerate_fp8(Import& import, const Document& document);

// Answers every key: ranks, shards, precision. `trainer_fp8`: the trainer trains in FP8.
void answer_accelerate(Import& import, const Document& document, bool trainer_fp8);

}  // namespace fp8::foreign
