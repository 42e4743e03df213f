// Recognizes chat templates of Jinja, and compares them with those that are asked for.
#include "fp8/chat/carried.h"

#include <algorithm>
#include <span>

#include "fp8/base/digest.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/chat/stored.h"
#include "fp8/json/json.h"

namespace fp8::chat {
namespace {

constexpr std::string_view kWhite = " \t\r\n";
constexpr const char* kKey = "chat_template";
constexpr const char* kModelName = "_name_or_path";  // of config.json
constexpr json::Limits kContentLimits{.max_depth = 24, .max_bytes = std::size_t{16} << 20U};

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kWhite);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kWhite) - first + 1);
}

// Whether a text begins as JSON objects do, and as no Jinja does.
bool is_json(std::string_view text) {
  text = trimmed(text);
  if (text.empty() || text.front() != '{') return false;
  const std::size_t next = text.find_first_not_of(kWhite, 1);
  return next != std::string_view::npos && (text[next] == '"' || text[next] == '}');
}

// The text called default in a list of named templates; nothing without one.
std::optional<std::string> default_of(const json::Array& list, const std::string& what) {
  for (const json::Value& entry : list) {
    if (!entry.is_object()) throw Error(what + ": an entry is not an object");
    if (entry.as_object().get_string("name", what) == "default") return entry.as_object().get_string("template", what);
  }
  return std::nullopt;
}

// The last component of the name of a model, without which of several copies it is.
std::string_view last_part(std::string_view name) {
  while (name.ends_with('/')) name.remove_suffix(1);
  return name.substr(name.rfind('/') + 1);  // npos + 1 is 0
}

// A template of the suite that knows models of this name.
std::optional<Template> form_of_model(std::string_view model) {
  for (const std::string& name : template_names()) {
    Template form = read_template(name);
    if (std::ranges::any_of(form.models, [&](const std::string& glob) { return glob_match(glob, model); })) return form;
  }
  return std::nullopt;
}

// A model's own template in a message. One that is not of the suite has the name of its file.
std::string named(const Carried& own) {
  const std::string& name = own.equivalent->form.name;
  return name == own.where ? "the template in " + terminal_safe(own.where)
                           : "template " + name + ", that of " + terminal_safe(own.where);
}

std::string lists_note(const Equivalent& own) { return own.differs.empty() ? "" : "; " + own.differs; }

}  // namespace

std::string jinja_digest(std::string_view text) {
  std::string bytes(trimmed(text));
  std::erase(bytes, '\r');
  return digest_of(std::as_bytes(std::span(bytes))).hex();
}

std::optional<std::string> jinja_of(const std::string& content, const std::string& path) {
  if (!is_json(content)) {
    const bool marked = content.find("{%") != std::string::npos || content.find("{{") != std::string::npos;
    return marked || path.ends_with(".jinja") ? std::optional(content) : std::nullopt;
  }
  const json::Value value = json::parse(content, path, kContentLimits);
  const json::Value* const found = value.as_object().find(kKey);
  if (found == nullptr || found->is_null()) return std::nullopt;
  const std::string what = path + ": \"" + kKey + "\"";
  if (found->is_array()) return default_of(found->as_array(), what);
  if (!found->is_string()) throw Error(what + ": not a string");
  return found->as_string();
}

std::optional<Equivalent> equivalent_of(const std::string& digest) {
  for (const std::string& name : template_names()) {
    Template form = read_template(name);
    const auto found = std::ranges::find(form.jinja, digest, &KnownJinja::digest);
    if (found == form.jinja.end()) continue;
    std::string differs = found->differs;
    return Equivalent{std::move(form), std::move(differs)};
  }
  return std::nullopt;
}

std::optional<Equivalent> known_jinja(const std::string& jinja, const std::string& path) {
  std::optional<Template> own = template_of_jinja(jinja, path);
  return own ? std::optional(Equivalent{std::move(*own), ""}) : equivalent_of(jinja_digest(jinja));
}

std::optional<Carried> carried_template(const std::map<std::string, std::string>& texts, const json::Value& config,
                                        const std::string& beside) {
  for (const char* file : {"chat_template.jinja", "tokenizer_config.json", "chat_template.json"}) {
    const auto found = texts.find(file);
    if (found == texts.end()) continue;
    const std::optional<std::string> jinja = jinja_of(found->second, beside + file);
    if (!jinja) continue;
    return Carried{beside + file, jinja_digest(*jinja), known_jinja(*jinja, beside + file), *jinja};
  }
  if (!config.is_object()) return std::nullopt;
  const json::Value* const name = config.as_object().find(kModelName);
  if (name == nullptr || !name->is_string()) return std::nullopt;
  const std::string_view model = last_part(name->as_string());
  std::optional<Template> form = form_of_model(model);
  if (!form) return std::nullopt;
  return Carried{std::string(model), "", Equivalent{std::move(*form), ""}};
}

bool stands_for(const Template& form, const std::optional<Carried>& own) {
  if (!own || own->digest.empty()) return false;
  return own->equivalent ? same_form(form, own->equivalent->form)
                         : std::ranges::find(form.jinja, own->digest, &KnownJinja::digest) != form.jinja.end();
}

Choice choose_template(const std::optional<std::string>& given, const std::optional<Carried>& own, bool any) {
  if (given == kNoTemplate) return {};
  if (!given) {
    if (!own || !own->equivalent) return {};
    return {own->equivalent->form, named(*own) + lists_note(*own->equivalent)};
  }
  Template form = read_template(*given);
  if (!own || any) return {std::move(form), ""};
  if (!own->equivalent) {
    const std::string note = stands_for(form, own)
                                 ? ""
                                 : terminal_safe(own->where) + ": Jinja that is not known, so template " + *given +
                                       " is not compared with it";
    return {std::move(form), note};
  }
  if (!same_form(form, own->equivalent->form)) {
    const std::string& name = own->equivalent->form.name;
    throw Error("template " + *given + ": the model has another, " +
                    (name == own->where ? "that in " + name : name + " (" + own->where + ")"),
                {{"any-template", "to use it all the same"}});
  }
  return {std::move(form), ""};
}

}  // namespace fp8::chat
