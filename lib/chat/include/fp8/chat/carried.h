/// The chat template that a model carries: a text of Jinja beside its tokenizer, or the name of a known model. Jinja is
/// not run: a known text is recognized by its digest, and stands for the template of share/templates that lists it; a
/// text of stored.h contains its template.
/// Source: PreTrainedTokenizerBase of transformers 5 (the files, and which of them wins).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "fp8/chat/template.h"
#include "fp8/json/value.h"

namespace fp8::chat {

/// The name with which a template is declined.
inline constexpr std::string_view kNoTemplate = "none";

/// Digest of a text of Jinja, 32 hexadecimal digits: of its bytes without carriage returns, and without white space
/// before and after it.
std::string jinja_digest(std::string_view text);

/// The text of Jinja in `content`, the content of the file `path`: all of it, or "chat_template" of a JSON object
/// (tokenizer_config.json, chat_template.json), which may be a list of named texts with one called default. Nothing if
/// the file holds none. Throws Error `path: reason` for a "chat_template" that is neither.
std::optional<std::string> jinja_of(const std::string& content, const std::string& path);

/// A template in place of Jinja.
struct Equivalent {
  Template form;
  std::string differs;  ///< what it renders in another way; empty: nothing
};

/// The template that lists the digest of a text of Jinja; nothing for an unknown text.
std::optional<Equivalent> equivalent_of(const std::string& digest);

/// The template of which jinja_text() made a text of Jinja, or that lists its digest; nothing for an unknown text.
/// `path` is the file of the text, for messages.
std::optional<Equivalent> known_jinja(const std::string& jinja, const std::string& path);

/// A model's own chat template.
struct Carried {
  std::string where;                     ///< its file or key, for messages
  std::string digest;                    ///< of its Jinja; empty if the name of the model is all that is known
  std::optional<Equivalent> equivalent;  ///< nothing: the Jinja is not known
  std::string jinja{};                   ///< text of its Jinja; empty as `digest`
};

/// The template of a model with the files `texts` beside its tokenizer, by name, and the configuration `config`, which
/// may be null. `beside` precedes the names of files in messages. Nothing if it carries none. Throws Error for a file
/// that cannot be read.
std::optional<Carried> carried_template(const std::map<std::string, std::string>& texts, const json::Value& config,
                                        const std::string& beside);

/// Whether the Jinja that a model carries renders conversations as `form` does, but for Equivalent::differs.
bool stands_for(const Template& form, const std::optional<Carried>& own);

/// The template of a command, and a message for the user, which may be empty.
struct Choice {
  std::optional<Template> form;
  std::string note;
};

/// The template `given`, a name or a path, or, if none is given, that of the model; none with kNoTemplate. Throws Error
/// if the template cannot be read, and unless `any` if it is another than the model's.
Choice choose_template(const std::optional<std::string>& given, const std::optional<Carried>& own, bool any);

}  // namespace fp8::chat
