/// The parts of a tokenizer, used by Tokenizer and Encoder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "added_tokens.h"
#include "bpe.h"
#include "decoder.h"
#include "fp8/json/value.h"
#include "fp8/token/tokenizer.h"
#include "normalizer.h"
#include "post_processor.h"
#include "pre_tokenizer.h"

namespace fp8::token {

/// The contents of a tokenizer.json.
struct Tokenizer::State {
  /// Reads the parts of `file`, whose path is `path`. Throws Error `path: reason`.
  State(const json::Object& file, const std::string& path);

  std::string path;               ///< path of the file
  Normalizer normalizer;          ///< applied to the text between added tokens
  std::vector<Stage> stages;      ///< the pre-tokenizer without a final step `bytes`
  bool bytes;                     ///< whether it ended in `bytes`: pieces are bytes
  Bpe bpe;                        ///< the model
  std::vector<AddedToken> added;  ///< added tokens in the order of the file
  AddedTokens in_text;            ///< added tokens that are matched in the original text
  AddedTokens in_normalized;      ///< added tokens that are matched in the normalized text
  PostProcessor post;             ///< ids around a text
  Decoder decoder;                ///< ids to text
  std::unordered_map<std::string_view, std::size_t> by_content;  ///< indices in `added`
  std::unordered_map<std::uint32_t, std::size_t> by_id;          ///< indices in `added`
  std::int64_t vocab_size = 0;                                   ///< largest id plus one
  bool divides_spaces = false;                                   ///< whether a text may be divided before a space
  bool divides_lines = false;                                    ///< whether a text may be divided after a newline
};

}  // namespace fp8::token
