// Reads templates: JSON objects whose texts have placeholders in braces.
#include "fp8/chat/template.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <initializer_list>
#include <utility>

#include "fp8/base/digest.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/share.h"
#include "fp8/base/text.h"
#include "fp8/chat/carried.h"
#include "fp8/json/json.h"

namespace fp8::chat {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = std::size_t{16} << 20U;  // of a file, such as a tokenizer_config.json
constexpr json::Limits kTemplateLimits{.max_depth = 8, .max_bytes = std::size_t{1} << 20U};
constexpr json::Limits kConfig{.max_depth = 24, .max_bytes = std::size_t{16} << 20U};
constexpr const char* kSpecialTokens = "tokenizer_config.json";
constexpr std::size_t kMostPieces = 1000;
constexpr std::array<std::string_view, 10> kKeys = {"about", "eos",    "tokens", "default_system", "system",
                                                    "begin", "prompt", "answer", "jinja",          "models"};
constexpr std::array<std::pair<std::string_view, PartKind>, 4> kPlaceholders = {{{"content", PartKind::content},
                                                                                 {"system", PartKind::system},
                                                                                 {"user", PartKind::user},
                                                                                 {"answer", PartKind::answer}}};

// Splits `text` at its placeholders, of which `allowed` may occur. `{{` and `}}` are braces.
std::vector<Part> split(std::string_view text, std::initializer_list<PartKind> allowed, const std::string& what) {
  std::vector<Part> parts;
  std::string literal;
  const auto end_literal = [&] {
    if (!literal.empty()) parts.push_back({PartKind::literal, std::exchange(literal, {})});
  };
  while (!text.empty()) {
    const char c = text.front();
    const bool doubled = text.size() > 1 && text[1] == c;
    if ((c != '{' && c != '}') || doubled) {
      literal += c;
      text.remove_prefix(c == '{' || c == '}' ? 2 : 1);
      continue;
    }
    const std::size_t close = text.find('}');
    if (c == '}' || close == std::string_view::npos) {
      throw Error(what + ": a brace stands alone (write {{ or }} for one in the text)");
    }
    const std::string_view name = text.substr(1, close - 1);
    const auto* const kind = std::ranges::find(kPlaceholders, name, &std::pair<std::string_view, PartKind>::first);
    if (kind == kPlaceholders.end() || std::ranges::find(allowed, kind->second) == allowed.end()) {
      throw Error(what + ": {" + terminal_safe(excerpt(name)) + "} has no meaning here");
    }
    end_literal();
    parts.push_back({kind->second, {}});
    text.remove_prefix(close + 1);
  }
  end_literal();
  return parts;
}

std::size_t count(const std::vector<Piece>& pieces, PartKind kind) {
  std::size_t n = 0;
  for (const Piece& piece : pieces) n += static_cast<std::size_t>(std::ranges::count(piece.parts, kind, &Part::kind));
  return n;
}

const std::string& entry_text(const json::Value& value, const std::string& what) {
  if (!value.is_string()) throw Error(what + ": not a string");
  return value.as_string();
}

const json::Array& entries_of(const json::Object& object, std::string_view key, const std::string& path) {
  const json::Array& list = object.get_array(key, path);
  if (list.size() > kMostPieces) throw Error(path + ": " + std::string(key) + ": too many entries");
  return list;
}

std::vector<Piece> read_pieces(const json::Object& object, std::string_view key,
                               std::initializer_list<PartKind> allowed, const std::string& path) {
  std::vector<Piece> pieces;
  const std::string what = path + ": " + std::string(key);
  for (const json::Value& value : entries_of(object, key, path)) {
    const std::string& text = entry_text(value, what);
    if (text == "{bos}") {
      pieces.push_back({.kind = Piece::Kind::bos});
    } else if (text == "{eos}") {
      pieces.push_back({.kind = Piece::Kind::eos});
    } else {
      pieces.push_back({.parts = split(text, allowed, what)});
    }
  }
  return pieces;
}

std::vector<std::string> read_texts(const json::Object& object, std::string_view key, const std::string& path) {
  std::vector<std::string> texts;
  if (!object.contains(key)) return texts;
  for (const json::Value& text : entries_of(object, key, path))
    texts.push_back(entry_text(text, path + ": " + std::string(key)));
  return texts;
}

std::vector<KnownJinja> read_jinja(const json::Object& object, const std::string& path) {
  std::vector<KnownJinja> all;
  if (!object.contains("jinja")) return all;
  const std::string what = path + ": jinja";
  for (const json::Value& value : entries_of(object, "jinja", path)) {
    if (!value.is_object()) throw Error(what + ": an entry is not an object");
    const json::Object& entry = value.as_object();
    entry.get_string_or("of", "", what);
    all.push_back({entry.get_string("digest", what), entry.get_string_or("differs", "", what)});
    if (!Digest::from_hex(all.back().digest))
      throw Error(what + ": digest: " + terminal_safe(excerpt(all.back().digest)) + " is not 32 hexadecimal digits");
  }
  return all;
}

// The template that stands for the Jinja in the file `path`.
Template known_template(const std::string& jinja, const std::string& path) {
  std::optional<Equivalent> known = known_jinja(jinja, path);
  if (known) {
    known->form.path = path;
    return std::move(known->form);
  }
  std::string names;
  for (const std::string& name : template_names()) names += (names.empty() ? "" : ", ") + name;
  throw Error(path + ": Jinja that is not known (digest " + jinja_digest(jinja) +
                  "); describe it in a file as fp8-template(5) says, which may list the digest",
              {{"template", "with a name: " + names}});
}

// Throws unless each text of a turn has exactly one place.
void check_places(const Template& t) {
  if (count(t.prompt, PartKind::user) != 1) throw Error(t.path + ": prompt: {user} must be there once");
  if (count(t.answer, PartKind::answer) != 1) throw Error(t.path + ": answer: {answer} must be there once");
  const std::size_t places = count(t.begin, PartKind::system) + count(t.prompt, PartKind::system);
  if (places != (t.system ? 1 : 0)) {
    throw Error(t.path + (t.system ? ": {system} must be there once, in begin or in prompt"
                                   : ": {system} needs \"system\", the form of a system prompt"));
  }
  if (t.system && std::ranges::count(*t.system, PartKind::content, &Part::kind) != 1) {
    throw Error(t.path + ": system: {content} must be there once");
  }
  if (!t.default_system.empty() && !t.system) throw Error(t.path + ": default_system needs \"system\"");
}

// The text of a special token: a string, or an object with its content; nothing if null.
std::optional<std::string> special_token(const json::Object& config, const std::string& key, const std::string& path) {
  const json::Value* value = config.find(key);
  if (value != nullptr && value->is_object()) value = value->as_object().find("content");
  if (value == nullptr || value->is_null()) return std::nullopt;
  return entry_text(*value, path + ": \"" + key + "\"");
}

}  // namespace

