// Distinguishes text from other files by their first bytes. Private to the crate.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace fp8::data {

// Number of bytes examined.
constexpr std::size_t kHeadBytes = std::size_t{1} << 16;

// End of a message where --from text would accept the input.
inline constexpr const char* kOfferText = "; --from text takes any bytes";

// Throws Error `name: reason, and a hint` if `head`, the first bytes of an input, is of a known file format other than
// text. The message ends in `offer`, unless it contains a command
// that converts the input.
void refuse_known_formats(const std::string& name, std::span<const std::byte> head, const char* offer);

// As refuse_known_formats(); also throws if `head` contains a NUL byte or is not UTF-8; the last sequence may be
// incomplete.
void check_text(const std::string& name, std::span<const std::byte> head);

}  // namespace fp8::data
