// Translates an expression in one pass. Syntax that may have a different meaning in the two libraries is refused.
#include "translate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <utility>
#include <vector>

#include "fp8/base/error.h"
#include "unicode.h"

namespace fp8::token {
namespace {

// The characters with the property White_Space, and all others. PCRE2's \s also contains U+180E.
constexpr std::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWordMembers = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

// Property names other than short names of general categories, in lower case without '_', '-' and spaces. All remaining
// names are scripts.
constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kProperties = {{{"letter", "L"},
                                                                                        {"mark", "M"},
                                                                                        {"number", "N"},
                                                                                        {"punctuation", "P"},
                                                                                        {"symbol", "S"},
                                                                                        {"separator", "Z"},
                                                                                        {"other", "C"},
                                                                                        {"any", "Any"},
                                                                                        {"alphabetic", "Alphabetic"},
                                                                                        {"alpha", "Alphabetic"}}};
constexpr std::string_view kCategories =
    " c cc cf cn co cs l ll lm lo lt lu m mc me mn n nd nl no p pc pd pe pf pi po ps s sc sk sm so z zl zp zs ";

std::string folded(std::string_view name) {
  std::string text;
  for (const char c : name)
    if (c != '_' && c != '-' && c != ' ') text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

bool digit(char c) { return c >= '0' && c <= '9'; }
bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& what) : text_(pattern), what_(what) {}

  std::string run() {
    // (?i) at the beginning has the same meaning in both libraries; elsewhere its scope differs.
    if (take("(?i)")) {
      out_ = "(?i)";
      insensitive_ = {true};
    }
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\') {
        escape(false);
      } else if (c == '[') {
        set();
      } else if (c == '(') {
        group();
      } else if (c == '{') {
        brace();
      } else {
        if (c == ')' && insensitive_.size() > 1) insensitive_.pop_back();
        copy();
      }
    }
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(std::string_view syntax) const {
    throw Error(what_ + ": '" + std::string(syntax) + "' in an expression is not supported");
  }
  bool take(std::string_view expected) {
    if (text_.substr(at_, expected.size()) != expected) return false;
    at_ += expected.size();
    return true;
  }
  void copy() {
    const std::size_t length = std::min(character_length(text_[at_]), text_.size() - at_);
    if (insensitive_.back()) refuse_folding();
    out_ += text_.substr(at_, length);
    at_ += length;
  }

  // Case-insensitive, Oniguruma matches one character with two, such as U+00DF with ss; PCRE2 does not.
  void refuse_folding() const {
    constexpr std::array<std::string_view, 5> kPairs = {"ff", "fi", "fl", "ss", "st"};
    const std::string pair = folded(text_.substr(at_, 2));
    const bool two = std::find(kPairs.begin(), kPairs.end(), pair) != kPairs.end();
    if (two || static_cast<unsigned char>(text_[at_]) >= 0x80) refuse("(?i) with ff, fi, fl, ss, st or beyond ASCII");
  }

  void group() {
    constexpr std::array<std::string_view, 7> kSame = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:"};
    for (const std::string_view opening : kSame) {
      if (!take(opening)) continue;
      out_ += opening;
      insensitive_.push_back(insensitive_.back() || opening == "(?i:");
      return;
    }
    const std::string_view next = text_.substr(at_ + 1, 2);
    if (!next.empty() && (next[0] == '?' || next[0] == '*')) refuse("(" + std::string(next));
    out_ += '(';
    insensitive_.push_back(insensitive_.back());
    ++at_;
  }

  // {n}, {n,}, {n,m} and {,m} are counts; any other brace is a literal.
  void brace() {
    const auto number = [&](std::size_t from) {
      while (from < text_.size() && digit(text_[from])) ++from;
      return from;
    };
    const std::size_t first = number(at_ + 1);
    const bool comma = first < text_.size() && text_[first] == ',';
    const std::size_t last = comma ? number(first + 1) : first;
    const bool counts = last < text_.size() && text_[last] == '}' && last > at_ + 1 + (comma ? 1U : 0U);
    if (!counts) {
      out_ += "\\{";
      ++at_;
      return;
    }
    if (last + 1 < text_.size() && text_[last + 1] == '+') refuse("{n}+");
    out_ += first == at_ + 1 ? "{0" : "{";
    out_ += text_.substr(at_ + 1, last - at_);
    at_ = last + 1;
  }

