// Distinguishes text from other files by their first bytes. Private to the crate.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "fp8/base/error.h"

namespace fp8::data {

// Number of bytes examined.
constexpr std::size_t kHeadBytes = std::size_t{1} << 16;

// Hint of a message about an input that could be read as text.
inline const Hint kAnyBytes{"from", "text to read any bytes"};

// Throws Error `name: reason` with `hints` if `head`, the first bytes of an input, is of a known file format other than
// text. Without hints if the message contains a command that converts the input.
void refuse_known_formats(const std::string& name, std::span<const std::byte> head, std::vector<Hint> hints);

// Throws Error if `path` names a description of datasets, which holds no data.
void refuse_description(const std::string& path);

// Checks what refuse_known_formats() does, and throws if `head` contains a NUL byte or is not UTF-8; the last sequence
// may be incomplete.
void check_text(const std::string& name, std::span<const std::byte> head);

}  // namespace fp8::data
