// YAML, TOML and JSON of other trainers: values, bounds and what is refused.
#include "fp8/foreign/document.h"

#include <gtest/gtest.h>

#include "fp8/json/json.h"
#include "fp8_test.h"

namespace fp8::foreign {
namespace {

using test::error_of;

std::string yaml(const std::string& text) { return json::dump(parse_document(text, Format::yaml, "a.yaml").root); }
std::string toml(const std::string& text) { return json::dump(parse_document(text, Format::toml, "a.toml").root); }
std::string yaml_error(const std::string& text) {
  return error_of([&] { (void)parse_document(text, Format::yaml, "a.yaml"); });
}
std::string toml_error(const std::string& text) {
  return error_of([&] { (void)parse_document(text, Format::toml, "a.toml"); });
}

TEST(Document, YamlScalarsHaveTheTypesThatTrainersGiveThem) {
  EXPECT_EQ(yaml("a: 1\nb: 5e-5\nc: 1.0\nd: true\ne: ~\nf: '1'\ng: 1_000\nh: .5\ni: 0123\n"),
            R"({"a":1,"b":5e-05,"c":1.0,"d":true,"e":null,"f":"1","g":1000,"h":0.5,"i":"0123"})");
  EXPECT_EQ(yaml("a: .\nb: ..\nc: ./d\nd: -.5\ne: -.\n"), R"({"a":".","b":"..","c":"./d","d":-0.5,"e":"-."})");
  EXPECT_EQ(yaml("a: !!str 1\nb: !!int '2'\nc: yes\nd: -3\ne: +4\nf: .inf\ng: 1e999\n"),
            R"({"a":"1","b":2,"c":"yes","d":-3,"e":4,"f":".inf","g":"1e999"})");
}

TEST(Document, YamlAliasesAndMergesAreResolved) {
  EXPECT_EQ(yaml("a: &x {p: 1, q: 2}\nb: *x\nc:\n  q: 3\n  <<: *x\n"),
            R"({"a":{"p":1,"q":2},"b":{"p":1,"q":2},"c":{"q":3,"p":1}})");
  EXPECT_EQ(yaml("a: &x {p: 1}\nb: &y {p: 2, r: 3}\nc: {<<: [*x, *y]}\n"),
            R"({"a":{"p":1},"b":{"p":2,"r":3},"c":{"p":1,"r":3}})");
}

TEST(Document, YamlThatHasNoMeaningIsRefusedWithItsLine) {
  EXPECT_EQ(yaml_error("a: 1\nb: 2\na: 3\n"), "a.yaml: line 3: \"a\" is there twice");
  EXPECT_HOLDS(yaml_error("a: &x\n  b: *x\n"), "a.yaml: line 2: an alias inside of what it names");
  EXPECT_HOLDS(yaml_error("a: !!python/object:os.system x\n"), "a.yaml: line 1: tag ");
  EXPECT_HOLDS(yaml_error("a: [1, 2\nb: 3\n"), "a.yaml: line ");
  for (const char* open : {"a: \"x", "a: \"x\n", "a: 'x\n  ", "a: \"x \nb: 1\n\n", "a: 'it''s", "[\"x\r\n"})
    EXPECT_HOLDS(yaml_error(open), ": the file ends inside of a quoted text") << open;
  EXPECT_EQ(yaml("a: |\n  x\n"), R"({"a":"x\n"})");
  EXPECT_EQ(yaml("a: |+\n  x\n\n"), R"({"a":"x\n\n"})");
  EXPECT_EQ(yaml_error("a: 1\n---\nb: 2\n"), "a.yaml: more than one document");
  EXPECT_HOLDS(yaml_error("- 1\n"), "a.yaml: not a configuration: array");
  EXPECT_HOLDS(yaml_error("? [a, b]\n: 1\n"), "a key that is no text");
  EXPECT_EQ(yaml_error("a: \xff\n"), "a.yaml: is not text in UTF-8");
  EXPECT_HOLDS(yaml_error("<<: 3\n"), "<< merges maps");
}

TEST(Document, YamlThatGrowsIsRefused) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string n = std::to_string(i), before = "*a" + std::to_string(i - 1);
    text += "a" + n + ": &a" + n + " [";
    for (int k = 0; k < 10; ++k) text += (k > 0 ? ", " : "") + before;
    text += "]\n";
  }
  EXPECT_HOLDS(yaml_error(text), "after aliases are replaced");
  EXPECT_HOLDS(yaml_error("a: " + std::string(150, '[') + std::string(150, ']') + "\n"), "more than 100 levels");
  EXPECT_HOLDS(yaml_error("a: " + std::string(100000, '[')), "a.yaml: line 1: ");
}

TEST(Document, TomlKeepsTheOrderOfTheFile) {
  EXPECT_EQ(toml("z = 1\na = 5e-5\n[t]\nd = 2026-01-01\ni = inf\nx.y = true\n[[l]]\nk = 'v'\n"),
            R"({"z":1,"a":5e-05,"t":{"d":"2026-01-01","i":"inf","x":{"y":true}},"l":[{"k":"v"}]})");
}

TEST(Document, TomlThatHasNoMeaningIsRefusedWithItsLine) {
  EXPECT_HOLDS(toml_error("a = 1\na = 2\n"), "a.toml: line 2: ");
  EXPECT_HOLDS(toml_error("a = \n"), "a.toml: line 1: ");
  EXPECT_EQ(toml_error("[[@a: b\n"), "a.toml: is not TOML");
  std::string deep = "a";
  for (int i = 0; i < 100000; ++i) deep += ".a";
  EXPECT_HOLDS(toml_error(deep + " = 1\n"), "a name of more than 100 parts");
  EXPECT_HOLDS(toml_error("a" + deep.substr(1, 300) + " = 1\n"), "more than 100 levels");
}

TEST(Document, KeysHavePathsAndLines) {
  const Document d = parse_document("a:\n  - b: 1\n  - b: 2\nx.y: 3\n", Format::yaml, "a.yaml");
  EXPECT_EQ(find(d, "a[1].b")->as_int(), 2);
  EXPECT_EQ(find(d, "x\\.y")->as_int(), 3);
  for (const char* missing : {"a[2]", "a[x]", "x.y", "a.b", "q"}) EXPECT_EQ(find(d, missing), nullptr) << missing;
  EXPECT_EQ(d.line.at("a[1].b"), 3);
  EXPECT_EQ(d.line.at("x\\.y"), 4);
}

class DocumentTest : public test::FolderTest {};

TEST_F(DocumentTest, TheFormatIsThatOfTheNameOrOfTheContent) {
  for (const auto& [name, text] : {std::pair("a.yml", "k: 1\n"),
                                   {"a.toml", "k = 1\n"},
                                   {"a.json", "{\"k\": 1}"},
                                   {"yaml", "# x\nk: 1\n"},
                                   {"toml", "\nk = 1\n"},
                                   {"json", "{\"k\": 1}"},
                                   {"section", "[a]\nx = 1\n"}}) {
    write(name, text);
    EXPECT_TRUE(read_document(at(name)).root.is_object()) << name;
  }
  write("large.yaml", std::string(std::size_t{5} << 20U, '#'));
  EXPECT_HOLDS(error_of([&] { (void)read_document(at("large.yaml")); }), "large.yaml: ");
}

}  // namespace
}  // namespace fp8::foreign
