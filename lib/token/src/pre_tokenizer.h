/// The pre-tokenizer of a tokenizer: ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit, one
/// within the pieces of the other. What it is: data; the walk over a text is in encoder.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "expression.h"
#include "fp8/json/value.h"

namespace fp8::token {

/// What becomes of the matches of a Split, and of what lies between them.
enum class Behavior : std::uint8_t {
  isolated,              ///< both are pieces
  removed,               ///< matches are left out
  merged_with_previous,  ///< a match belongs to what is before it
  merged_with_next,      ///< a match belongs to what is behind it
  contiguous,            ///< neighbouring matches are one piece
};

/// When Metaspace puts its character before a piece.
enum class Scheme : std::uint8_t { first, never, always };

/// One step.
struct Stage {
  /// What a step does.
  enum class Kind : std::uint8_t {
    prefix_space,  ///< a space before a piece that does not begin with one
    bytes,         ///< each byte becomes its character
    metaspace,     ///< spaces become `replacement`, and one comes before, by `scheme`
    split,         ///< pieces by `expression`
  };
  Kind kind = Kind::split;                    ///< what it does
  std::optional<Expression> expression = {};  ///< of split
  Behavior behavior = Behavior::isolated;     ///< of split
  bool invert = false;                        ///< of split: what lies between matches counts as a match
  std::string replacement = {};               ///< of metaspace
  Scheme scheme = Scheme::always;             ///< of metaspace
};

/// The steps of the member "pre_tokenizer", which may be null. A split by a Metaspace is a step of its own. Throws
/// Error `what: reason`.
std::vector<Stage> read_pre_tokenizer(const json::Value& part, const std::string& what);

}  // namespace fp8::token
