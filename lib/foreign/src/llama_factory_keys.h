// Keys of LLaMA-Factory that need no code of their own. Private to the crate.
#pragma once

#include <span>

#include "fp8/foreign/keys.h"
#include "mapping.h"

namespace fp8::foreign {

// Answers switches of features that do not exist here, and the keys that depend on them: without counterpart if the
// feature is on.
void answer_llama_factory_features(Mapping& map);

// Rows for all other keys: arguments of LLaMA-Factory, of transformers 5.8 and of older versions.
std::span<const KeyRow> llama_factory_keys();

}  // namespace fp8::foreign
