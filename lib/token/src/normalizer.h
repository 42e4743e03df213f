/// The normalizer of a tokenizer: a sequence of NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace and ByteLevel.
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

/// Buffers for normalizing, one per thread.
struct NormalizerScratch {
  std::string text;                 ///< the result
  std::string next;                 ///< output of the current step
  std::vector<std::int32_t> codes;  ///< code points
};

/// A sequence of steps.
class Normalizer {
 public:
  /// Reads the member "normalizer", which may be null. Throws Error `what: reason`.
  Normalizer(const json::Value& part, const std::string& what);

  /// The normalized `text`, valid UTF-8: `text` itself or scratch.text. Prepend is applied only if `begins`, that is,
  /// if `text` begins a piece.
  std::string_view apply(std::string_view text, bool begins, NormalizerScratch& scratch, Matcher& matcher) const;

  /// Whether, for a text divided before a space or after a newline, the normalized parts are the normalized whole.
  bool divisible() const;

 private:
  enum class Kind : std::uint8_t { form, lower_case, strip, prepend, replace, bytes };
  struct Step {
    Kind kind;
    Form form = Form::nfc;     // form only
    std::string content = {};  // prepend only
    std::optional<Replace> replace = {};
    bool left = false;   // strip only
    bool right = false;  // strip only
  };
  static Step read(const json::Object& part, const std::string& type, const std::string& what);
  static bool changes(const Step& step, std::string_view text, bool begins);
  static void run(const Step& step, std::string_view text, std::size_t most, NormalizerScratch& scratch,
                  Matcher& matcher);

  std::vector<Step> steps_;
};

}  // namespace fp8::token
