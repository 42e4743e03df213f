// Errors of single ranks become one error of all.
#include <algorithm>
#include <charconv>
#include <sstream>

#include "fp8/comm/comm.h"

namespace fp8::comm {
namespace {

constexpr char kEnd = '\0';  // end of a field of an error

// An error as text, for other ranks: its code, its message, then two fields for each hint.
std::string text_of(const Error& e) {
  std::string text = std::to_string(static_cast<int>(e.code())) + kEnd + e.what();
  for (const Hint& h : e.hints()) text += kEnd + h.setting + kEnd + h.text;
  return text;
}

// The error of text_of(), its message behind `prefix`.
AgreedError error_from(const std::string& text, const std::string& prefix) {
  std::istringstream fields(text);
  std::string number, message;
  std::vector<Hint> hints;
  std::getline(fields, number, kEnd);
  std::getline(fields, message, kEnd);
  for (Hint h; std::getline(fields, h.setting, kEnd);) {
    std::getline(fields, h.text, kEnd);
    hints.push_back(h);
  }
  std::uint8_t code = 0;
  if (std::from_chars(number.data(), number.data() + number.size(), code).ec != std::errc())
    return AgreedError("ranks do not agree on an error");
  return AgreedError(prefix + message, static_cast<Exit>(code), std::move(hints));
}

}  // namespace

void agree_on(Communicator& world, const std::optional<Error>& mine) {
  std::int64_t lowest = mine ? world.rank() : world.size();
  world.all_reduce(std::span(&lowest, 1), Reduce::min);
  if (lowest == world.size()) return;

  const std::vector<std::string> texts = world.all_gather(mine ? text_of(*mine) : "");
  const std::string& first = texts.at(static_cast<std::size_t>(lowest));
  const bool same = std::all_of(texts.begin(), texts.end(), [&](const std::string& t) { return t == first; });
  const std::string prefix = same ? "" : "rank " + world.text_of_rank(static_cast<int>(lowest)) + ": ";
  throw error_from(first, prefix);
}

}  // namespace fp8::comm
