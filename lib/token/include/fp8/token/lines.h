/// Encoding and decoding of JSON Lines: one output record per input record.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/token/tokenizer.h"

namespace fp8::token {

/// Reads records {"text": ...} from `inputs` (`-` is standard input) in order and passes a line {"ids":[...]} per
/// record to `write`, several short lines at a time. `special` as in Encoder::encode. Throws Error `input: line N:
/// reason`.
void encode_lines(const Tokenizer& tokenizer, const std::vector<std::string>& inputs, bool special,
                  const std::function<void(std::string_view)>& write);

/// Reads records {"ids": [...]} and passes lines {"text":"..."} to `write`. `skip_special` as in Tokenizer::decode.
/// Throws Error `input: line N: reason`.
void decode_lines(const Tokenizer& tokenizer, const std::vector<std::string>& inputs, bool skip_special,
                  const std::function<void(std::string_view)>& write);

}  // namespace fp8::token
