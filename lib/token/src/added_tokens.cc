// Finds tokens with a trie over their bytes. A table of first bytes skips positions at which no token can begin.
#include "added_tokens.h"

#include <algorithm>

#include "unicode.h"

namespace fp8::token {
namespace {

// \w of Rust's regex, anchored.
constexpr std::string_view kAnchoredWord = R"(\G[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}])";

std::size_t space_begin(std::string_view text, std::size_t end) {
  while (end > 0) {
    const std::size_t last = character_before(text, end);
    if (!is_white_space(character_at(text, last).code)) break;
    end = last;
  }
  return end;
}

std::size_t space_end(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const Character c = character_at(text, begin);
    if (!is_white_space(c.code)) break;
    begin += c.length;
  }
  return begin;
}

// Whether `inside` occurs in `text` after the first byte.
bool holds_behind_first(std::string_view text, std::string_view inside) {
  return text.find(inside, 1) != std::string_view::npos;
}

// Whether a token may span a division before a space. `rstrip` counts only for tokens found in normalized text; for the
// others divides() checks the text.
bool crosses_space(const AddedToken& token) {
  const std::string_view pattern = token.pattern;
  const bool opens = pattern.front() == ' ' || pattern.starts_with(kMetaspace);
  return (token.single_word && opens) || (token.rstrip && token.normalized) || holds_behind_first(pattern, " ") ||
         holds_behind_first(pattern, kMetaspace);
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, bool normalized)
    : word_(Expression::of_pcre2(kAnchoredWord)) {
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized || token.pattern.empty()) continue;
    tokens_.push_back(&token);
    across_space_ = across_space_ || crosses_space(token);
    across_line_ = across_line_ || token.lstrip || token.pattern.find('\n') != std::string::npos;
    begins_.at(static_cast<unsigned char>(token.pattern[0])) = true;
    std::uint32_t node = 0;
    for (const char c : token.pattern) {
      const auto byte = static_cast<unsigned char>(c);
      auto& children = trie_[node].children;
      const auto child = std::find_if(children.begin(), children.end(), [&](const auto& e) { return e.first == byte; });
      if (child != children.end()) {
        node = child->second;
        continue;
      }
      node = static_cast<std::uint32_t>(trie_.size());
      children.emplace_back(byte, node);
      trie_.emplace_back();
    }
    trie_[node].token = &token;
  }
}

const AddedToken* AddedTokens::longest(std::string_view text, std::size_t at) const {
  const AddedToken* found = nullptr;
  for (std::uint32_t node = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const auto& children = trie_[node].children;
    const auto child = std::find_if(children.begin(), children.end(), [&](const auto& e) { return e.first == byte; });
    if (child == children.end()) break;
    node = child->second;
    if (trie_[node].token != nullptr) found = trie_[node].token;
  }
  return found;
}

bool AddedTokens::single_word(std::string_view text, std::size_t begin, std::size_t end, Matcher& matcher) const {
  Span span;
  const auto word_at = [&](std::size_t at) { return matcher.find(word_, text, at, false, span) == Found::match; };
  return (begin == 0 || !word_at(character_before(text, begin))) && (end == text.size() || !word_at(end));
}

void AddedTokens::split(std::string_view text, Matcher& matcher, std::vector<Segment>& segments) const {
  segments.clear();
  std::size_t taken = 0;  // end of the last segment
  if (!tokens_.empty()) {
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (!begins_[static_cast<unsigned char>(text[at])]) continue;
      const AddedToken* const token = longest(text, at);
      if (token == nullptr) continue;
      std::size_t begin = at;
      std::size_t end = at + token->pattern.size();
      at = end - 1;  // the search continues after the match, also if the match is dropped or includes more white space
      if (token->single_word && !single_word(text, begin, end, matcher)) continue;
      if (token->lstrip) begin = std::max(space_begin(text, begin), taken);
      if (token->rstrip) end = space_end(text, end);
      if (taken < begin) segments.push_back({taken, begin, nullptr});
      segments.push_back({begin, end, token});
      taken = end;
    }
  }
  if (taken != text.size()) segments.push_back({taken, text.size(), nullptr});
}

bool AddedTokens::divides(std::string_view text, std::size_t at, bool before_space) const {
  if (!may_divide(before_space)) return false;
  if (!before_space) return true;
  return std::none_of(tokens_.begin(), tokens_.end(), [&](const AddedToken* token) {
    return token->rstrip && text.substr(0, at).ends_with(token->pattern);
  });
}

}  // namespace fp8::token
