/// The normalizer of a tokenizer: NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace, ByteLevel,
/// one after the other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "expression.h"
#include "fp8/json/value.h"
#include "replace.h"
#include "unicode.h"

namespace fp8::token {

/// Buffers of a thread.
struct NormalizerScratch {
  std::string text;                 ///< the result
  std::string next;                 ///< of the step at hand
  std::vector<std::int32_t> codes;  ///< code points
};

/// A chain of steps.
class Normalizer {
 public:
  /// Reads the member "normalizer", which may be null. Throws Error `what: reason`.
  Normalizer(const json::Value& part, const std::string& what);

  /// The normalized `text`, valid UTF-8: `text` itself or scratch.text. `begins` is whether it begins where a piece
  /// begins; Prepend does nothing elsewhere.
  std::string_view apply(std::string_view text, bool begins, NormalizerScratch& scratch, Matcher& matcher) const;

  /// Whether a text divided before a space or behind a newline has normalized parts that make the normalized whole.
  bool divisible() const;

 private:
  enum class Kind : std::uint8_t { form, lower_case, strip, prepend, replace, bytes };
  struct Step {
    Kind kind;
    Form form = Form::nfc;     // of form
    std::string content = {};  // of prepend
    std::optional<Replace> replace = {};
    bool left = false;  // of strip
    bool right = false;
  };
  static Step read(const json::Object& part, const std::string& type, const std::string& what);
  static bool changes(const Step& step, std::string_view text, bool begins);
  static void run(const Step& step, std::string_view text, NormalizerScratch& scratch, Matcher& matcher);

  std::vector<Step> steps_;
};

}  // namespace fp8::token