  // A character class: its members inside a set, a set outside.
  void members(std::string_view inside, bool in_set, bool negated = false) {
    out_ += in_set ? std::string(inside) : (negated ? "[^" : "[") + std::string(inside) + "]";
    class_ = true;
  }
  void escape(bool in_set) {
    if (at_ + 1 >= text_.size()) refuse("\\ at the end");
    const char c = text_[at_ + 1];
    const std::size_t begin = at_;
    at_ += 2;
    class_ = false;
    if (c == 's') return members(kSpace, in_set);
    if (c == 'S') return members(kNotSpace, in_set);
    if (c == 'w') return members(kWordMembers, in_set);
    if (c == 'W' && !in_set) return members(kWordMembers, false, true);
    if (c == 'd') return members(R"(\p{Nd})", in_set);
    if (c == 'D') return members(R"(\P{Nd})", in_set);
    if (c == 'p' || c == 'P') return property(c == 'P');
    if (c == 'x' || c == 'u') return number(c);
    if (c == 'v') {
      out_ += "\\x{b}";
    } else if ((c == 'b' || c == 'B') && !in_set) {
      const std::string word = "[" + std::string(kWordMembers) + "]";
      out_ += c == 'b' ? "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))"
                       : "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))";
    } else if (std::string_view("nrtfae").find(c) != std::string_view::npos ||
               (!in_set && std::string_view("AzZ").find(c) != std::string_view::npos)) {
      out_ += text_.substr(begin, 2);
    } else if (letter(c) || digit(c)) {
      refuse(text_.substr(begin, 2));
    } else {
      // Escaped punctuation and characters beyond ASCII are literals; PCRE2 reads the latter without the backslash.
      --at_;
      if (static_cast<unsigned char>(c) < 0x80) out_ += '\\';
      copy();
    }
  }
  // \p{Name}, \P{Name}, \p{^Name}
  void property(bool negated) {
    if (!take("{")) refuse("\\p without {");
    const std::size_t end = text_.find('}', at_);
    if (end == std::string_view::npos) refuse("\\p{ without }");
    std::string_view name = text_.substr(at_, end - at_);
    at_ = end + 1;
    if (name.substr(0, 1) == "^") {
      negated = !negated;
      name.remove_prefix(1);
    }
    const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return letter(c) || c == '_' || c == ' ' || c == '-';
    });
    const std::string key = folded(name);
    if (!plain || key.empty()) refuse("\\p{" + std::string(name) + "}");
    out_ += negated ? "\\P{" : "\\p{";
    const auto* const known =
        std::find_if(kProperties.begin(), kProperties.end(), [&](const auto& p) { return p.first == key; });
    if (known != kProperties.end()) {
      out_ += known->second;
    } else if (kCategories.find(" " + key + " ") != std::string_view::npos) {
      out_ += static_cast<char>(std::toupper(static_cast<unsigned char>(key[0])));
      out_ += key.substr(1);
    } else {
      out_ += "sc:" + std::string(name);
    }
    out_ += '}';
    class_ = true;
  }
  // \xHH, \x{H...}, \uHHHH
  void number(char kind) {
    const auto hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    const bool braces = kind == 'x' && take("{");
    const std::size_t most = braces ? 8 : kind == 'x' ? 2 : 4;
    std::size_t end = at_;
    while (end < text_.size() && end - at_ < most && hex(text_[end])) ++end;
    const bool closed = !braces || (end < text_.size() && text_[end] == '}');
    if (end == at_ || !closed || (kind == 'u' && end - at_ != most)) refuse(std::string("\\") + kind);
    out_ += "\\x{" + std::string(text_.substr(at_, end - at_)) + "}";
    at_ = end + (braces ? 1 : 0);
  }

  void set() {
    out_ += '[';
    ++at_;
    if (take("^")) out_ += '^';
    if (at_ < text_.size() && text_[at_] == ']') refuse("[]");
    class_ = false;
    bool dash = false;  // whether the last character was '-' after a character
    for (bool first = true;; first = false) {
      if (at_ >= text_.size()) refuse("[ without ]");
      const char c = text_[at_];
      if (c == ']') break;
      if (c == '[') refuse("[ in a set");
      if (c == '&' && text_.substr(at_, 2) == "&&") refuse("&& in a set");
      const bool behind_class = class_;
      const bool behind_dash = std::exchange(dash, false);
      class_ = false;
      if (c == '\\') {
        escape(true);
        if (class_ && behind_dash) refuse("- before a class in a set");
      } else if (c == '-') {
        // After a class and at either end of the set, '-' is a literal.
        const bool itself = first || behind_class || text_.substr(at_ + 1, 1) == "]";
        out_ += itself ? "\\-" : "-";
        dash = !itself;
        ++at_;
      } else {
        copy();
      }
    }
    out_ += ']';
    ++at_;
    class_ = false;
  }

  std::string_view text_;
  const std::string& what_;
  std::string out_;
  std::size_t at_ = 0;
  std::vector<bool> insensitive_ = {false};  // case-insensitive: outside all groups, then for each open group
  bool class_ = false;                       // whether the last escape was a character class
};

}  // namespace

std::string translate(std::string_view pattern, const std::string& what) { return Translator(pattern, what).run(); }

}  // namespace fp8::token
