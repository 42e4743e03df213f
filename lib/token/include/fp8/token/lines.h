/// Encoding and decoding for scripts: JSON Lines in, JSON Lines out, a record for a record.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/token/tokenizer.h"

namespace fp8::token {

/// Reads records {"text": ...} from `inputs` (`-` is standard input), and passes a line {"ids":[...]} with a newline
/// for each to `write`, in their order, several at once where they are short. Runs on all processors; memory is bounded
/// by about 1 MiB of records per processor and the longest record. `special` as in Encoder::encode. Throws Error
/// `input: line N: reason`; the records before that line may not all have been written.
void encode_lines(const Tokenizer& tokenizer, const std::vector<std::string>& inputs, bool special,
                  const std::function<void(std::string_view)>& write);

/// The reverse: {"ids": [...]} in, {"text":"..."} out. `skip_special` as in Tokenizer::decode. Throws Error
/// `input: line N: reason`.
void decode_lines(const Tokenizer& tokenizer, const std::vector<std::string>& inputs, bool skip_special,
                  const std::function<void(std::string_view)>& write);

}  // namespace fp8::token
