// What an evaluation or an inspection consists of, found before memory is allocated. Private to the crate.
#pragma once

#include <string>
#include <vector>

#include "fp8/data/tokens.h"
#include "fp8/train/evaluate.h"
#include "fp8/train/sharded_model.h"
#include "state.h"

namespace fp8::train {

struct EvalSetup {
  ModelSpec model_spec;
  PrecisionConfig precision;       // that of the settings, or of the FP8 codes of the checkpoint
  std::int64_t length = 0;         // tokens of a sequence
  std::vector<std::string> notes;  // for the user; some may be empty
};

// Throws Error if the settings contradict each other, or do not fit the checkpoint or the data.
EvalSetup resolve(const EvalConfig& config, const ckpt::Checkpoint& checkpoint, const data::TokenFile& tokens);

}  // namespace fp8::train
