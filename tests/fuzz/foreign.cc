// Configurations of other trainers: every key of a document that is read is found by its path, and every key without
// members has one answer of each trainer's reader.
#include <map>

#include "fp8/foreign/import.h"
#include "fuzz.h"

namespace {

using namespace fp8;

// Keys without members, as Keys answers them.
void add_leaves(const json::Value& value, const std::string& path, std::map<std::string, int>& leaves) {
  bool leaf = true;
  if (value.is_object())
    for (const auto& [key, member] : value.as_object()) {
      std::string name;
      for (const char c : key) name += std::string(c == '.' || c == '[' || c == ']' || c == '\\' ? "\\" : "") + c;
      add_leaves(member, path.empty() ? name : path + "." + name, leaves);
      leaf = false;
    }
  if (value.is_array())
    for (std::size_t i = 0; i < value.as_array().size(); ++i)
      if (const json::Value& element = value.as_array()[i]; element.is_object()) {
        add_leaves(element, path + "[" + std::to_string(i) + "]", leaves);
        leaf = false;
      }
  if (leaf && !path.empty()) leaves.emplace(path, 0);
}

}  // namespace

FP8_FUZZ(foreign) {
  return fuzz::judge([&] {
    const std::string text(fuzz::text_of(data, size));
    if (text.empty()) return;
    const auto format = static_cast<foreign::Format>(static_cast<unsigned char>(text.front()) % 2);
    const foreign::Document document = foreign::parse_document(text.substr(1), format, "input");
    for (const auto& [path, line] : document.line)
      if (!path.empty())
        fuzz::require(foreign::find(document, path) != nullptr || line == 0, "a key is found by its path");
    std::map<std::string, int> leaves;
    add_leaves(document.root, "", leaves);
    const std::vector<foreign::Trainer>& trainers = foreign::trainers();
    const foreign::Trainer& trainer = trainers[static_cast<unsigned char>(text.front()) / 2 % trainers.size()];
    fuzz::require(trainer.score(document) >= 0, "a score counts keys");
    foreign::Import import;
    import.documents.push_back(document);
    trainer.read(import);
    for (const foreign::Answer& a : import.answers)
      if (const auto leaf = leaves.find(a.key); leaf != leaves.end() && a.cls != foreign::Class::trainer_default)
        ++leaf->second;
    for (const auto& [path, count] : leaves) fuzz::require(count > 0, "every key has an answer");
  });
}
