/// What tests of readers share: configurations in a folder of the test, and their answers and flags.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/foreign/import.h"
#include "fp8/json/json.h"
#include "fp8_test.h"

namespace fp8::foreign {

/// A test with a folder, whose configurations are imported.
class ImportTest : public test::FolderTest {
 protected:
  /// Imports a configuration of this text under this name; `change` changes the command line.
  Import import_text(const std::string& name, const std::string& text, const Options& change = {}) {
    write(name, text);
    Options options = change;
    options.files.insert(options.files.begin(), at(name));
    return read(options);
  }
  /// Writes data of `records` conversations in the form of messages.
  void write_messages(const std::string& name, int records) {
    std::string data;
    for (int i = 0; i < records; ++i)
      data += R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})"
              "\n";
    write(name, data);
  }

  /// The value of a flag of fp8-step as text; "none" if it is not set.
  static std::string flag(const Import& import, const char* name) {
    const json::Value* value = import.flags.find(name);
    return value == nullptr ? "none" : value->is_string() ? value->as_string() : json::dump(*value);
  }
  /// Names of flags of fp8-step, and their values as text.
  using Flags = std::initializer_list<std::pair<const char*, const char*>>;
  /// Defaults of LLaMA-Factory, AutoModel and Axolotl.
  static constexpr Flags kUsual = {{"betas", "0.9,0.999"}, {"eps", "1e-08"},      {"weight-decay", "0.0"},
                                   {"clip", "1.0"},        {"precision", "bf16"}, {"seed", "42"}};
  /// Expects the values of flags.
  static void expect_flags(const Import& import, Flags flags) {
    for (const auto& [name, value] : flags) EXPECT_EQ(flag(import, name), value) << name;
  }
  /// The answer to a key.
  static const Answer& answer(const Import& import, const std::string& key) {
    const auto found = std::ranges::find(import.answers, key, &Answer::key);
    if (found == import.answers.end()) throw Error("no answer to " + key);
    return *found;
  }
  /// The class of the answer to a key.
  static Class class_of(const Import& import, const std::string& key) { return answer(import, key).cls; }
  /// Keys that are answered as unknown.
  static std::string unknown(const Import& import) {
    std::string all;
    for (const Answer& a : import.answers)
      if (a.why.starts_with("is not known")) all += a.key + " ";
    return all;
  }
};

}  // namespace fp8::foreign
