/// Takes the keys of a configuration file, each once, with its answer.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/foreign/answer.h"
#include "fp8/foreign/document.h"

namespace fp8::foreign {

/// A row of a table of keys that need no code: their answer does not depend on other keys.
struct KeyRow {
  std::string_view glob;  ///< path of the key, `*` matches any part: "hub_*", "wandb.*"
  Class cls;              ///< the answer
  std::string_view here;  ///< see Answer
  std::string_view why;   ///< see Answer
};

/// The keys of one document. Getters read without answering; answer() answers. What is not answered at the end is
/// answered by rest().
class Keys {
 public:
  /// Answers are appended to `answers`. Both must outlive this.
  Keys(const Document& document, std::vector<Answer>& answers);

  /// Whether the file has the key with a value that is not null.
  bool has(std::string_view path) const;
  /// The value of the key; null if it is absent.
  const json::Value* value(std::string_view path) const;
  /// The value of the key as text, whole number, number or switch; nothing if it is absent or null. Numbers in quotes
  /// are numbers, "true" and "yes" in quotes are switches, as the trainers convert them. Throws Error(path, line, key,
  /// reason) for another type.
  std::optional<std::string> text(std::string_view path) const;
  std::optional<std::int64_t> whole(std::string_view path) const;  ///< see text()
  std::optional<double> number(std::string_view path) const;       ///< see text()
  std::optional<bool> flag(std::string_view path) const;           ///< see text()

  /// The path of the file.
  const std::string& file() const { return document_.path; }
  /// Whether the key was answered, by its own name or by that of a key that contains it.
  bool answered(std::string_view path) const;
  /// Answers a key of the file, once: a later answer to it has no effect. A key with members is answered by an answer
  /// to each key below it that has no members and was not answered before. Nothing happens if the file lacks the key.
  void answer(std::string_view path, Class cls, std::string here, std::string why = {});
  /// Throws Error(path, line, key, reason) for a key whose value cannot be meant.
  [[noreturn]] void refuse(std::string_view path, const std::string& reason) const;
  /// Answers the remaining keys by the first row that matches, of `rows` and then of `more`; a key that no row matches
  /// has no counterpart; the first 100 of these name the nearest known key if they look like a slip of the keyboard.
  void rest(std::span<const KeyRow> rows, std::span<const KeyRow> more = {});

 private:
  const Document& document_;
  std::vector<Answer>& answers_;
  std::set<std::string, std::less<>> answered_;
  mutable std::set<std::string, std::less<>> asked_;  // keys that a reader knows
  int suggestions_ = 0;                               // that were looked for

  std::string what(std::string_view path) const;
  void answer_leaves(const std::string& path, const json::Value& value, Class cls, const std::string& here,
                     const std::string& why);
  void rest_of(const std::string& path, const json::Value& value, std::span<const KeyRow> rows);
  std::string suggestion(const std::string& path, std::span<const KeyRow> rows);
  void answer_unknown(const std::string& path, std::span<const KeyRow> rows);
};

}  // namespace fp8::foreign
