// Templates as text: a JSON object with the keys that determine what is rendered, always in one order.
#include "fp8/chat/stored.h"

#include <algorithm>
#include <span>

#include "fp8/base/digest.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/chat/carried.h"
#include "fp8/json/json.h"

namespace fp8::chat {
namespace {

constexpr json::Limits kStoredLimits{.max_depth = 8, .max_bytes = kMostStoredBytes};
constexpr json::Limits kCommentLimits{.max_depth = 8, .max_bytes = 6 * kMostStoredBytes};  // \u0023 is a byte there
constexpr json::Limits kFileLimits{.max_depth = 24, .max_bytes = std::size_t{16} << 20U};
constexpr std::size_t kMostName = 64;
constexpr const char *kJinja = "chat_template.jinja", *kJinjaInJson = "chat_template.json",
                     *kJinjaKey = "chat_template";
constexpr const char *kTokenizerConfig = "tokenizer_config.json", *kSpecialTokensMap = "special_tokens_map.json";

std::string with_doubled_braces(const std::string& text) {
  std::string out;
  for (const char c : text) out.append(c == '{' || c == '}' ? 2 : 1, c);
  return out;
}

std::string written(const std::vector<Part>& parts) {
  std::string text;
  for (const Part& part : parts) {
    if (part.kind == PartKind::literal) text += with_doubled_braces(part.text);
    if (part.kind == PartKind::content) text += "{content}";
    if (part.kind == PartKind::system) text += "{system}";
    if (part.kind == PartKind::user) text += "{user}";
    if (part.kind == PartKind::answer) text += "{answer}";
  }
  return text;
}

json::Array pieces_of(const std::vector<Piece>& pieces) {
  json::Array out;
  for (const Piece& piece : pieces)
    out.emplace_back(piece.kind == Piece::Kind::bos   ? "{bos}"
                     : piece.kind == Piece::Kind::eos ? "{eos}"
                                                      : written(piece.parts));
  return out;
}

json::Array jinja_of(const std::vector<KnownJinja>& all) {
  json::Array out;
  for (const KnownJinja& known : all)
    out.push_back(json::object({{"digest", known.digest}, {"differs", known.differs}}));
  return out;
}

// The template as JSON: all of it but descriptions and names of models, or only what same_form() compares.
std::string template_text(const Template& form, bool all) {
  json::Value value = json::object({});
  json::Object& object = value.as_object();
  if (!form.eos.empty()) object.set("eos", form.eos);
  if (all && !form.tokens.empty()) object.set("tokens", json::Array(form.tokens.begin(), form.tokens.end()));
  if (all && !form.jinja.empty()) object.set("jinja", jinja_of(form.jinja));
  if (!form.default_system.empty()) object.set("default_system", form.default_system);
  if (form.system) object.set("system", written(*form.system));
  object.set("begin", pieces_of(form.begin));
  object.set("prompt", pieces_of(form.prompt));
  object.set("answer", pieces_of(form.answer));
  return json::dump(value);
}

// The name of the template of the suite that is the same; empty if there is none.
std::string name_in_suite(const Template& form) {
  for (const std::string& name : template_names())
    if (same_form(read_template(name), form)) return name;
  return "";
}

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= kMostName && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

bool is_object(const std::string& text) { return text.starts_with('{'); }

// A text in Jinja.
std::string jinja_string(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else {
      if (c == '\'' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + "'";
}

// A sum in Jinja of the parts, with `system` for the form of the system prompt.
std::string sum_of(const std::vector<Part>& parts, const std::string& system) {
  std::string sum;
  for (const Part& part : parts) {
    if (!sum.empty()) sum += " + ";
    if (part.kind == PartKind::literal) sum += jinja_string(part.text);
    if (part.kind == PartKind::content) sum += "system";
    if (part.kind == PartKind::system) sum += system;
    if (part.kind == PartKind::user || part.kind == PartKind::answer) sum += "message['content']";
  }
  return sum;
}

std::string statements_of(const std::vector<Piece>& pieces, const Template& form, const std::string& system) {
  std::string out;
  for (const Piece& piece : pieces) {
    const std::string eos = form.eos.empty() ? "eos_token" : jinja_string(form.eos);
    const std::string value = piece.kind == Piece::Kind::bos   ? "bos_token"
                              : piece.kind == Piece::Kind::eos ? eos
                                                               : sum_of(piece.parts, system);
    if (!value.empty()) out += "{{- " + value + " }}\n";
  }
  return out;
}

// The JSON object in the file `name`, or an empty one.
json::Value object_in(const std::map<std::string, std::string>& texts, const char* name, const std::string& beside) {
  const auto found = texts.find(name);
  if (found == texts.end()) return json::object({});
  json::Value value = json::parse(found->second, beside + name, kFileLimits);
  if (!value.is_object()) throw Error(beside + name + ": not an object");
  return value;
}

std::string file_text(const json::Value& value) { return json::dump(value, 2) + "\n"; }

// The beginning and the end of the comment with the template. No # is in between.
constexpr std::string_view kComment = "{#- fp8-template(5) ", kCommentEnd = " #}\n";

}  // namespace

bool same_form(const Template& a, const Template& b) {
  return a.eos == b.eos && a.default_system == b.default_system && a.system == b.system && a.begin == b.begin &&
         a.prompt == b.prompt && a.answer == b.answer;
}

std::string form_digest(const Template& form) {
  const std::string text = template_text(form, false);
  return digest_of(std::as_bytes(std::span(text))).hex();
}

StoredTemplate to_stored(const Template& form) {
  const std::string name = name_in_suite(form);
  StoredTemplate stored{name.empty() ? template_text(form, true) : name, form_digest(form)};
  if (stored.text.size() > kMostStoredBytes)
    throw Error(form.path + ": longer than " + std::to_string(kMostStoredBytes) + " bytes, which no token file holds");
  return stored;
}

bool is_stored(const StoredTemplate& stored) {
  return (is_name(stored.text) || is_object(stored.text)) && stored.text.size() <= kMostStoredBytes &&
         Digest::from_hex(stored.digest).has_value();
}

Template from_stored(const StoredTemplate& stored, const std::string& where) {
  if (!is_stored(stored)) throw Error(where + ": not a template");
  const std::vector<std::string> names = template_names();
  if (!is_object(stored.text) && std::ranges::find(names, stored.text) == names.end())
    throw Error(where + ": this version has no template " + stored.text);
  Template form = is_object(stored.text) ? parse_template(json::parse(stored.text, where, kStoredLimits), where)
                                         : read_template(stored.text);
  if (form_digest(form) != stored.digest)
    throw Error(where + ": the digest is not that of the template" +
                (is_object(stored.text) ? "" : " " + stored.text + " of this version"));
  return form;
}

std::string jinja_text(const Template& form) {
  Template described = form;
  if (!name_in_suite(form).empty()) described.jinja.clear();
  std::string json = template_text(described, true);
  for (std::size_t at = 0; (at = json.find('#', at)) != std::string::npos;) json.replace(at, 1, "\\u0023");
  std::string out = std::string(kComment) + json + std::string(kCommentEnd) +
                    "{%- set turns = messages %}\n"
                    "{%- set system = '' %}\n"
                    "{%- if messages and messages[0]['role'] == 'system' %}\n"
                    "{%- set system = messages[0]['content'] %}\n"
                    "{%- set turns = messages[1:] %}\n"
                    "{%- endif %}\n";
  if (!form.default_system.empty())
    out += "{%- if not system %}\n{%- set system = " + jinja_string(form.default_system) + " %}\n{%- endif %}\n";
  if (form.system) {
    out += "{%- set opening = '' %}\n{%- if system %}\n{%- set opening = " + sum_of(*form.system, "") +
           " %}\n{%- endif %}\n";
  } else {
    out += "{%- if system %}\n{{- raise_exception('there is no place for a system message') }}\n{%- endif %}\n";
  }
  return out + statements_of(form.begin, form, "opening") +
         "{%- for message in turns %}\n"
         "{%- if message['role'] == 'user' %}\n" +
         statements_of(form.prompt, form, "(opening if loop.first else '')") +
         "{%- elif message['role'] == 'assistant' %}\n" + statements_of(form.answer, form, "") +
         "{%- else %}\n"
         "{{- raise_exception('the roles are user and assistant, and system first') }}\n"
         "{%- endif %}\n"
         "{%- endfor %}\n";
}

std::optional<Template> template_of_jinja(const std::string& jinja, const std::string& path) {
  const std::size_t at = jinja.find_first_not_of(" \t\r\n");
  if (at == std::string::npos || !jinja.substr(at).starts_with(kComment)) return std::nullopt;
  const std::size_t begin = at + kComment.size(), end = jinja.find('#', begin);
  if (end == std::string::npos) return std::nullopt;
  try {
    Template form = parse_template(json::parse(jinja.substr(begin, end - begin), path, kCommentLimits), path);
    if (jinja_digest(jinja_text(form)) != jinja_digest(jinja)) return std::nullopt;  // changed since
    const std::string name = name_in_suite(form);
    return name.empty() ? form : read_template(name);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void put_jinja(std::map<std::string, std::string>& texts, const std::string& jinja, const std::string& beside) {
  texts[kJinja] = jinja;
  texts.erase(kJinjaInJson);
  json::Value config = object_in(texts, kTokenizerConfig, beside);
  if (config.as_object().erase(kJinjaKey)) texts[kTokenizerConfig] = file_text(config);
}

void put_template(std::map<std::string, std::string>& texts, const Template& form, const std::string& beside) {
  put_jinja(texts, jinja_text(form), beside);
  if (!form.eos.empty()) put_end_token(texts, form.eos, beside);
}

void put_end_token(std::map<std::string, std::string>& texts, const std::string& token, const std::string& beside) {
  for (const char* name : {kTokenizerConfig, kSpecialTokensMap}) {
    json::Value config = object_in(texts, name, beside);
    const bool made = !texts.contains(name);
    if (made && name == kSpecialTokensMap) continue;
    if (made) config.as_object().set("tokenizer_class", "PreTrainedTokenizerFast");
    if (parse_special_tokens(config, beside + name).eos == token) continue;
    config.as_object().set("eos_token", token);
    texts[name] = file_text(config);
  }
}

}  // namespace fp8::chat
