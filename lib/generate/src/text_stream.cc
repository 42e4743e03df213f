// Decodes a window of the last tokens with each new one, since a token's text depends on its neighbours: a character
// may have several tokens, and decoders remove a space at the beginning.
#include "fp8/generate/text_stream.h"

#include <algorithm>
#include <utility>

#include "fp8/token/utf8.h"

namespace fp8::generate {
namespace {

constexpr std::size_t kKept = 8;      // tokens of a window that are always kept
constexpr std::size_t kMost = 64;     // tokens of a window before it is trimmed
constexpr int kBytesOfCharacter = 4;  // most bytes of a character

// `text` without replacement characters at its end, of which the next token may make a character: one fewer than a
// character has bytes, at most.
std::string_view complete(std::string_view text) {
  for (int i = 1; i < kBytesOfCharacter && text.ends_with(token::kReplacement); ++i)
    text.remove_suffix(token::kReplacement.size());
  return text;
}

// Length of the longest end of `text` that a stop text begins with, but does not equal.
std::size_t begun(std::string_view text, const std::vector<std::string>& stops) {
  std::size_t longest = 0;
  for (const std::string& stop : stops) {
    for (std::size_t n = std::min(stop.size() - 1, text.size()); n > longest; --n)
      if (text.ends_with(std::string_view(stop).substr(0, n))) longest = n;
  }
  return longest;
}

}  // namespace

TextStream::TextStream(const Codec& codec, std::span<const std::uint32_t> prompt, std::vector<std::string> stops)
    : codec_(codec), stops_(std::move(stops)) {
  std::erase(stops_, std::string());
  window_.assign(prompt.begin(), prompt.end());
  const std::string text = codec_.decode(window_);
  decoded_ = complete(text);
  of_prompt_ = (text.size() - decoded_.size()) / token::kReplacement.size();
  trim(text);
}

void TextStream::hold(std::string_view text) {
  for (; of_prompt_ > 0 && text.starts_with(token::kReplacement); --of_prompt_)
    text.remove_prefix(token::kReplacement.size());
  if (!text.empty()) of_prompt_ = 0;
  held_ += text;
}

std::string TextStream::add(std::uint32_t id) {
  if (stopped_) return {};
  window_.push_back(id);
  const std::string text = codec_.decode(window_);
  const std::string_view ready = complete(text);
  if (!ready.starts_with(decoded_)) return {};  // earlier characters changed: they are part of one that is incomplete
  hold(ready.substr(decoded_.size()));
  decoded_ = ready;
  if (window_.size() > kMost) trim(text);
  return released();
}

std::string TextStream::finish() {
  if (stopped_) return {};
  const std::string text = codec_.decode(window_);
  const auto differ = std::ranges::mismatch(text, decoded_);
  hold({differ.in1, text.end()});
  std::string out = released();
  if (!stopped_) out += std::exchange(held_, {});
  return out;
}

std::string TextStream::released() {
  std::size_t stop = std::string::npos;
  for (const std::string& s : stops_) stop = std::min(stop, held_.find(s));
  stopped_ = stop != std::string::npos;
  const std::size_t end = stopped_ ? stop : held_.size() - begun(held_, stops_);
  std::string out = held_.substr(0, end);
  held_.erase(0, end);
  return out;
}

void TextStream::trim(std::string_view text) {
  if (decoded_.size() != text.size()) return;  // the last character is incomplete
  for (std::size_t kept = kKept; kept < window_.size() && kept < kKept + kBytesOfCharacter; ++kept) {
    std::string of_last = codec_.decode(std::span(window_).last(kept));
    if (!text.ends_with(of_last)) continue;  // begins inside of a character
    window_.erase(window_.begin(), window_.end() - static_cast<std::ptrdiff_t>(kept));
    decoded_ = std::move(of_last);
    return;
  }
}

}  // namespace fp8::generate
