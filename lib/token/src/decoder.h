/// The decoder of a tokenizer: ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, one after the other.
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

/// A chain of steps from the texts of tokens to text.
class Decoder {
 public:
  /// Reads the member "decoder", which may be null. Throws Error `what: reason`.
  Decoder(const json::Value& part, const std::string& what);

  /// The text of `tokens`; without steps they are joined by spaces.
  std::string decode(std::vector<std::string> tokens) const;

 private:
  enum class Kind : std::uint8_t { byte_level, byte_fallback, fuse, metaspace, replace, strip };
  struct Step {
    Kind kind;
    std::string content = {};  // of strip; of metaspace its character
    std::optional<Replace> replace = {};
    std::int64_t start = 0;  // of strip: most characters to take away
    std::int64_t stop = 0;
    bool drops_first = false;  // of metaspace: takes its character out of the first token
  };
  static Step read(const json::Object& part, const std::string& type, const std::string& what);
  static void run(const Step& step, std::vector<std::string>& tokens, Matcher& matcher);

  std::vector<Step> steps_;
};

}  // namespace fp8::token
