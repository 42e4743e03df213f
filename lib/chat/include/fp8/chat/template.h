/// Chat templates, fp8-template(5): how a conversation becomes pieces of text and special tokens. Templates are data
/// files; those in share/templates follow LLaMA-Factory's templates of the same names. Jinja is not run, see carried.h;
/// no tools.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/json/value.h"
#include "fp8/token/tokenizer.h"

namespace fp8::chat {

/// Where a part of a piece comes from.
enum class PartKind : std::uint8_t {
  literal,  ///< the template
  content,  ///< the system prompt, in Template::system only
  system,   ///< Template::system, in the first turn; empty without a system prompt
  user,     ///< the user's text of this turn
  answer,   ///< the assistant's text of this turn
};

/// A part of a piece.
struct Part {
  PartKind kind = PartKind::literal;  ///< where it comes from
  std::string text = {};              ///< text of a literal
  /// Equal in all members.
  bool operator==(const Part&) const = default;
};

/// A piece: one special token, or text that is tokenized by itself.
struct Piece {
  /// The kind of a piece.
  enum class Kind : std::uint8_t { text, bos, eos };
  Kind kind = Kind::text;        ///< kind of this piece
  std::vector<Part> parts = {};  ///< parts of a text in their order
  /// Equal in all members.
  bool operator==(const Piece&) const = default;
};

/// A text of Jinja that renders conversations as a template does.
struct KnownJinja {
  std::string digest;   ///< jinja_digest() of the text
  std::string differs;  ///< what the template renders in another way, as part of a message; empty: nothing
};

/// A chat template.
struct Template {
  std::string name;                         ///< name in share/templates, or the path
  std::string path;                         ///< path of the file, for messages
  std::string eos;                          ///< token that replaces the tokenizer's end of sequence; empty: none does
  std::vector<std::string> tokens;          ///< texts that must be tokens of the tokenizer
  std::string default_system;               ///< system prompt of a conversation without one
  std::optional<std::vector<Part>> system;  ///< form of a system prompt, if the template has a place for one
  std::vector<Piece> begin;                 ///< before the first prompt
  std::vector<Piece> prompt;                ///< prompt of each turn
  std::vector<Piece> answer;                ///< answer of each turn
  std::vector<KnownJinja> jinja;            ///< texts that it stands for
  std::vector<std::string> models;          ///< globs of the names of models that have it
};

/// Names of the templates in share/templates, sorted.
std::vector<std::string> template_names();

/// Reads a template: the file `name_or_path` if it has a slash, ends in .json or is a file, else the one of that name
/// in share/templates. A file with a known text of Jinja is the template that stands for it. Throws Error `path:
/// reason`; for an unknown name it lists the known ones, and for unknown Jinja it says what to do.
Template read_template(const std::string& name_or_path);

/// The template that `value`, the content of the file `path`, describes. Throws Error `path: reason`.
Template parse_template(const json::Value& value, const std::string& path);

/// Special tokens that a tokenizer_config.json names.
struct SpecialTokens {
  std::string path;                ///< path of the file, for messages
  std::optional<std::string> bos;  ///< begins a sequence
  std::optional<std::string> eos;  ///< ends a sequence
  std::optional<std::string> pad;  ///< pads a sequence
};

/// The special tokens that tokenizer_config.json among `texts`, files by name, names; without it all are missing.
/// `beside` precedes the name of the file in messages. Throws Error `path: reason`.
SpecialTokens special_tokens_of(const std::map<std::string, std::string>& texts, const std::string& beside);

/// Reads tokenizer_config.json in the folder of `tokenizer`; without the file all tokens are missing. Throws Error
/// `path: reason`.
SpecialTokens read_special_tokens(const token::Tokenizer& tokenizer);

/// The special tokens in `value`, the content of the tokenizer_config.json `path`. Throws Error `path: reason`.
SpecialTokens parse_special_tokens(const json::Value& value, const std::string& path);

}  // namespace fp8::chat
