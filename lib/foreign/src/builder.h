// Builds a document from a stream of keys and values, within the bounds that read_document() promises. Private to the
// crate: the readers of YAML and TOML call it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/foreign/document.h"

namespace fp8::foreign {

// Most levels of maps and sequences.
inline constexpr std::size_t kMostLevels = 100;
// Most nodes, and most bytes of keys, paths and texts, after aliases are expanded.
inline constexpr std::size_t kMostNodes = 1'000'000, kMostBytes = std::size_t{64} << 20U;

// Throws Error `path: line N: reason`; without a line if it is 0.
[[noreturn]] void refuse_line(const std::string& path, int line, const std::string& reason);

// `path` of a member: `name` with dots and brackets preceded by a backslash, after a dot unless `path` is empty.
std::string member_path(const std::string& path, std::string_view name);
// `path` of an element.
std::string element_path(const std::string& path, std::size_t index);

// Counts nodes and bytes. Throws Error(path, line) if there are too many.
class Budget {
 public:
  explicit Budget(std::string path) : path_(std::move(path)) {}
  // Adds the nodes and the bytes of texts of `value`, and `more` bytes.
  void add(const json::Value& value, int line, std::size_t more = 0);

 private:
  std::string path_;
  std::size_t nodes_ = 0, bytes_ = 0;
};

// The number, switch, null or text that a plain scalar of YAML is.
json::Value scalar_value(const std::string& text);

// The readers. `document.path` is set; they set the rest.
void parse_yaml(std::string_view text, Document& document);
void parse_toml(std::string_view text, Document& document);

}  // namespace fp8::foreign
