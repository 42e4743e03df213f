// Reads tokenizer.json and implements look-ups, decoding and division.
#include "fp8/token/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <unordered_set>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/json/json.h"
#include "parts.h"
#include "state.h"

namespace fp8::token {
namespace {

constexpr json::Limits kLimits{.max_depth = 24, .max_bytes = std::size_t{256} << 20U};

const json::Object& checked_object(const json::Value& value, const std::string& name) {
  if (!value.is_object()) throw Error(name + ": not an object");
  return value.as_object();
}

const json::Value& part_of(const json::Object& file, std::string_view key) {
  static const json::Value null;
  const json::Value* const value = file.find(key);
  return value == nullptr ? null : *value;
}

const json::Object& checked(const json::Object& file, const std::string& path) {
  if (const std::string version = file.get_string_or("version", "1.0", path); version != "1.0") {
    throw Error(path + ": version " + shown(version) + " is not supported");
  }
  return file;
}

// Removes a final step `bytes`: the model then reads bytes directly.
bool take_last_bytes(std::vector<Stage>& stages) {
  if (stages.empty() || stages.back().kind != Stage::Kind::bytes) return false;
  stages.pop_back();
  return true;
}

AddedToken read_added(const json::Value& value, const std::string& what) {
  if (!value.is_object()) throw Error(what + ": not an object");
  const json::Object& object = value.as_object();
  const std::int64_t id = object.get_int("id", what);
  if (id < 0 || id >= kMaxIds) throw Error(what + ": an id is not from 0 to " + std::to_string(kMaxIds - 1));
  AddedToken token{.id = static_cast<std::uint32_t>(id), .content = object.get_string("content", what)};
  token.single_word = object.get_bool("single_word", what);
  token.lstrip = object.get_bool("lstrip", what);
  token.rstrip = object.get_bool("rstrip", what);
  token.normalized = object.get_bool("normalized", what);
  token.special = object.get_bool("special", what);
  return token;
}

// The id of an added token is that of the vocabulary entry with its content, or else the next id after all others, as
// in Hugging Face's library. The id in the file must be the same, since other programs may read that one.
std::vector<AddedToken> read_all_added(const json::Value& list, const Bpe& bpe, const Normalizer& normalizer,
                                       const std::string& what) {
  std::vector<AddedToken> all;
  if (list.is_null()) return all;
  if (!list.is_array()) throw Error(what + ": not an array");
  std::size_t next = bpe.size();
  std::unordered_set<std::string> seen;
  NormalizerScratch scratch;
  Matcher matcher;
  for (const json::Value& value : list.as_array()) {
    AddedToken token = read_added(value, what);
    if (token.content.empty()) continue;
    if (!seen.insert(token.content).second) throw Error(what + ": " + shown(token.content) + " occurs twice");
    const std::optional<std::uint32_t> known = bpe.find(token.content);
    const std::size_t id = known ? *known : next++;
    if (token.id != id) {
      throw Error(what + ": " + shown(token.content) + " has id " + std::to_string(token.id) +
                  ", but its id by the vocabulary is " + std::to_string(id));
    }
    token.pattern = token.normalized ? normalizer.apply(token.content, true, scratch, matcher) : token.content;
    all.push_back(std::move(token));
  }
  return all;
}

bool looks_behind(const std::vector<Stage>& stages) {
  return std::any_of(stages.begin(), stages.end(),
                     [](const Stage& stage) { return stage.expression && stage.expression->looks_behind(); });
}

// Whether a step prepends a character to pieces.
bool begins_pieces(const std::vector<Stage>& stages) {
  return std::any_of(stages.begin(), stages.end(), [](const Stage& stage) {
    return stage.kind == Stage::Kind::prefix_space ||
           (stage.kind == Stage::Kind::metaspace && stage.scheme == Scheme::always);
  });
}

// Whether a character may compose with the one before: marks, and vowels and final consonants of Hangul.
bool joins(char32_t code) { return is_mark(code) || (code >= 0x1160 && code <= 0x11FF); }

bool white(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

std::string tokenizer_file(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    std::string file = path + "/tokenizer.json";
    if (std::filesystem::exists(file, ignored)) return file;
    throw Error(path + ": has no tokenizer.json" + conversion_advice(path));
  }
  if (path.ends_with(".model"))
    throw Error(path + ": not a tokenizer.json but a SentencePiece model" + conversion_advice(parent_directory(path)));
  return path;
}

std::string conversion_advice(const std::string& folder) {
  for (const auto& [name, package] : {std::pair{"tokenizer.model", " and sentencepiece"}, {"vocab.json", ""}}) {
    std::error_code ignored;
    if (!std::filesystem::exists(folder + "/" + name, ignored)) continue;
    return "; the Python packages transformers" + std::string(package) + " make one of its " + name +
           ": python3 -c \"from transformers import AutoTokenizer as A; A.from_pretrained('" + folder +
           "').save_pretrained('" + folder + "')\"";
  }
  return "";
}

Tokenizer::State::State(const json::Object& file, const std::string& from)
    : path(from),
      normalizer(part_of(checked(file, from), "normalizer"), from + ": normalizer"),
      stages(read_pre_tokenizer(part_of(file, "pre_tokenizer"), from + ": pre_tokenizer")),
      bytes(take_last_bytes(stages)),
      bpe(file.get_object("model", from), bytes, from + ": model"),
      added(read_all_added(part_of(file, "added_tokens"), bpe, normalizer, from + ": added_tokens")),
      in_text(added, false),
      in_normalized(added, true),
      post(read_post_processor(part_of(file, "post_processor"), from + ": post_processor")),
      decoder(part_of(file, "decoder"), from + ": decoder"),
      vocab_size(bpe.end()) {
  const bool divisible = normalizer.divisible() && !looks_behind(stages);
  divides_spaces = divisible && in_text.may_divide(true) && in_normalized.may_divide(true);
  divides_lines = divisible && in_text.may_divide(false) && in_normalized.may_divide(false) && !begins_pieces(stages);
  for (std::size_t i = 0; i < added.size(); ++i) {
    by_content.emplace(added[i].content, i);
    by_id.emplace(added[i].id, i);
    vocab_size = std::max<std::int64_t>(vocab_size, std::int64_t{added[i].id} + 1);
  }
  for (const auto* ids : {&post.before, &post.behind}) {
    for (const std::uint32_t id : *ids) {
      if (id >= vocab_size)
        throw Error(path + ": post_processor: id " + std::to_string(id) + " is not in the vocabulary");
    }
  }
  if (vocab_size == 0) throw Error(path + ": the vocabulary is empty");
}

Tokenizer::Tokenizer(const std::string& path) {
  const std::string file = tokenizer_file(path);
  const json::Value value = json::parse_file(file, kLimits);
  state_ = std::make_unique<const State>(checked_object(value, file), file);
}

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}

Tokenizer Tokenizer::parse(std::string_view text, const std::string& name) {
  const json::Value value = json::parse(text, name, kLimits);
  return Tokenizer(std::make_unique<const State>(checked_object(value, name), name));
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

const std::string& Tokenizer::path() const { return state_->path; }

std::int64_t Tokenizer::vocab_size() const { return state_->vocab_size; }

std::optional<std::uint32_t> Tokenizer::id_of(std::string_view content) const {
  const auto found = state_->by_content.find(content);
  return found != state_->by_content.end() ? state_->added[found->second].id : state_->bpe.find(content);
}

std::string Tokenizer::decode(std::span<const std::uint32_t> ids, bool skip_special) const {
  const State& s = *state_;
  std::vector<std::string> texts;
  texts.reserve(ids.size());
  for (const std::uint32_t id : ids) {
    const auto added = s.by_id.find(id);
    if (added != s.by_id.end()) {
      // Hugging Face's library does not treat a token as special if its normalized text differs from its content.
      const AddedToken& token = s.added[added->second];
      if (!skip_special || !token.special || token.pattern != token.content) texts.push_back(token.pattern);
    } else if (const std::string* text = s.bpe.text_of(id)) {
      texts.push_back(*text);
    }
  }
  return s.decoder.decode(std::move(texts));
}

std::optional<std::size_t> Tokenizer::division(std::string_view text) const {
  const State& s = *state_;
  if (!s.divides_spaces && !s.divides_lines) return std::nullopt;
  for (std::size_t at = text.size(); at-- > 1;) {
    if (s.divides_spaces && text[at] == ' ' && !white(text[at - 1]) && at + 1 < text.size() && !white(text[at + 1])) {
      if (s.in_text.divides(text, at, true)) return at;
    }
    if (!s.divides_lines || text[at - 1] != '\n') continue;
    const std::size_t behind = at + character_length(text[at]);
    if (behind >= text.size() || behind + character_length(text[behind]) > text.size()) continue;
    const char32_t here = character_at(text, at).code;
    if (!is_white_space(here) && !joins(here) && !joins(character_at(text, behind).code)) return at;
  }
  return std::nullopt;
}

}  // namespace fp8::token
