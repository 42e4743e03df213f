// The JSON file of DeepSpeed, as Hugging Face's Trainer reads it. Private to the crate.
#pragma once

#include "fp8/foreign/import.h"

namespace fp8::foreign {

// Whether a document is a file of DeepSpeed.
bool is_deepspeed(const Document& document);

// Answers every key. Values that are "auto" are those of the Trainer, which it has checked otherwise. Call it after the
// batch, the optimizer and the precision of the Trainer are known.
void answer_deepspeed(Import& import, const Document& document);

}  // namespace fp8::foreign
