// The steps, each applied to the list of token texts as in Hugging Face's decoders.
#include "decoder.h"

#include <numeric>
#include <utility>

#include "byte_alphabet.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "parts.h"
#include "unicode.h"

namespace fp8::token {
namespace {

std::string joined(const std::vector<std::string>& tokens) {
  return std::accumulate(tokens.begin(), tokens.end(), std::string(),
                         [](std::string all, const std::string& token) { return std::move(all += token); });
}

// The byte 0xNN if `token` is "<0xNN>".
std::optional<char> byte_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const bool letter = (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f');
    if (!letter && (c < '0' || c > '9')) return std::nullopt;
    value = value * 16 + (letter ? (c & 0xF) + 9 : c - '0');
  }
  return static_cast<char>(value);
}

// Replaces runs of byte tokens by their text, or by one U+FFFD per byte if the run is not UTF-8.
void fall_back(std::vector<std::string>& tokens) {
  std::vector<std::string> out;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    if (valid_utf8(run)) {
      out.push_back(run);
    } else {
      out.insert(out.end(), run.size(), std::string(kReplacement));
    }
    run.clear();
  };
  for (std::string& token : tokens) {
    if (const std::optional<char> byte = byte_token(token)) {
      run.push_back(*byte);
    } else {
      flush();
      out.push_back(std::move(token));
    }
  }
  flush();
  tokens = std::move(out);
}

std::string_view without_content(std::string_view token, std::string_view content, std::int64_t start,
                                 std::int64_t stop) {
  for (; start > 0 && token.starts_with(content); --start) token.remove_prefix(content.size());
  for (; stop > 0 && token.ends_with(content); --stop) token.remove_suffix(content.size());
  return token;
}

// `token` with each `content` replaced by `by`.
std::string exchanged(std::string_view token, std::string_view content, std::string_view by) {
  std::string out;
  std::size_t at = 0;
  for (std::size_t found; (found = token.find(content, at)) != std::string_view::npos; at = found + content.size()) {
    out += token.substr(at, found - at);
    out += by;
  }
  out += token.substr(at);
  return out;
}

}  // namespace

Decoder::Decoder(const json::Value& part, const std::string& what) {
  for_each_part(part, "decoders", what, [&](const json::Object& object, const std::string& type) {
    steps_.push_back(read(object, type, what));
  });
}

Decoder::Step Decoder::read(const json::Object& part, const std::string& type, const std::string& what) {
  if (type == "ByteLevel") return {.kind = Kind::byte_level};
  if (type == "ByteFallback") return {.kind = Kind::byte_fallback};
  if (type == "Fuse") return {.kind = Kind::fuse};
  if (type == "Metaspace") {
    const bool never = part.get_string_or("prepend_scheme", "always", what) == "never" ||
                       !part.get_bool_or("add_prefix_space", true, what);
    return {.kind = Kind::metaspace, .content = get_character(part, "replacement", what), .drops_first = !never};
  }
  if (type == "Strip") {
    Step step{.kind = Kind::strip,
              .content = get_character(part, "content", what),
              .start = part.get_int("start", what),
              .stop = part.get_int("stop", what)};
    if (step.start < 0 || step.stop < 0) throw Error(what + ": Strip: a negative count");
    return step;
  }
  if (type != "Replace") refuse_type(what, type);
  return {.kind = Kind::replace, .replace = Replace(part, what)};
}

void Decoder::run(const Step& step, std::size_t most, std::vector<std::string>& tokens, Matcher& matcher) {
  switch (step.kind) {
    case Kind::byte_level: {
      std::string bytes;
      for (const std::string& token : tokens) append_bytes_of(bytes, token);
      tokens = {replace_invalid(bytes)};
      break;
    }
    case Kind::byte_fallback:
      fall_back(tokens);
      break;
    case Kind::fuse:
      tokens = {joined(tokens)};
      break;
    case Kind::metaspace:
      for (std::size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = exchanged(tokens[i], step.content, i == 0 && step.drops_first ? "" : " ");
      break;
    case Kind::replace:
      for (std::string& token : tokens) {
        std::string out;
        step.replace->append(out, token, matcher, most);
        token = std::move(out);
      }
      break;
    case Kind::strip:
      for (std::string& token : tokens)
        token = std::string(without_content(token, step.content, step.start, step.stop));
      break;
  }
}

std::string Decoder::decode(std::vector<std::string> tokens) const {
  if (steps_.empty()) {
    std::string text;
    for (std::size_t i = 0; i < tokens.size(); ++i) text.append(i == 0 ? "" : " ").append(tokens[i]);
    return text;
  }
  std::size_t bytes = 0;
  for (const std::string& token : tokens) bytes += token.size();
  Matcher matcher;
  for (const Step& step : steps_) run(step, most_after_replacing(bytes), tokens, matcher);
  return joined(tokens);
}

}  // namespace fp8::token
