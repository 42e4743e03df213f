/// Answers a key of another trainer and sets the flag of fp8-step that it becomes, in one call. Private to this crate.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "fp8/foreign/import.h"
#include "fp8/foreign/keys.h"

namespace fp8::foreign {

// Passes over the data above which a number of epochs is taken for a mistake.
inline constexpr double kMostEpochs = 1e6;
/// What a number of epochs must be.
inline constexpr const char* kEpochs = "needs a number above 0, at most 1000000";

/// A flag as on a command line: "--lr 0.0003", "--rslora", "--no-fp8-all-gather", "--filter a --filter b".
std::string flag_text(std::string_view flag, const json::Value& value);

/// The whole part of a number, at most 1e15.
std::int64_t whole_part(double x);

/// The product of positive sizes, at most 1e9.
std::int64_t product_of(std::initializer_list<std::int64_t> sizes);

/// The keys of one document of an import, with the import that they fill.
class Mapping {
 public:
  /// `import` must outlive this; `document` is one of its documents. Every path that is given begins below `prefix`
  /// ("model.", or nothing).
  Mapping(Import& import, const Document& document, std::string prefix = {});

  /// Whether the file has the key with a value other than null.
  bool has(std::string_view path) const { return keys_.has(path_of(path)); }
  /// The value of the key, or `fallback`; see Keys.
  std::string text(std::string_view path, std::string_view fallback) const;
  std::int64_t whole(std::string_view path, std::int64_t fallback) const;  ///< see text()
  double number(std::string_view path, double fallback) const;             ///< see text()
  bool flag(std::string_view path, bool fallback) const;                   ///< see text()

  /// The value of the key, or `fallback`; refuses numbers outside of [1, 1e9].
  std::int64_t positive(std::string_view path, std::int64_t fallback) const;
  /// The two numbers of an array, or the fallbacks, as fp8-step reads them: "0.9,0.95".
  std::string pair(std::string_view path, double first, double second) const;

  /// Answers the key, or adds `fallback` as the default of the trainer if the file lacks it; a class other than
  /// mapped and no_effect is kept for a default too.
  void answer(std::string_view path, const json::Value& fallback, Class cls, std::string here, std::string why = {});
  /// The same, and sets a flag of fp8-step, which is what the key is here.
  void set(std::string_view path, const json::Value& fallback, std::string_view flag, json::Value value,
           Class cls = Class::mapped, std::string why = {});
  /// Sets the number of ranks to that of the smallest mesh, unless a file or --ranks states it, and adds an answer that
  /// says so.
  void assume_ranks(std::int64_t smallest);
  /// Answers the key if the file has it.
  void note(std::string_view path, Class cls, std::string here, std::string why = {});
  /// Answers the key if the file has it, as one without counterpart here.
  void refuse(std::string_view path, std::string why) { note(path, Class::no_counterpart, {}, std::move(why)); }

  /// Answers the key if the file has it: mapped if it is `value`, the only one here, else without counterpart.
  void need(std::string_view path, double value, std::string why);

  /// The keys of the document, for what the above does not do; paths are whole.
  Keys& keys() { return keys_; }
  const Keys& keys() const { return keys_; }  ///< see keys()
  /// The import.
  Import& import() { return import_; }
  /// The document.
  const Document& document() const { return document_; }
  /// A path as the keys of the document have it.
  std::string path_of(std::string_view path) const { return prefix_ + std::string(path); }
  /// Paths begin below `prefix` from here on.
  void enter(std::string prefix) { prefix_ = std::move(prefix); }

 private:
  Import& import_;
  const Document& document_;
  Keys keys_;
  std::string prefix_;
};

}  // namespace fp8::foreign
