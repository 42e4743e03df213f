/// Conversations, read from records in the formats that LLaMA-Factory calls alpaca, sharegpt and openai (messages). No
/// tools, no images, no preference pairs: images are refused, the others are named. Records are untrusted.
/// Source: LLaMA-Factory 0.9.5, data/converter.py; ms-swift, Custom-dataset (loss, label, rejected_response); OpenAI,
/// fine-tuning (weight); axolotl, conversation (train, training, train_detail); TRL, dataset formats.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::chat {

/// One turn.
struct Turn {
  std::string user;           ///< the user's text
  std::string answer;         ///< the assistant's text
  bool user_counts = true;    ///< false: the user's text is no target, also where prompts are
  bool answer_counts = true;  ///< false: the answer is no target
};

/// One conversation.
struct Conversation {
  std::string system;       ///< system prompt; empty if there is none
  std::vector<Turn> turns;  ///< turns, at least one
  /// What the record states besides, as parts of messages without repetition: `"tools" is not rendered`.
  std::vector<std::string> ignored = {};
};

/// Format of records.
enum class Format : std::uint8_t {
  alpaca,    ///< {"instruction", "input", "output", "system", "history"}
  sharegpt,  ///< {"conversations": [{"from": "human", "value": ...}, {"from": "gpt", ...}], "system"}
  messages,  ///< {"messages": [{"role": "user", "content": ...}, {"role": "assistant", ...}]}
};

/// "alpaca", "sharegpt", "messages".
std::string_view name_of(Format format);

/// Names of columns and roles that differ from those of the format, by LLaMA-Factory's names for them.
class Columns {
 public:
  /// All as the format has them.
  Columns() = default;
  /// Parses `name=column,...`. The names: prompt, query, response, history, system, messages; role_tag, content_tag,
  /// user_tag, assistant_tag, system_tag; text; format, whose value is that of name_of(). Nothing after the equals
  /// sign: records have no such column, or role, which prompt, query, history, system and system_tag may be. Throws
  /// Error `columns: reason`.
  explicit Columns(std::string_view assignments);
  /// The format, if it was set.
  std::optional<Format> format() const;
  /// The column or role for `name`, if it was set.
  std::optional<std::string> find(std::string_view name) const;
  /// The column or role for `name`, or `fallback`.
  std::string get(std::string_view name, std::string_view fallback) const;

 private:
  std::map<std::string, std::string, std::less<>> names_;
};

/// Names of the columns and roles of records of one format. An empty name: there is no such column.
struct Schema {
  Format format = Format::alpaca;                      ///< format of the records
  std::string prompt, query, response, history;        ///< columns of alpaca
  std::string messages;                                ///< column of sharegpt and messages
  std::string role, content;                           ///< keys of a message
  std::string user_role, assistant_role, system_role;  ///< values under `role`
  std::string system;                                  ///< column of the system prompt
};

/// The schema of `format` with the names in `columns`.
Schema schema_of(Format format, const Columns& columns);

/// The schema that the keys of a record imply: a column of messages decides, and the keys of its first message; else
/// the columns of alpaca. Nothing if the record has none of these columns.
std::optional<Schema> guess_schema(const json::Value& record, const Columns& columns);

/// Throws Error with the reason alone if a record has images, videos or sounds.
void check_only_text(const json::Object& record);

/// Reads a conversation. Throws Error with the reason alone, without the name of a file, if the record is not a
/// conversation of this schema in which user and assistant alternate, from the user to the assistant, if it has images,
/// videos or sounds, or weights of messages other than 0 and 1.
Conversation read_conversation(const json::Value& record, const Schema& schema);

/// Reads a conversation that ends with the user's turn, in a record of messages (sharegpt or messages); the last answer
/// is empty. Throws as read_conversation(), and if the last turn is the assistant's.
Conversation read_question(const json::Value& record, const Schema& schema);

}  // namespace fp8::chat
