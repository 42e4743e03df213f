// Rows, examples and counts of conversations as text and as JSON.
#include "fp8/data/chat_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "fp8/base/text.h"
#include "fp8/json/json.h"

namespace fp8::data {
namespace {

template <class T>
void append_number(std::string& out, T number) {
  std::array<char, 24> digits{};
  out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr);
}

template <class T>
void append_list(std::string& out, const std::vector<T>& numbers) {
  out += '[';
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i != 0) out += ',';
    append_number(out, numbers[i]);
  }
  out += ']';
}

void append_spans(std::string& out, const std::vector<std::uint8_t>& mask) {
  out += '[';
  for (const auto& [begin, end] : chat::spans_of(mask)) {
    if (out.back() != '[') out += ',';
    append_list(out, std::vector<std::size_t>{begin, end});
  }
  out += ']';
}

json::Value counts_of(const std::map<std::string, std::int64_t>& counts) {
  json::Object object;
  for (const auto& [text, count] : counts) object.set(text, count);
  return object;
}

std::string share_of(std::int64_t part, std::int64_t all) {
  return format_short(100 * static_cast<double>(part) / static_cast<double>(all), 3) + " %";
}

}  // namespace

void append_row(std::string& out, const chat::Row& row, bool packed) {
  out += "{\"ids\":";
  append_list(out, row.ids);
  out += ",\"trained\":";
  append_spans(out, row.mask);
  if (packed) {
    out += ",\"lengths\":";
    append_list(out, row.lengths);
    out += ",\"padding\":";
    append_number(out, row.padding);
  }
  out += "}\n";
}

std::string example_text(const chat::Document& document, const Origin& origin, const token::Tokenizer& tokenizer) {
  const auto spans = chat::spans_of(document.mask);
  std::size_t targets = 0, at = 0;
  for (const auto& [begin, end] : spans) targets += end - begin;
  std::string text = terminal_safe(origin.name) + ": line " + std::to_string(origin.line) + ": " +
                     std::to_string(document.ids.size()) + " tokens, " + std::to_string(targets) +
                     " of them targets (+)\n";
  const auto part = [&](std::size_t end, char sign) {
    if (at == end) return;
    const std::vector<std::uint32_t> ids(document.ids.begin() + static_cast<std::ptrdiff_t>(at),
                                         document.ids.begin() + static_cast<std::ptrdiff_t>(end));
    text += {sign, ' '};
    text += terminal_safe(json::dump(json::Value(tokenizer.decode(ids, false)))) + " ";
    append_list(text, ids);
    text += '\n';
    at = end;
  };
  for (const auto& [begin, end] : spans) {
    part(begin, '-');
    part(end, '+');
  }
  part(document.ids.size(), '-');
  return text;
}

std::string example_line(const chat::Document& document, const Origin& origin, const token::Tokenizer& tokenizer) {
  std::string line = "{\"type\":\"example\",\"line\":";
  append_number(line, origin.line);
  line += ",\"text\":" + json::dump(json::Value(tokenizer.decode(document.ids, false))) + ",\"ids\":";
  append_list(line, document.ids);
  line += ",\"trained\":";
  append_spans(line, document.mask);
  return line + "}\n";
}

json::Value tokens_record(const std::string& path, const ChatSummary& s, std::int64_t vocab_size) {
  return json::object({{"type", "tokens"},
                       {"path", path},
                       {"tokens", s.tokens},
                       {"documents", s.documents},
                       {"vocab_size", vocab_size},
                       {"targets", s.targets},
                       {"records", s.records},
                       {"cut", s.cut},
                       {"dropped", counts_of(s.dropped)},
                       {"sequences", s.sequences},
                       {"padding", s.padding},
                       {"longest", s.longest},
                       {"too_long", s.too_long},
                       {"tokens_lost", s.lost},
                       {"ignored", counts_of(s.ignored)}});
}

std::string counts_text(const ChatSummary& s, bool packed) {
  constexpr std::size_t kReasons = 3;  // that are named, the most frequent ones
  std::int64_t dropped = 0, others = 0;
  std::string reasons;
  std::vector<std::pair<std::int64_t, std::string>> by_count;
  for (const auto& [reason, count] : s.dropped) by_count.emplace_back(-count, reason);
  std::sort(by_count.begin(), by_count.end());
  for (std::size_t i = 0; i < by_count.size(); ++i) {
    const std::int64_t count = -by_count[i].first;
    dropped += count;
    if (i >= kReasons) others += count;
    if (i < kReasons)
      reasons +=
          (reasons.empty() ? " (" : ", ") + terminal_safe(excerpt(by_count[i].second)) + ": " + std::to_string(count);
  }
  if (others > 0) reasons += ", other reasons: " + std::to_string(others);
  std::string text = std::to_string(s.documents) + (s.documents == 1 ? " document, " : " documents, ") +
                     std::to_string(s.tokens) + " tokens, " + std::to_string(s.targets) + " targets, " +
                     std::to_string(s.cut) + " cut, " + std::to_string(dropped) + " left out" +
                     (reasons.empty() ? "" : reasons + ")");
  if (packed) {
    text += "; packed into " + std::to_string(s.sequences) + " sequences with " + std::to_string(s.padding) +
            " tokens of padding";
  }
  if (s.longest > 0)
    text += "; longest " + std::to_string(s.longest) + " tokens (" + terminal_safe(s.longest_at.name) + ": line " +
            std::to_string(s.longest_at.line) + ")";
  if (s.too_long > 0)
    text += "; beyond the cutoff: " + share_of(s.too_long, s.rendered) + " of the conversations, " +
            share_of(s.lost, s.whole) + " of their tokens";
  return text;
}

std::string eval_path(const std::string& output) {
  const std::filesystem::path path(output);
  return (path.parent_path() / (path.stem().string() + "-eval" + path.extension().string())).string();
}

}  // namespace fp8::data
