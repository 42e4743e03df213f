/// The decoder of a tokenizer: a sequence of ByteLevel, ByteFallback, Fuse, Metaspace, Replace and Strip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "expression.h"
#include "fp8/json/value.h"
#include "replace.h"

namespace fp8::token {

/// A sequence of steps that converts the texts of tokens to text.
class Decoder {
 public:
  /// Reads the member "decoder", which may be null. Throws Error `what: reason`.
  Decoder(const json::Value& part, const std::string& what);

  /// Decodes the texts of tokens. A null decoder joins them with spaces.
  std::string decode(std::vector<std::string> tokens) const;

 private:
  enum class Kind : std::uint8_t { byte_level, byte_fallback, fuse, metaspace, replace, strip };
  struct Step {
    Kind kind;
    std::string content = {};  // strip: the text to remove; metaspace: the character that replaces spaces
    std::optional<Replace> replace = {};
    std::int64_t start = 0;    // strip: maximum number of removals at the start
    std::int64_t stop = 0;     // strip: maximum number of removals at the end
    bool drops_first = false;  // metaspace: removes its character from the first token
  };
  static Step read(const json::Object& part, const std::string& type, const std::string& what);
  static void run(const Step& step, std::size_t most, std::vector<std::string>& tokens, Matcher& matcher);

  std::vector<Step> steps_;
};

}  // namespace fp8::token
