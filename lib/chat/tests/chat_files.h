/// Files and small tokenizers for the tests of the crate.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "fp8/chat/document.h"
#include "fp8/json/records.h"
#include "fp8_test.h"

namespace fp8::chat {

/// A path in the folder of reference values.
inline std::string golden(const std::string& name) { return "tests/golden/chat/" + name; }

/// A conversation of `record`, with the schema that is guessed.
inline Conversation conversation_of(std::string_view record, const Columns& columns = {}) {
  const json::Value value = json::parse(record, "record");
  return read_conversation(value, guess_schema(value, columns).value_or(schema_of(Format::alpaca, columns)));
}

}  // namespace fp8::chat
