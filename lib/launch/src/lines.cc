// Line buffering of streams.
#include "lines.h"

#include <algorithm>

namespace fp8::launch {
namespace {

constexpr std::size_t kLongestLine = std::size_t{64} << 20U;
constexpr std::size_t kTailBytes = std::size_t{8} << 10U;
constexpr std::size_t kTailLines = 20;

}  // namespace

std::string_view WholeLines::add(std::string_view bytes) {
  given_.clear();
  const std::size_t end = bytes.rfind('\n');
  if (end == std::string_view::npos) {
    held_ += bytes;
    if (held_.size() > kLongestLine) given_.swap(held_);
    return given_;
  }
  given_.swap(held_);
  given_ += bytes.substr(0, end + 1);
  held_ = bytes.substr(end + 1);
  return given_;
}

std::string_view WholeLines::rest(bool keep) {
  given_.clear();
  given_.swap(held_);
  if (!keep) given_.clear();
  if (!given_.empty()) given_ += '\n';
  return given_;
}

void Tail::add(std::string_view bytes) {
  text_ += bytes;
  if (text_.size() > 2 * kTailBytes) text_.erase(0, text_.size() - kTailBytes);
}

std::vector<std::string> Tail::lines() const {
  std::string_view text(text_);
  if (text.size() > kTailBytes) text.remove_prefix(text.size() - kTailBytes);
  while (text.starts_with('\n')) text.remove_prefix(1);
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::vector<std::string> found;
  while (!text.empty() && found.size() < kTailLines) {
    const std::size_t newline = text.rfind('\n');
    const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    found.emplace_back(text.substr(begin));
    text = text.substr(0, begin == 0 ? 0 : newline);
  }
  std::reverse(found.begin(), found.end());
  return found;
}

}  // namespace fp8::launch
