// Chat templates of models: where their text is, known texts, and comparison with the template of a command.
#include "fp8/chat/carried.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "chat_files.h"
#include "fp8/json/json.h"

namespace fp8::chat {
namespace {

using test::error_of;
using Texts = std::map<std::string, std::string>;

const std::string kUnknown = "{% for m in messages %}{{ m.content }}{% endfor %}";

class OwnTemplate : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::setenv("FP8_SHARE", "share", 1), 0); }
};

std::string chatml() { return test::read_file("examples/3-fine-tune/tokenizer/chat_template.jinja"); }

std::string as_json(const std::string& jinja) {
  return json::dump(json::object({{"eos_token", "</s>"}, {"chat_template", jinja}}));
}

std::string where(const Texts& texts) {
  const std::optional<Carried> carried = carried_template(texts, {}, "x/");
  return carried ? carried->where : "";
}

TEST_F(OwnTemplate, TheDigestIgnoresWhiteSpaceAroundTheText) {
  EXPECT_EQ(jinja_digest(" \r\n{{ a\r\n}}\n\n"), jinja_digest("{{ a\n}}"));
  EXPECT_NE(jinja_digest("{{ a }}"), jinja_digest("{{ a  }}"));
  EXPECT_EQ(jinja_digest("\n"), jinja_digest(""));
}

TEST_F(OwnTemplate, TextsOfJinjaAndOfJson) {
  EXPECT_EQ(jinja_of(kUnknown, "x"), kUnknown);
  EXPECT_EQ(jinja_of("User: ", "x.jinja"), "User: ");
  EXPECT_EQ(jinja_of("User: ", "x.txt"), std::nullopt);
  EXPECT_EQ(jinja_of(as_json(kUnknown), "x"), kUnknown);
  EXPECT_EQ(jinja_of(R"({"chat_template":[{"name":"a","template":"b"},{"name":"default","template":"c"}]})", "x"), "c");
  for (const char* none : {"{}", R"({"chat_template":null})", R"({"chat_template":[]})",
                           R"({"begin":[],"prompt":["{{{user}}}"],"answer":["{answer}"]})", "[1]", ""})
    EXPECT_EQ(jinja_of(none, "x"), std::nullopt) << none;
  EXPECT_EQ(error_of([] { jinja_of(R"({"chat_template":7})", "x"); }), "x: \"chat_template\": not a string");
  EXPECT_EQ(error_of([] { jinja_of(R"({"chat_template":[7]})", "x"); }),
            "x: \"chat_template\": an entry is not an object");
}

TEST_F(OwnTemplate, TheFirstFileThatHasAText) {
  EXPECT_EQ(where({}), "");
  EXPECT_EQ(where({{"tokenizer_config.json", "{}"}}), "");
  const std::string config = as_json(kUnknown);
  EXPECT_EQ(where({{"chat_template.json", config}}), "x/chat_template.json");
  EXPECT_EQ(where({{"chat_template.json", config}, {"tokenizer_config.json", config}}), "x/tokenizer_config.json");
  EXPECT_EQ(where({{"chat_template.jinja", kUnknown}, {"tokenizer_config.json", config}}), "x/chat_template.jinja");
}

TEST_F(OwnTemplate, AKnownTextStandsForATemplate) {
  const std::optional<Carried> known = carried_template({{"chat_template.jinja", chatml()}}, {}, "x/");
  ASSERT_TRUE(known && known->equivalent);
  EXPECT_EQ(known->equivalent->form.name, "chatml");
  EXPECT_EQ(known->equivalent->differs, "");
  const std::optional<Carried> unknown = carried_template({{"chat_template.jinja", kUnknown}}, {}, "x/");
  ASSERT_TRUE(unknown);
  EXPECT_FALSE(unknown->equivalent);
  EXPECT_EQ(unknown->digest, jinja_digest(kUnknown));
}

TEST_F(OwnTemplate, TheNameOfAModel) {
  for (const auto& [name, form] : {std::pair{"meta-llama/Llama-3.2-1B-Instruct", "llama3"},
                                   {"Qwen2.5-0.5B-Instruct/", "qwen"},
                                   {"a/b/Mistral-7B-Instruct-v0.3", "mistral"},
                                   {"Llama-2-7b-chat-hf", "llama2"},
                                   {"Llama-3.2-1B", ""},
                                   {"Llama-3-Instruct/base", ""},
                                   {"", ""}}) {
    const std::optional<Carried> carried = carried_template({}, json::object({{"_name_or_path", name}}), "x/");
    EXPECT_EQ(carried ? carried->equivalent->form.name : "", form) << name;
  }
  EXPECT_FALSE(carried_template({}, json::object({{"_name_or_path", 7}}), "x/"));
}

// Each digest belongs to one template: which of two would be used would depend on their names.
TEST_F(OwnTemplate, NoDigestIsListedTwice) {
  std::map<std::string, std::string> owner;
  for (const std::string& name : template_names())
    for (const KnownJinja& known : read_template(name).jinja)
      EXPECT_TRUE(owner.emplace(known.digest, name).second) << known.digest << ": " << owner[known.digest];
  EXPECT_GE(owner.size(), 14U);
}

TEST_F(OwnTemplate, ChoosesATemplate) {
  const std::optional<Carried> own = carried_template({{"chat_template.jinja", chatml()}}, {}, "x/");
  const std::optional<Carried> other = carried_template({{"chat_template.jinja", kUnknown}}, {}, "x/");
  EXPECT_FALSE(choose_template({}, {}, false).form);
  EXPECT_FALSE(choose_template("none", own, false).form);
  EXPECT_FALSE(choose_template({}, other, false).form);
  EXPECT_EQ(choose_template({}, own, false).form->name, "chatml");
  EXPECT_EQ(choose_template({}, own, false).note, "template chatml, that of x/chat_template.jinja");
  EXPECT_EQ(choose_template("chatml", own, false).note, "");
  EXPECT_EQ(choose_template("qwen", {}, false).form->name, "qwen");
  EXPECT_EQ(choose_template("qwen", own, true).form->name, "qwen");
  EXPECT_EQ(error_of([&] { choose_template("qwen", own, false); }),
            "template qwen: the model has another, chatml (x/chat_template.jinja)");
  EXPECT_EQ(choose_template("qwen", other, false).note,
            "x/chat_template.jinja: Jinja that is not known, so template qwen is not compared with it");
}

TEST_F(OwnTemplate, ANoteSaysWhatATemplateLeavesOut) {
  const std::optional<Equivalent> llama = equivalent_of("573e1bcc8c56f178c3d57e38f5ff0756");
  ASSERT_TRUE(llama);
  const Carried own{"x", "573e1bcc8c56f178c3d57e38f5ff0756", llama};
  EXPECT_EQ(choose_template({}, own, false).note,
            "template llama3, that of x; its system prompt with dates is left out");
}

}  // namespace
}  // namespace fp8::chat
