/// The tokenizer of the fuzz targets of conversations and prompts.
#pragma once

#include "fp8/json/json.h"
#include "fp8/token/tokenizer.h"
#include "fuzz.h"

namespace fp8::fuzz {

/// A tokenizer with an id for every byte, two special tokens and the marker <|m|>, in the folder of the target.
static token::Tokenizer byte_tokenizer() {
  json::Object vocab;
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    const std::string name = {
        '<', '0', 'x', kDigits[static_cast<std::size_t>(byte / 16)], kDigits[static_cast<std::size_t>(byte % 16)], '>'};
    vocab.set(name, byte);
  }
  json::Array added;
  for (const char* content : {"<s>", "</s>", "<|m|>"}) {
    added.push_back(json::object({{"id", 256 + static_cast<int>(added.size())},
                                  {"content", content},
                                  {"single_word", false},
                                  {"lstrip", false},
                                  {"rstrip", false},
                                  {"normalized", false},
                                  {"special", true}}));
  }
  const json::Value model =
      json::object({{"type", "BPE"}, {"vocab", vocab}, {"merges", json::Array()}, {"byte_fallback", true}});
  folder().write("tokenizer_config.json", R"({"bos_token":"<s>","eos_token":"</s>"})");
  return token::Tokenizer(
      folder().write("tokenizer.json", json::dump(json::object({{"added_tokens", added}, {"model", model}}))));
}

}  // namespace fp8::fuzz
