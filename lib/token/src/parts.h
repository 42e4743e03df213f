/// What the readers of tokenizer.json's parts share.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "fp8/json/value.h"

namespace fp8::token {

/// Text from the file as it may stand in a message: at most 40 bytes of it, in quotes.
std::string shown(std::string_view text);

/// Calls `read` for `part`, or, where it is a Sequence, for each of its parts under `list`, whatever the depth. Nothing
/// for null. Throws Error `what: reason` for more than 64 parts.
void for_each_part(const json::Value& part, std::string_view list, const std::string& what,
                   const std::function<void(const json::Object& part, const std::string& type)>& read);

/// Throws Error that `what` of type `type` is not supported.
[[noreturn]] void refuse_type(const std::string& what, std::string_view type);

/// The one character of the string under `key`.
std::string get_character(const json::Object& part, std::string_view key, const std::string& what);

}  // namespace fp8::token
