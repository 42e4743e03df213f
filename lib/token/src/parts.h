/// Helpers for reading the parts of tokenizer.json.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "fp8/json/value.h"

namespace fp8::token {

/// `text` in quotes for a message, at most 40 bytes.
std::string shown(std::string_view text);

/// Calls `read` for `part` or, if it is a Sequence, for each part in its member `list`, recursively. Does nothing for
/// null. Throws Error `what: reason` for more than 64 parts.
void for_each_part(const json::Value& part, std::string_view list, const std::string& what,
                   const std::function<void(const json::Object& part, const std::string& type)>& read);

/// Throws Error that `what` of type `type` is not supported.
[[noreturn]] void refuse_type(const std::string& what, std::string_view type);

/// The string `key`, which must be one character.
std::string get_character(const json::Object& part, std::string_view key, const std::string& what);

}  // namespace fp8::token
