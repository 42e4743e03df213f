#include "pre_tokenizer.h"

#include <array>
#include <string_view>
#include <utility>

#include "fp8/base/error.h"
#include "parts.h"

namespace fp8::token {
namespace {

// Source: GPT-2, encoder.py.
constexpr std::string_view kByteLevel = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// The characters of Rust's char::is_ascii_punctuation and of the general category P.
constexpr std::string_view kPunctuation = R"([\p{P}$+<=>^`|~])";
// \w and \s of Rust's regex.
constexpr std::string_view kWhitespace =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+|[^\s\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+)";

constexpr std::array<std::pair<std::string_view, Behavior>, 5> kBehaviors = {
    {{"Isolated", Behavior::isolated},
     {"Removed", Behavior::removed},
     {"MergedWithPrevious", Behavior::merged_with_previous},
     {"MergedWithNext", Behavior::merged_with_next},
     {"Contiguous", Behavior::contiguous}}};

Behavior behavior_of(std::string_view name, const std::string& what) {
  for (const auto& [known, behavior] : kBehaviors)
    if (known == name) return behavior;
  throw Error(what + ": the behavior " + shown(name) + " is not supported");
}

Stage split(Expression expression, Behavior behavior, bool invert = false) {
  return {.kind = Stage::Kind::split, .expression = std::move(expression), .behavior = behavior, .invert = invert};
}

Stage read_split(const json::Object& part, const std::string& what) {
  const json::Object& pattern = part.get_object("pattern", what);
  Expression expression = pattern.contains("String") ? Expression::of_text(pattern.get_string("String", what), what)
                                                     : Expression::of_pattern(pattern.get_string("Regex", what), what);
  return split(std::move(expression), behavior_of(part.get_string("behavior", what), what),
               part.get_bool("invert", what));
}

Stage read_metaspace(const json::Object& part, const std::string& what) {
  Stage stage{.kind = Stage::Kind::metaspace, .replacement = get_character(part, "replacement", what)};
  const std::string scheme = part.get_string_or("prepend_scheme", "always", what);
  const bool adds = part.get_bool_or("add_prefix_space", true, what);
  if (scheme != "first" && scheme != "never" && scheme != "always") {
    throw Error(what + ": the prepend_scheme " + shown(scheme) + " is not supported");
  }
  if (scheme == "first") stage.scheme = Scheme::first;
  if (scheme == "never" || !adds) stage.scheme = Scheme::never;
  return stage;
}

}  // namespace

std::vector<Stage> read_pre_tokenizer(const json::Value& part, const std::string& name) {
  std::vector<Stage> stages;
  for_each_part(part, "pretokenizers", name, [&](const json::Object& object, const std::string& type) {
    const std::string what = name + ": " + shown(type);
    if (type == "ByteLevel") {
      if (object.get_bool_or("add_prefix_space", true, what)) stages.push_back({.kind = Stage::Kind::prefix_space});
      if (object.get_bool_or("use_regex", true, what)) {
        stages.push_back(split(Expression::of_pattern(kByteLevel, what), Behavior::isolated));
      }
      stages.push_back({.kind = Stage::Kind::bytes});
    } else if (type == "Metaspace") {
      stages.push_back(read_metaspace(object, what));
      if (object.get_bool_or("split", true, what)) {
        const Stage& replaced = stages.back();
        stages.push_back(split(Expression::of_text(replaced.replacement, what), Behavior::merged_with_next));
      }
    } else if (type == "Split") {
      stages.push_back(read_split(object, what));
    } else if (type == "Digits") {
      const bool each = object.get_bool("individual_digits", what);
      stages.push_back(
          split(Expression::of_pattern(R"(\p{N})", what), each ? Behavior::isolated : Behavior::contiguous));
    } else if (type == "Punctuation") {
      stages.push_back(split(Expression::of_pcre2(kPunctuation),
                             behavior_of(object.get_string_or("behavior", "Isolated", what), what)));
    } else if (type == "Whitespace") {
      stages.push_back(split(Expression::of_pattern(kWhitespace, what), Behavior::removed, true));
    } else if (type == "WhitespaceSplit") {
      stages.push_back(split(Expression::of_pattern(R"(\s)", what), Behavior::removed));
    } else {
      refuse_type(name, type);
    }
  });
  return stages;
}

}  // namespace fp8::token
