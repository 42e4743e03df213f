// Each step writes from one buffer to another. Steps that do not change the text are skipped, so most texts are not
// copied.
#include "normalizer.h"

#include <algorithm>

#include "byte_alphabet.h"
#include "fp8/base/error.h"
#include "parts.h"

namespace fp8::token {
namespace {

// All characters below U+0300, the first with the UTF-8 lead byte 0xCC, are NFC and do not compose with each other.
bool may_compose(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0xCC; });
}

bool ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

std::string_view without_white_space(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    const Character c = character_at(text, 0);
    if (!is_white_space(c.code)) break;
    text.remove_prefix(c.length);
  }
  while (right && !text.empty()) {
    const std::size_t last = character_before(text, text.size());
    if (!is_white_space(character_at(text, last).code)) break;
    text = text.substr(0, last);
  }
  return text;
}

}  // namespace

Normalizer::Normalizer(const json::Value& part, const std::string& what) {
  for_each_part(part, "normalizers", what, [&](const json::Object& object, const std::string& type) {
    steps_.push_back(read(object, type, what));
  });
}

Normalizer::Step Normalizer::read(const json::Object& part, const std::string& type, const std::string& what) {
  if (type == "NFC") return {.kind = Kind::form, .form = Form::nfc};
  if (type == "NFD") return {.kind = Kind::form, .form = Form::nfd};
  if (type == "NFKC") return {.kind = Kind::form, .form = Form::nfkc};
  if (type == "NFKD") return {.kind = Kind::form, .form = Form::nfkd};
  if (type == "Lowercase") return {.kind = Kind::lower_case};
  if (type == "ByteLevel") return {.kind = Kind::bytes};
  if (type == "Strip") {
    return {
        .kind = Kind::strip, .left = part.get_bool("strip_left", what), .right = part.get_bool("strip_right", what)};
  }
  if (type == "Prepend") return {.kind = Kind::prepend, .content = part.get_string("prepend", what)};
  if (type != "Replace") refuse_type(what, type);
  return {.kind = Kind::replace, .replace = Replace(part, what)};
}

bool Normalizer::changes(const Step& step, std::string_view text, bool begins) {
  if (text.empty()) return false;
  if (step.kind == Kind::form) return step.form == Form::nfc ? may_compose(text) : !ascii(text);
  if (step.kind == Kind::prepend) return begins;
  return true;
}

void Normalizer::run(const Step& step, std::string_view text, std::size_t most, NormalizerScratch& scratch,
                     Matcher& matcher) {
  std::string& out = scratch.next;
  out.clear();
  const auto each = [&](const auto& call) {
    for (std::size_t at = 0; at < text.size();) {
      const Character c = character_at(text, at);
      call(c.code);
      at += c.length;
    }
  };
  switch (step.kind) {
    case Kind::form:
      append_normalized(out, text, step.form, scratch.codes);
      break;
    case Kind::lower_case:
      each([&](char32_t c) { append_lower_case(out, c); });
      break;
    case Kind::strip:
      out = without_white_space(text, step.left, step.right);
      break;
    case Kind::prepend:
      out.append(step.content).append(text);
      break;
    case Kind::replace:
      step.replace->append(out, text, matcher, most);
      break;
    case Kind::bytes:
      append_byte_characters(out, text);
      break;
  }
}

std::string_view Normalizer::apply(std::string_view text, bool begins, NormalizerScratch& scratch,
                                   Matcher& matcher) const {
  const std::size_t most = most_after_replacing(text.size());
  for (const Step& step : steps_) {
    if (!changes(step, text, begins)) continue;
    run(step, text, most, scratch, matcher);
    std::swap(scratch.text, scratch.next);
    text = scratch.text;
  }
  return text;
}

bool Normalizer::divisible() const {
  return std::all_of(steps_.begin(), steps_.end(), [](const Step& step) {
    return step.kind != Kind::strip && (!step.replace || step.replace->one_character());
  });
}

}  // namespace fp8::token
