// Words of lines, with single and double quotes.
#include "words.h"

#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/base/text.h"

namespace fp8::launch {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }

// Splits one line. Errors begin with `where`.
class Splitter {
 public:
  Splitter(std::string_view line, const std::string& where) : line_(line), where_(where) {}

  std::vector<Word> words() {
    std::vector<Word> words;
    while (true) {
      while (at_ < line_.size() && is_blank(line_[at_])) ++at_;
      if (at_ == line_.size() || line_[at_] == '#') return words;
      words.push_back(word());
    }
  }

 private:
  Word word() {
    Word word;
    while (at_ < line_.size() && !is_blank(line_[at_])) {
      const char c = line_[at_++];
      if (c == '\\') throw Error(where_ + "backslash: not an escape character here; put the word in quotes");
      word.open_end = c != '\'' && c != '"';
      if (word.open_end) {
        word.text += c;
        continue;
      }
      const std::size_t end = line_.find(c, at_);
      if (end == std::string_view::npos) throw Error(where_ + "unterminated quote");
      word.text += line_.substr(at_, end - at_);
      at_ = end + 1;
    }
    return word;
  }

  std::string_view line_;
  const std::string& where_;
  std::size_t at_ = 0;
};

void check_text(const Line& line) {
  if (!valid_utf8(line.text)) throw Error(line.where + "not UTF-8");
  for (const char c : line.text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\r') throw Error(line.where + "a carriage return; lines end in a newline alone");
    if ((byte < 0x20 && c != '\t') || byte == 0x7f) throw Error(line.where + "a control character");
  }
}

}  // namespace

std::vector<Word> split_words(std::string_view text, const std::string& where) { return Splitter(text, where).words(); }

std::vector<std::string> texts_of(const std::vector<Word>& words) {
  std::vector<std::string> texts;
  for (const Word& word : words) texts.push_back(word.text);
  return texts;
}

void for_each_line(std::string_view text, const std::string& name, const std::function<void(const Line&)>& parse) {
  std::uint64_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    ++number;
    const Line line{text.substr(begin, end - begin), name + ":" + std::to_string(number) + ": ", number};
    begin = end + 1;
    check_text(line);
    parse(line);
  }
}

bool is_flag(std::string_view word, std::string_view name) {
  return word == name || (word.starts_with(name) && word[name.size()] == '=');
}

}  // namespace fp8::launch
