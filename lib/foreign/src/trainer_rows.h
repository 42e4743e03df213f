/// Keys of the Trainer of transformers, which LLaMA-Factory and Axolotl pass on to it. Private to this crate.
#pragma once

#include <span>

#include "fp8/foreign/keys.h"

namespace fp8::foreign {

/// Why a key that adds tokens, or rows of the embedding, has no counterpart.
inline constexpr const char* kVocabulary =
    "the tokenizer and the embedding stay as they are, so new tokens are encoded as several others and have no rows; "
    "add them with transformers and name that folder with --model";

/// Rows for keys that have no effect on results, whichever of these trainers has them.
std::span<const KeyRow> trainer_rows();

}  // namespace fp8::foreign
