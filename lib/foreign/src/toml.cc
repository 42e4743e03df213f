// TOML, with toml++.
namespace fp8::foreign {
namespace {
struct FailedAssertion {};
constexpr void require_held(bool condition) {
  if (!condition) throw FailedAssertion();
}
}  // namespace
}  // namespace fp8::foreign

// Some files that are no TOML, such as "[[@a", fail an assertion of toml++ 3.3 before it reports them.
#define TOML_ASSERT(condition) fp8::foreign::require_held(static_cast<bool>(condition))
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "builder.h"
#include "fp8/base/error.h"

namespace fp8::foreign {
namespace {

// toml++ reads a dotted key of any length into as many tables, and frees them by recursion: names of too many parts are
// refused before. A dot inside of a text counts too, so that the bound is well above what a name needs.
void check_dots(std::string_view text, const std::string& path) {
  int line = 1;
  std::size_t dots = 0;
  for (const char c : text) {
    if (c == '\n') ++line;
    if (c == '.') ++dots;
    if (c == '\n' || c == '=' || c == ',' || c == '[' || c == '{') dots = 0;
    if (dots > 10 * kMostLevels)
      refuse_line(path, line, "a name of more than " + std::to_string(kMostLevels) + " parts");
  }
}

class Converter {
 public:
  explicit Converter(Document& document) : document_(document), budget_(document.path) {}

  json::Value convert(const toml::node& node, const std::string& path, std::size_t level) {
    const int line = static_cast<int>(node.source().begin.line);
    if (level > kMostLevels) refuse_line(document_.path, line, "more than " + std::to_string(kMostLevels) + " levels");
    if (!path.empty()) document_.line.emplace(path, line);
    json::Value value = scalar(node);
    budget_.add(value, line, path.size());
    if (const toml::array* array = node.as_array()) {
      json::Array all;
      for (const toml::node& element : *array)
        all.push_back(convert(element, element_path(path, all.size()), level + 1));
      return all;
    }
    if (const toml::table* table = node.as_table()) return members(*table, path, level);
    return value;
  }

 private:
  // Members in the order of the file; toml++ sorts them by name.
  json::Value members(const toml::table& table, const std::string& path, std::size_t level) {
    std::vector<json::Member> all;
    for (auto it = table.begin(); it != table.end(); ++it) {
      const auto& [key, node] = *it;
      std::string name(key.str());
      json::Value value = convert(node, member_path(path, name), level + 1);
      all.push_back({std::move(name), std::move(value)});
    }
    std::ranges::stable_sort(all, {}, [&](const json::Member& m) { return document_.line[member_path(path, m.key)]; });
    return json::Object::from_members(std::move(all));
  }

  static json::Value scalar(const toml::node& node) {
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* whole = node.as_integer()) return whole->get();
    if (const auto* real = node.as_floating_point())
      if (std::isfinite(real->get())) return real->get();
    if (const auto* toggle = node.as_boolean()) return toggle->get();
    if (node.is_array() || node.is_table()) return nullptr;
    std::ostringstream other;  // dates, times, inf and nan
    node.visit([&](const auto& n) {
      if constexpr (toml::is_value<decltype(n)>) other << n.get();
    });
    return other.str();
  }

  Document& document_;
  Budget budget_;
};

}  // namespace

void parse_toml(std::string_view text, Document& document) {
  check_dots(text, document.path);
  try {
    const toml::table table = toml::parse(text);
    document.root = Converter(document).convert(table, "", 0);
  } catch (const FailedAssertion&) {
    throw Error(document.path + ": is not TOML");
  } catch (const toml::parse_error& e) {
    refuse_line(document.path, static_cast<int>(e.source().begin.line), std::string(e.description()));
  }
}

}  // namespace fp8::foreign
