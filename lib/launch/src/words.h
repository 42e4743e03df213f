/// Text files of lines of words, quoted as in a shell but without escapes: phases and sweeps.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace fp8::launch {

/// Largest size of such a file in bytes.
constexpr std::uint64_t kMaxWordsFile = std::uint64_t{1} << 20U;

/// A word with its quotes removed.
struct Word {
  std::string text;       ///< may be empty if it was quoted
  bool open_end = false;  ///< whether its last character was outside quotes
};

/// One line of a file.
struct Line {
  std::string_view text;     ///< without the newline
  std::string where;         ///< `name:LINE: `, the beginning of an error about the line
  std::uint64_t number = 0;  ///< from 1
};

/// The words of `text`, a line or the end of one. Blanks and tabs separate words; `#` at the beginning of a word starts
/// a comment. Throws Error that begins with `where` for a backslash or an unterminated quote.
std::vector<Word> split_words(std::string_view text, const std::string& where);

/// The texts of `words`.
std::vector<std::string> texts_of(const std::vector<Word>& words);

/// Calls `parse` for each line of `text`, the content of the file `name`. Throws Error `name:LINE: reason` for a line
/// that is not UTF-8 or has a control character other than a tab.
void for_each_line(std::string_view text, const std::string& name, const std::function<void(const Line&)>& parse);

/// Whether `word` is the flag `name` or `name`=VALUE.
bool is_flag(std::string_view word, std::string_view name);

}  // namespace fp8::launch