std::vector<std::string> template_names() { return share_names("templates", ".json"); }

Template read_template(const std::string& name_or_path) {
  const std::string path = share_file("templates", "template", name_or_path);
  const std::string content = read_text_file(path, kMostBytes);
  if (const std::optional<std::string> jinja = jinja_of(content, path)) return known_template(*jinja, path);
  Template form = parse_template(json::parse(content, path, kTemplateLimits), path);
  form.name = name_or_path;
  return form;
}

Template parse_template(const json::Value& value, const std::string& path) {
  if (!value.is_object()) throw Error(path + ": not an object");
  const json::Object& object = value.as_object();
  for (const auto& [key, ignored] : object) {
    if (std::ranges::find(kKeys, key) == kKeys.end()) {
      throw Error(path + ": \"" + terminal_safe(excerpt(key)) + "\" is not a key of a template");
    }
  }
  Template t;
  t.name = t.path = path;
  object.get_string_or("about", "", path);
  t.eos = object.get_string_or("eos", "", path);
  t.default_system = object.get_string_or("default_system", "", path);
  t.tokens = read_texts(object, "tokens", path);
  t.models = read_texts(object, "models", path);
  t.jinja = read_jinja(object, path);
  if (object.contains("system")) {
    t.system = split(object.get_string("system", path), {PartKind::content}, path + ": system");
  }
  t.begin = read_pieces(object, "begin", {PartKind::system}, path);
  t.prompt = read_pieces(object, "prompt", {PartKind::system, PartKind::user}, path);
  t.answer = read_pieces(object, "answer", {PartKind::answer}, path);
  check_places(t);
  return t;
}

SpecialTokens parse_special_tokens(const json::Value& value, const std::string& path) {
  if (!value.is_object()) throw Error(path + ": not an object");
  const auto token = [&](const char* key) { return special_token(value.as_object(), key, path); };
  return {.path = path, .bos = token("bos_token"), .eos = token("eos_token"), .pad = token("pad_token")};
}

SpecialTokens special_tokens_of(const std::map<std::string, std::string>& texts, const std::string& beside) {
  const std::string path = beside + kSpecialTokens;
  const auto found = texts.find(kSpecialTokens);
  if (found == texts.end()) return {.path = path, .bos = {}, .eos = {}, .pad = {}};
  return parse_special_tokens(json::parse(found->second, path, kConfig), path);
}

SpecialTokens read_special_tokens(const token::Tokenizer& tokenizer) {
  const std::string beside = parent_directory(tokenizer.path()) + "/", path = beside + kSpecialTokens;
  std::error_code error;
  if (!fs::exists(path, error) && !error) return special_tokens_of({}, beside);
  return parse_special_tokens(json::parse_file(path, kConfig), path);
}

}  // namespace fp8::chat
