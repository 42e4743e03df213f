// Reads conversations. Every reason names the column, and for a message its number, counted from 1.
#include "fp8/chat/conversation.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/text.h"

namespace fp8::chat {
namespace {

constexpr std::array<std::string_view, 3> kFormats = {"alpaca", "sharegpt", "messages"};
constexpr std::array<std::string_view, 13> kNames = {
    "prompt",      "query",    "response",      "history",    "system", "messages", "role_tag",
    "content_tag", "user_tag", "assistant_tag", "system_tag", "text",   "format"};

std::string quoted(std::string_view name) { return "\"" + terminal_safe(excerpt(name)) + "\""; }

// Names that may be empty: columns that a record need not have, and the role of a message that it need not have.
constexpr std::array<std::string_view, 5> kOptional = {"prompt", "query", "history", "system", "system_tag"};

// The value of a column; nullptr if it is missing or null, or has no name.
const json::Value* column(const json::Object& record, const std::string& name) {
  const json::Value* const value = name.empty() ? nullptr : record.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

const std::string& text_of(const json::Value& value, const std::string& what) {
  if (!value.is_string()) throw Error(what + " is not a string, but " + std::string(json::type_name(value.type())));
  return value.as_string();
}

// The text of a column that may be missing.
std::string optional_text(const json::Object& record, const std::string& name) {
  const json::Value* const value = column(record, name);
  return value == nullptr ? std::string() : text_of(*value, quoted(name));
}

// The value of a column that must be there.
const json::Value& needed(const json::Object& record, const std::string& name, const std::string& where = {}) {
  const json::Value* const value = record.find(name);
  if (value == nullptr) throw Error(where + quoted(name) + " is missing");
  if (value->is_null()) throw Error(where + quoted(name) + " is null");
  return *value;
}

const json::Array& list_of(const json::Value& value, const std::string& name) {
  if (!value.is_array()) throw Error(quoted(name) + " is not a list");
  return value.as_array();
}

void read_history(const json::Object& record, const std::string& name, Conversation& out) {
  const json::Value* const history = column(record, name);
  if (history == nullptr) return;
  std::size_t number = 0;
  for (const json::Value& entry : list_of(*history, name)) {
    const std::string what = quoted(name) + " entry " + std::to_string(++number);
    if (!entry.is_array() || entry.as_array().size() != 2) throw Error(what + " is not a [user, assistant] pair");
    const json::Array& pair = entry.as_array();
    out.turns.push_back({text_of(pair[0], what), text_of(pair[1], what)});
  }
}

Conversation read_alpaca(const json::Object& record, const Schema& schema) {
  Conversation out;
  if (column(record, schema.prompt) == nullptr && column(record, schema.query) == nullptr) {
    throw Error("both " + quoted(schema.prompt) + " and " + quoted(schema.query) + " are missing");
  }
  std::string user = optional_text(record, schema.prompt);
  const std::string query = optional_text(record, schema.query);
  if (!user.empty() && !query.empty()) user += '\n';
  user += query;
  if (!record.contains(schema.response) && record.contains("chosen"))
    throw Error(quoted(schema.response) + " is missing",
                {{"columns", "response=chosen to train on the chosen answers"}});
  const std::string& answer = text_of(needed(record, schema.response), quoted(schema.response));
  read_history(record, schema.history, out);
  out.turns.push_back({std::move(user), answer});
  out.system = optional_text(record, schema.system);
  return out;
}

// Whether a value states something.
bool states(const json::Value& value) {
  if (value.is_string()) return !value.as_string().empty() && value.as_string() != "[]";
  if (value.is_array()) return !value.as_array().empty();
  if (value.is_object()) return !value.as_object().empty();
  return !value.is_null() && value != json::Value(false);
}

bool has(const json::Object& object, std::string_view key) {
  const json::Value* const value = object.find(key);
  return value != nullptr && states(*value);
}

// Keys with a meaning for other programs, and what becomes of it here.
struct Ignored {
  std::string_view key, text;
};
constexpr std::string_view kUnrendered = "is not rendered", kPreference = "is not used: preferences are not learned";
constexpr std::array<Ignored, 8> kOfRecords = {{{"tools", kUnrendered},
                                                {"functions", kUnrendered},
                                                {"documents", kUnrendered},
                                                {"chosen", kPreference},
                                                {"rejected", kPreference},
                                                {"rejected_response", kPreference},
                                                {"rejected_messages", kPreference},
                                                {"rejected_conversations", kPreference}}};
constexpr std::array<Ignored, 6> kOfMessages = {{{"tool_calls", kUnrendered},
                                                 {"function_call", kUnrendered},
                                                 {"reasoning_content", kUnrendered},
                                                 {"reasoning", kUnrendered},
                                                 {"thinking", kUnrendered},
                                                 {"train_detail", "is not used: all of the message counts"}}};
constexpr std::array<std::string_view, 6> kMedia = {"images", "image", "videos", "video", "audios", "audio"};
constexpr std::array<std::string_view, 2> kVerdicts = {"label", "kto_tag"};
// Keys of a message that say whether it counts.
constexpr std::array<std::string_view, 7> kLoss = {"loss",        "weight",     "train",        "training",
                                                   "loss_weight", "loss_scale", "train_on_turn"};

void add_ignored(std::string text, Conversation& out) {
  if (std::ranges::find(out.ignored, text) == out.ignored.end()) out.ignored.push_back(std::move(text));
}

void add_ignored(const json::Object& object, std::span<const Ignored> keys, Conversation& out) {
  for (const Ignored& known : keys)
    if (has(object, known.key)) add_ignored(quoted(known.key) + " " + std::string(known.text), out);
}

// Adds what a record states besides its conversation. Columns of the schema are none of this.
void add_ignored_of_record(const json::Object& record, const Schema& schema, Conversation& out) {
  json::Object other;
  for (const auto& [key, value] : record)
    if (key != schema.prompt && key != schema.query && key != schema.response && key != schema.messages)
      other.set(key, value);
  add_ignored(other, kOfRecords, out);
  for (const std::string_view key : kVerdicts)
    if (const json::Value* const value = other.find(key);
        value != nullptr && *value == json::Value(false) && out.turns.back().answer_counts)
      add_ignored(quoted(key) + " is false, but the answer is trained", out);
}

// Throws if a content is a list of parts.
void check_parts(const json::Value& content, const std::string& what) {
  if (!content.is_array()) return;
  for (const json::Value& part : content.as_array()) {
    const std::string type = part.is_object() ? part.as_object().get_string_or("type", "text", what) : "text";
    if (type != "text") throw Error(what + " has a part of type " + quoted(type) + ", but only text is read");
  }
  throw Error(what + " is not a string, but array; join the texts of its parts into one string");
}

// Whether the message counts, as one of its keys says; nothing if none does.
std::optional<bool> counts(const json::Object& message, const std::string& where) {
  std::optional<bool> all;
  for (const std::string_view key : kLoss) {
    const json::Value* const value = message.find(key);
    if (value == nullptr || value->is_null()) continue;
    const bool yes = *value == json::Value(true) || *value == json::Value(1) || *value == json::Value(1.0);
    const bool no = *value == json::Value(false) || *value == json::Value(0) || *value == json::Value(0.0);
    if (!yes && !no) throw Error(where + quoted(key) + " is neither 0 nor 1, true nor false");
    all = all.value_or(true) && yes;
  }
  return all;
}

// A message's role and content, and whether it counts, if it says so.
struct Message {
  const std::string* role;
  std::string content;
  std::optional<bool> counts;
};

// Adds what the message states besides to `out`.
Message read_message(const json::Value& value, std::size_t number, const Schema& schema, Conversation& out) {
  const std::string where = "message " + std::to_string(number) + ": ";
  if (!value.is_object()) throw Error(where + "is not an object");
  const json::Object& object = value.as_object();
  const std::string& role = text_of(needed(object, schema.role, where), where + quoted(schema.role));
  const std::string what = where + quoted(schema.content);
  const json::Value& content = needed(object, schema.content, where);
  check_parts(content, what);
  for (const std::string_view key : kMedia)
    if (has(object, key)) throw Error(where + "has " + quoted(key) + ", but only text is read");
  add_ignored(object, kOfMessages, out);
  return {&role, text_of(content, what), counts(object, where)};
}

// Throws unless `role` may be that of the message `number`, the `turn`th after a system message.
void check_role(const std::string& role, std::size_t number, std::size_t turn, const Schema& schema) {
  const std::string& expected = turn % 2 == 0 ? schema.user_role : schema.assistant_role;
  if (role == expected) return;
  const std::string where = "message " + std::to_string(number) + ": ";
  if (!schema.system_role.empty() && role == schema.system_role)
    throw Error(where + "a system message after the first message");
  if (role != schema.user_role && role != schema.assistant_role) {
    const std::string known = schema.system_role.empty()
                                  ? schema.user_role + " and " + schema.assistant_role
                                  : schema.user_role + ", " + schema.assistant_role + " and " + schema.system_role;
    throw Error(where + "the role " + quoted(role) + " is not known (" + known + " are)",
                {{"columns", "to name others"}});
  }
  throw Error(where + (turn == 0 ? "the first turn is not the user's" : "user and assistant do not alternate"));
}

// `open`: the last turn is the user's, without an answer.
Conversation read_messages(const json::Object& record, const Schema& schema, bool open) {
  Conversation out;
  const json::Array& messages = list_of(needed(record, schema.messages), schema.messages);
  std::size_t first = 0;
  if (!messages.empty()) {
    Message message = read_message(messages[0], 1, schema, out);
    if (!schema.system_role.empty() && *message.role == schema.system_role) {
      out.system = std::move(message.content);
      first = 1;
    }
  }
  if (first == 0) out.system = optional_text(record, schema.system);
  if (first == messages.size()) {
    throw Error(quoted(schema.messages) + (first == 0 ? " has no turns" : " has a system prompt, but no turns"));
  }
  for (std::size_t i = first; i < messages.size(); ++i) {
    Message message = read_message(messages[i], i + 1, schema, out);
    check_role(*message.role, i + 1, i - first, schema);
    if ((i - first) % 2 == 0) {
      out.turns.push_back({.user = std::move(message.content),
                           .answer = {},
                           .user_counts = message.counts.value_or(true),
                           .answer_counts = false});
      if (message.counts == true)
        add_ignored("a message of the user says that it counts, as it does with --mask all alone", out);
    } else {
      out.turns.back().answer = std::move(message.content);
      out.turns.back().answer_counts = message.counts.value_or(true);
    }
  }
  const bool ends_with_user = (messages.size() - first) % 2 != 0;
  if (ends_with_user && !open) throw Error("the last turn is the user's: there is no answer to learn");
  if (!ends_with_user && open) throw Error("the last turn is the assistant's: there is nothing to answer");
  return out;
}

// The format of the messages in a column, by the keys of the first; `fallback` if there is none.
Format format_of_messages(const json::Value& messages, Format fallback) {
  if (!messages.is_array() || messages.as_array().empty() || !messages.as_array()[0].is_object()) return fallback;
  const json::Object& first = messages.as_array()[0].as_object();
  if (first.contains("role") == first.contains("from")) return fallback;
  return first.contains("role") ? Format::messages : Format::sharegpt;
}

}  // namespace

std::string_view name_of(Format format) { return kFormats.at(static_cast<std::size_t>(format)); }

Columns::Columns(std::string_view assignments) {
  while (!assignments.empty()) {
    const std::size_t comma = std::min(assignments.find(','), assignments.size());
    const std::string_view one = assignments.substr(0, comma);
    assignments.remove_prefix(std::min(comma + 1, assignments.size()));
    const std::size_t equal = one.find('=');
    if (equal == std::string_view::npos) throw Error("columns: " + quoted(one) + " is not NAME=COLUMN");
    const std::string_view name = one.substr(0, equal);
    if (std::ranges::find(kNames, name) == kNames.end()) {
      std::string known;
      for (const std::string_view n : kNames) known += (known.empty() ? "" : ", ") + std::string(n);
      throw Error("columns: " + quoted(name) + " is not a name (" + known + ")");
    }
    if (equal + 1 == one.size() && std::ranges::find(kOptional, name) == kOptional.end())
      throw Error("columns: " + quoted(one) + " names nothing, but " + std::string(name) + " is needed");
    if (name == "format" && std::ranges::find(kFormats, one.substr(equal + 1)) == kFormats.end())
      throw Error("columns: " + quoted(one) + " is not a format (alpaca, sharegpt, messages)");
    names_.insert_or_assign(std::string(name), std::string(one.substr(equal + 1)));
  }
}

std::optional<Format> Columns::format() const {
  const auto found = std::ranges::find(kFormats, get("format", ""));
  return found == kFormats.end() ? std::nullopt : std::optional(static_cast<Format>(found - kFormats.begin()));
}

std::optional<std::string> Columns::find(std::string_view name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? std::nullopt : std::optional(found->second);
}

std::string Columns::get(std::string_view name, std::string_view fallback) const {
  return find(name).value_or(std::string(fallback));
}

Schema schema_of(Format format, const Columns& columns) {
  const bool openai = format == Format::messages;
  Schema schema;
  schema.format = format;
  schema.prompt = columns.get("prompt", "instruction");
  schema.query = columns.get("query", "input");
  schema.response = columns.get("response", "output");
  schema.history = columns.get("history", "history");
  schema.messages = columns.get("messages", openai ? "messages" : "conversations");
  schema.role = columns.get("role_tag", openai ? "role" : "from");
  schema.content = columns.get("content_tag", openai ? "content" : "value");
  schema.user_role = columns.get("user_tag", openai ? "user" : "human");
  schema.assistant_role = columns.get("assistant_tag", openai ? "assistant" : "gpt");
  schema.system_role = columns.get("system_tag", "system");
  schema.system = columns.get("system", openai ? "" : "system");
  return schema;
}

std::optional<Schema> guess_schema(const json::Value& record, const Columns& columns) {
  if (!record.is_object()) return std::nullopt;
  const json::Object& object = record.as_object();
  const std::optional<std::string> named = columns.find("messages");
  for (const auto& [name, usual] : {std::pair{named.value_or("messages"), Format::messages},
                                    std::pair{named.value_or("conversations"), Format::sharegpt}}) {
    const json::Value* const messages = object.find(name);
    if (messages == nullptr) continue;
    Schema schema = schema_of(format_of_messages(*messages, usual), columns);
    schema.messages = name;
    return schema;
  }
  const Schema alpaca = schema_of(Format::alpaca, columns);
  const bool is_alpaca = object.contains(alpaca.prompt) || object.contains(alpaca.response);
  return is_alpaca ? std::optional(alpaca) : std::nullopt;
}

void check_only_text(const json::Object& record) {
  for (const std::string_view key : kMedia)
    if (has(record, key)) throw Error("the record has " + quoted(key) + ", but only text is read");
}

Conversation read_conversation(const json::Value& record, const Schema& schema) {
  if (!record.is_object()) throw Error("the record is not an object");
  check_only_text(record.as_object());
  Conversation out = schema.format == Format::alpaca ? read_alpaca(record.as_object(), schema)
                                                     : read_messages(record.as_object(), schema, false);
  add_ignored_of_record(record.as_object(), schema, out);
  return out;
}

Conversation read_question(const json::Value& record, const Schema& schema) {
  if (!record.is_object()) throw Error("the record is not an object");
  if (schema.format == Format::alpaca) throw Error("the record has no messages");
  check_only_text(record.as_object());
  Conversation out = read_messages(record.as_object(), schema, true);
  add_ignored_of_record(record.as_object(), schema, out);
  return out;
}

}  // namespace fp8::chat
