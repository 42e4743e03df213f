/// The parts of a tokenizer, as Tokenizer and Encoder share them.
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

/// What a tokenizer.json holds.
struct Tokenizer::State {
  /// Reads the parts of `file`, whose path is `path`. Throws Error `path: reason`.
  State(const json::Object& file, const std::string& path);

  std::string path;                                              ///< of the file
  Normalizer normalizer;                                         ///< before all else but added tokens
  std::vector<Stage> stages;                                     ///< the pre-tokenizer, less a last step `bytes`
  bool bytes;                                                    ///< whether there was one: pieces are bytes
  Bpe bpe;                                                       ///< the model
  std::vector<AddedToken> added;                                 ///< in the order of the file
  AddedTokens in_text;                                           ///< found in the text as it is
  AddedTokens in_normalized;                                     ///< found in the normalized text
  PostProcessor post;                                            ///< ids around a text
  Decoder decoder;                                               ///< ids to text
  std::unordered_map<std::string_view, std::size_t> by_content;  ///< places in `added`
  std::unordered_map<std::uint32_t, std::size_t> by_id;          ///< places in `added`
  std::int64_t vocab_size = 0;                                   ///< largest id plus one
  bool divides_spaces = false;                                   ///< whether a text may be divided before a space
  bool divides_lines = false;                                    ///< whether a text may be divided behind a newline
};

}  // namespace fp8::token
