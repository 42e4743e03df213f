/// Prompts: text, conversations rendered with a chat template, or token ids, as JSON Lines records too.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/chat/document.h"
#include "fp8/generate/codec.h"
#include "fp8/json/value.h"

namespace fp8::generate {

/// Token ids of a prompt.
using Ids = std::vector<std::uint32_t>;

/// Parses `5,6,7`. Throws Error with the reason alone.
Ids parse_ids(std::string_view text);

/// Makes token ids of prompts.
class PromptReader {
 public:
  /// `codec` may be null: then only ids are prompts; else it must outlive the object. `form`: template of
  /// conversations. Throws Error if the template does not fit the tokenizer.
  PromptReader(const Codec* codec, std::optional<chat::Template> form);

  /// Ids of a text; with a template, of a conversation with the text as its only question. Throws Error.
  Ids of_text(const std::string& text) const;
  /// Ids of a record {"text": ...}, {"ids": [...]}, {"messages": [...]} or {"conversations": [...]}. Throws Error with
  /// the reason alone.
  Ids of_record(const json::Value& record) const;
  /// Sets a function that is called with each of Conversation::ignored of a record.
  void on_ignored(std::function<void(const std::string&)> call) { ignored_ = std::move(call); }

  /// The template's end of sequence; empty: it has none.
  const std::string& template_end() const { return template_end_; }

 private:
  const Codec& codec() const;
  Ids render(const chat::Conversation& conversation) const;

  const Codec* codec_;
  std::optional<chat::Renderer> renderer_;
  std::string template_end_;
  std::function<void(const std::string&)> ignored_;
};

}  // namespace fp8::generate
