// Errors of single ranks become one error of all.
#include <algorithm>
#include <charconv>

#include "fp8/comm/comm.h"

namespace fp8::comm {

void agree_on(Communicator& world, const std::optional<Error>& mine) {
  std::int64_t lowest = mine ? world.rank() : world.size();
  world.all_reduce(std::span(&lowest, 1), Reduce::min);
  if (lowest == world.size()) return;

  const std::string text = mine ? std::to_string(static_cast<int>(mine->code())) + "\n" + mine->what() : "";
  const std::vector<std::string> texts = world.all_gather(text);
  const std::string& first = texts.at(static_cast<std::size_t>(lowest));
  const std::size_t line = first.find('\n');
  std::uint8_t code = static_cast<std::uint8_t>(Exit::bad);
  if (line == std::string::npos || std::from_chars(first.data(), first.data() + line, code).ec != std::errc()) {
    throw AgreedError("ranks do not agree on an error");
  }
  const bool same = std::all_of(texts.begin(), texts.end(), [&](const std::string& t) { return t == first; });
  const std::string prefix = same ? "" : "rank " + std::to_string(lowest) + ": ";
  throw AgreedError(prefix + first.substr(line + 1), static_cast<Exit>(code));
}

}  // namespace fp8::comm
