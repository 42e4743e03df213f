/// Added tokens: texts that are matched as a whole before normalization and pre-tokenization, leftmost-longest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "expression.h"

namespace fp8::token {

/// One added token.
struct AddedToken {
  std::uint32_t id = 0;
  std::string content = {};  ///< text of the token in the file
  std::string pattern = {};  ///< the text to find: the content, normalized if `normalized` is set
  bool single_word = false;  ///< matches only if not adjacent to a letter, mark, digit or '_'
  bool lstrip = false;       ///< the match includes white space before it
  bool rstrip = false;       ///< the match includes white space after it
  bool normalized = false;   ///< matched in the normalized text
  bool special = false;      ///< left out of decoded text with skip_special
};

/// A token or the text between two tokens.
struct Segment {
  std::size_t begin = 0;              ///< first byte
  std::size_t end = 0;                ///< one past the last byte
  const AddedToken* token = nullptr;  ///< nullptr for text between tokens
};

/// Finds tokens in texts.
class AddedTokens {
 public:
  /// Uses the `tokens` whose field `normalized` is equal to `normalized`. `tokens` must outlive this object.
  AddedTokens(const std::vector<AddedToken>& tokens, bool normalized);

  /// Splits `text` (valid UTF-8) into `segments`, in order, without empty ones.
  void split(std::string_view text, Matcher& matcher, std::vector<Segment>& segments) const;

  /// Whether no token can span the offset `at` of `text`, which is before a space (`before_space`) or after a newline,
  /// for any text around `text`.
  bool divides(std::string_view text, std::size_t at, bool before_space) const;
  /// Whether divides() can be true for some text.
  bool may_divide(bool before_space) const { return before_space ? !across_space_ : !across_line_; }

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::uint32_t>> children = {};
    const AddedToken* token = nullptr;  // the token that ends at this node
  };
  const AddedToken* longest(std::string_view text, std::size_t at) const;
  bool single_word(std::string_view text, std::size_t begin, std::size_t end, Matcher& matcher) const;

  std::vector<Node> trie_{1};
  std::array<bool, 256> begins_{};  // whether a token begins with this byte
  std::vector<const AddedToken*> tokens_;
  bool across_space_ = false;  // whether a token may span an offset before a space in any text
  bool across_line_ = false;   // whether a token may span an offset after a newline in any text
  Expression word_;
};

}  // namespace fp8::token
