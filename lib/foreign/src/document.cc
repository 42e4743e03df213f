// The format of a file, its bounds, and paths of keys. JSON is read by the crate json, YAML and TOML in sources of
// their own.
#include "fp8/foreign/document.h"

#include <algorithm>
#include <filesystem>

#include "builder.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/file_kind.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"

namespace fp8::foreign {
namespace {

constexpr std::size_t kMostFileBytes = std::size_t{4} << 20U;

// The first line that is neither empty nor a comment.
std::string_view first_line(std::string_view text) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
    if (!line.empty() && line.front() != '#' && line.front() != '\r') return line;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

Format format_of(const std::string& path, std::string_view text) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".yaml" || extension == ".yml") return Format::yaml;
  if (extension == ".toml") return Format::toml;
  if (extension == ".json") return Format::json;
  const std::string_view line = first_line(text);
  if (line.starts_with('{')) return Format::json;
  const std::size_t sign = line.find_first_of("=:");
  const bool assigns = sign != std::string_view::npos && line[sign] == '=';
  return line.starts_with('[') || assigns ? Format::toml : Format::yaml;
}

// The next part of a path: a name, or an index in brackets.
struct Part {
  std::string name;
  bool index = false;
  bool empty_name_follows = false;  // the path ends with a dot: the last name is empty
};

Part next_part(std::string_view& path) {
  Part part;
  if (path.starts_with('[')) {
    const std::size_t end = std::min(path.find(']'), path.size());
    part = {std::string(path.substr(1, end == 0 ? 0 : end - 1)), true};
    path.remove_prefix(std::min(end + 1, path.size()));
  } else {
    std::size_t i = 0;
    for (; i < path.size() && path[i] != '.' && path[i] != '['; ++i) {
      if (path[i] == '\\' && i + 1 < path.size()) ++i;
      part.name += path[i];
    }
    path.remove_prefix(i);
  }
  if (path.starts_with('.')) {
    path.remove_prefix(1);
    part.empty_name_follows = path.empty();
  }
  return part;
}

}  // namespace

void refuse_line(const std::string& path, int line, const std::string& reason) {
  throw Error(path + ": " + (line > 0 ? "line " + std::to_string(line) + ": " : "") + reason);
}

std::string member_path(const std::string& path, std::string_view name) {
  std::string all = path;
  if (!all.empty()) all += '.';
  for (const char c : name) {
    if (c == '.' || c == '[' || c == ']' || c == '\\') all += '\\';
    all += c;
  }
  return all;
}

std::string element_path(const std::string& path, std::size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

void Budget::add(const json::Value& value, int line, std::size_t more) {
  ++nodes_;
  bytes_ += more;
  if (value.is_string()) bytes_ += value.as_string().size();
  if (nodes_ > kMostNodes || bytes_ > kMostBytes)
    refuse_line(path_, line,
                "more than " + std::to_string(kMostNodes) + " values or " + human_bytes(kMostBytes) +
                    " after aliases are replaced by what they name");
  if (value.is_array())
    for (const json::Value& element : value.as_array()) add(element, line);
  if (value.is_object())
    for (const auto& [key, member] : value.as_object()) add(member, line, key.size());
}

Document parse_document(std::string_view text, Format format, const std::string& path) {
  Document document{path, json::Object(), {}};
  if (!valid_utf8(text)) throw Error(path + ": is not text in UTF-8");
  if (text.find('\0') != std::string_view::npos) throw Error(path + ": is not text: it has a zero byte");
  if (format == Format::yaml) parse_yaml(text, document);
  if (format == Format::toml) parse_toml(text, document);
  if (format == Format::json) document.root = json::parse(text, path, {.max_depth = static_cast<int>(kMostLevels)});
  if (!document.root.is_object())
    throw Error(path + ": not a configuration: " + std::string(json::type_name(document.root.type())) +
                " where keys with values are needed");
  return document;
}

Document read_document(const std::string& path) {
  if (is_stream(path)) throw Error(path + ": not a regular file");
  const std::string text = read_text_file(path, kMostFileBytes);
  return parse_document(text, format_of(path, text), path);
}

const json::Value* find(const Document& document, std::string_view path) {
  const json::Value* value = &document.root;
  while (!path.empty() && value != nullptr) {
    const Part part = next_part(path);
    if (part.index) {
      const auto i = parse_uint64(part.name);
      const bool there = value->is_array() && i && *i < value->as_array().size();
      value = there ? &value->as_array()[*i] : nullptr;
    } else {
      value = value->is_object() ? value->as_object().find(part.name) : nullptr;
    }
    if (part.empty_name_follows && value != nullptr) value = value->is_object() ? value->as_object().find("") : nullptr;
  }
  return value;
}

}  // namespace fp8::foreign
