/// Text of tokens that arrive one by one: whole characters alone, and nothing from a stop text on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/generate/codec.h"

namespace fp8::generate {

/// The text that follows a prompt. Parts that it returns are valid UTF-8; joined, they are the text of all tokens, or
/// its part before the first stop text. A character that begins in the prompt is part of the text; U+FFFD for bytes of
/// the prompt that are no character is not. Text is held back while it may be the beginning of a stop text, or of a
/// character.
class TextStream {
 public:
  /// After the tokens `prompt`. `codec` must outlive the object. Empty stop texts are ignored.
  TextStream(const Codec& codec, std::span<const std::uint32_t> prompt, std::vector<std::string> stops);

  /// Adds a token; returns the text that is complete with it.
  std::string add(std::uint32_t id);
  /// The text that was held back; there are no more tokens.
  std::string finish();
  /// Whether a stop text was found.
  bool stopped() const { return stopped_; }

 private:
  std::string released();
  void hold(std::string_view text);
  void trim(std::string_view text);

  const Codec& codec_;
  std::vector<std::string> stops_;
  std::vector<std::uint32_t> window_;  // the last tokens; decoding them gives the same text as decoding all
  std::string decoded_;                // decoded text of the window, which is already in held_ or returned
  std::string held_;                   // characters that may begin a stop text
  std::size_t of_prompt_ = 0;          // replacement characters at the end of the prompt that decoding gives again
  bool stopped_ = false;
};

}  // namespace fp8::generate
