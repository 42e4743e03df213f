/// A configuration file of another trainer as a JSON value: YAML, TOML or JSON.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "fp8/json/value.h"

namespace fp8::foreign {

/// Format of a configuration file.
enum class Format : std::uint8_t { yaml, toml, json };

/// A parsed file. A key is named by its path: names joined by dots, indices in brackets: "datasets[0].type". A dot or a
/// bracket inside a name is preceded by a backslash.
struct Document {
  std::string path;                              ///< the file
  json::Value root;                              ///< an object; members in the order of the file
  std::map<std::string, int, std::less<>> line;  ///< line of each key, from 1, by its path
};

/// Parses a file. Its format is given by its extension (.yaml, .yml, .toml, .json); for any other, by its content.
/// YAML scalars have the types of the core schema of YAML 1.2 as PyYAML's safe loader reads them too where both agree;
/// `5e-5`, which PyYAML reads as a string, is a number, as every trainer converts it. Anchors and merge keys (`<<`) are
/// resolved.
/// Throws Error with the path, the line and the reason for: a syntax error, a duplicate key, an alias inside of the
/// node that it names, tags other than those of the core schema, more than one document, a root that is not a map,
/// nesting above 100 levels, more than 1,000,000 nodes or 64 MiB of text after aliases are expanded, a file above 4
/// MiB, and text that is not UTF-8.
Document read_document(const std::string& path);

/// The same for text in memory; `path` is for messages.
Document parse_document(std::string_view text, Format format, const std::string& path);

/// The value at a path, or null.
const json::Value* find(const Document& document, std::string_view path);

}  // namespace fp8::foreign
