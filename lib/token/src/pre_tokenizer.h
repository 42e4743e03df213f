/// The pre-tokenizer of a tokenizer: a sequence of ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace and
/// WhitespaceSplit, each applied to the pieces of the one before. This file reads the steps; encoder.cc applies them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "expression.h"
#include "fp8/json/value.h"

namespace fp8::token {

/// The treatment of matches and of the text between them by a Split.
enum class Behavior : std::uint8_t {
  isolated,              ///< matches and the text between them are pieces
  removed,               ///< matches are left out
  merged_with_previous,  ///< a match is joined with the piece before
  merged_with_next,      ///< a match is joined with the piece after
  contiguous,            ///< adjacent matches are one piece
};

/// When Metaspace prepends its character to a piece.
enum class Scheme : std::uint8_t { first, never, always };

/// One step.
struct Stage {
  /// The operation of a step.
  enum class Kind : std::uint8_t {
    prefix_space,  ///< prepends a space to a piece that does not begin with one
    bytes,         ///< replaces each byte by its character in the byte alphabet
    metaspace,     ///< replaces spaces by `replacement` and prepends one according to `scheme`
    split,         ///< splits a piece at the matches of `expression`
  };
  Kind kind = Kind::split;
  std::optional<Expression> expression = {};  ///< split only
  Behavior behavior = Behavior::isolated;     ///< split only
  bool invert = false;                        ///< split only: exchanges matches and the text between them
  std::string replacement = {};               ///< metaspace only
  Scheme scheme = Scheme::always;             ///< metaspace only
};

/// Reads the steps of the member "pre_tokenizer", which may be null. A Metaspace that splits becomes two steps. Throws
/// Error `what: reason`.
std::vector<Stage> read_pre_tokenizer(const json::Value& part, const std::string& what);

}  // namespace fp8::token
