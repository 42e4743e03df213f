/// Helpers for tests with the tokenizers of tests/golden/tokenizers and with tokenizers given as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/json/json.h"
#include "fp8/token/tokenizer.h"
#include "fp8_test.h"

namespace fp8::token {

/// Path of the folder of a reference tokenizer.
inline std::string golden(const std::string& name) { return "tests/golden/tokenizers/" + name; }

/// Makes a tokenizer from the text of a tokenizer.json.
inline Tokenizer tokenizer_of(std::string_view text) {
  const test::TemporaryFolder folder;
  return Tokenizer(folder.write("tokenizer.json", text));
}

/// Encodes a whole text.
inline std::vector<std::uint32_t> encode(const Tokenizer& tokenizer, std::string_view text, bool special = true) {
  std::vector<std::uint32_t> ids;
  Encoder(tokenizer).encode(text, special, ids);
  return ids;
}

/// The array `key` of a record as ids.
inline std::vector<std::uint32_t> ids_of(const json::Object& record, std::string_view key) {
  std::vector<std::uint32_t> ids;
  for (const json::Value& id : record.get_array(key, "record")) ids.push_back(static_cast<std::uint32_t>(id.as_int()));
  return ids;
}

}  // namespace fp8::token
