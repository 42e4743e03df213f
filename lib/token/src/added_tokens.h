/// Added tokens: texts that are found whole before anything else is done, the leftmost first, of those the longest.
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
  std::string content = {};  ///< as the file has it
  std::string pattern = {};  ///< what is looked for: the content, normalized where `normalized` is set
  bool single_word = false;  ///< not beside a letter, mark, digit or '_'
  bool lstrip = false;       ///< takes white space before it
  bool rstrip = false;       ///< takes white space behind it
  bool normalized = false;   ///< looked for in the normalized text
  bool special = false;      ///< left out of decoded text on request
};

/// A part of a text.
struct Segment {
  std::size_t begin = 0;              ///< first byte
  std::size_t end = 0;                ///< behind the last byte
  const AddedToken* token = nullptr;  ///< nullptr for what lies between the tokens
};

/// Finds tokens in texts.
class AddedTokens {
 public:
  /// Of `tokens` those that are normalized or not; they must outlive this.
  AddedTokens(const std::vector<AddedToken>& tokens, bool normalized);

  /// Puts into `segments` what `text` (valid UTF-8) consists of, front to back, nothing empty in between.
  void split(std::string_view text, Matcher& matcher, std::vector<Segment>& segments) const;

  /// Whether no token can lie across byte `at` of `text`, which stands before a space (`before_space`) or behind a
  /// newline, whatever comes before and behind.
  bool divides(std::string_view text, std::size_t at, bool before_space) const;
  /// Whether divides() can be true anywhere.
  bool may_divide(bool before_space) const { return before_space ? !across_space_ : !across_line_; }

 private:
  struct Node {
    std::vector<std::pair<unsigned char, std::uint32_t>> children = {};
    const AddedToken* token = nullptr;  // that ends here
  };
  const AddedToken* longest(std::string_view text, std::size_t at) const;
  bool single_word(std::string_view text, std::size_t begin, std::size_t end, Matcher& matcher) const;

  std::vector<Node> trie_{1};
  std::array<bool, 256> begins_{};  // whether a token begins with this byte
  std::vector<const AddedToken*> tokens_;
  bool across_space_ = false;  // whether a token may lie across a place before a space, whatever the text
  bool across_line_ = false;   // the same behind a newline
  Expression word_;
};

}  // namespace fp8::token
