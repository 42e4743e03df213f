/// Templates in other files: in a token file as a name or a text, and beside the tokenizer of a model as a text of
/// Jinja that begins with a comment from which the template is read back.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "fp8/chat/template.h"

namespace fp8::chat {

/// Most bytes of a template in a token file.
inline constexpr std::size_t kMostStoredBytes = std::size_t{32} << 10U;

/// A template as a token file has it.
struct StoredTemplate {
  std::string text;    ///< the name of a template of the suite, or a template as JSON
  std::string digest;  ///< form_digest() of the template
  /// Equal in both.
  bool operator==(const StoredTemplate&) const = default;
};

/// Whether two templates render all conversations alike and end answers with the same token.
bool same_form(const Template& a, const Template& b);

/// Digest of what same_form() compares, 32 hexadecimal digits.
std::string form_digest(const Template& form);

/// The form in which a token file has a template. Throws Error `path: reason` if it is longer than kMostStoredBytes.
StoredTemplate to_stored(const Template& form);

/// Whether `stored` has the form that to_stored() gives: a name or a JSON object, not too long, and a digest. The
/// template itself is not checked.
bool is_stored(const StoredTemplate& stored);

/// The template; `where` is what has it, for messages. Throws Error `where: reason` for an unknown name, for a text
/// that is no template, and for one of another digest, such as that of another version of the suite.
Template from_stored(const StoredTemplate& stored, const std::string& where);

/// A text of Jinja that renders conversations as `form` does, with the prompt of an answer after each text of the user.
/// The variables are those of transformers: messages, bos_token, eos_token, raise_exception. The same template gives
/// the same text.
std::string jinja_text(const Template& form);

/// The template that jinja_text() made `jinja` of; nothing if another text did. `path` is its file, for messages.
std::optional<Template> template_of_jinja(const std::string& jinja, const std::string& path);

/// Makes a text of Jinja the chat template among `texts`, the files beside a tokenizer by name, and removes others.
/// `beside` and errors: as with put_template().
void put_jinja(std::map<std::string, std::string>& texts, const std::string& jinja, const std::string& beside);

/// Makes `form` the chat template among `texts`, the files beside a tokenizer by name: removes other templates, and
/// sets the token that ends an answer, if the template names one, in tokenizer_config.json and special_tokens_map.json.
/// `beside` precedes the names of files in messages. Throws Error for a file that cannot be read.
void put_template(std::map<std::string, std::string>& texts, const Template& form, const std::string& beside);

/// Sets `eos_token` in tokenizer_config.json, which is made if it is missing, and, if it is there, in
/// special_tokens_map.json, which has precedence in some versions of transformers. Files that have it already stay as
/// they are. Throws as put_template().
void put_end_token(std::map<std::string, std::string>& texts, const std::string& token, const std::string& beside);

}  // namespace fp8::chat
