// Templates in token files and as Jinja: read back as they were, and refused where another hand has changed them.
#include "fp8/chat/stored.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "chat_files.h"
#include "fp8/chat/carried.h"
#include "fp8/json/json.h"

namespace fp8::chat {
namespace {

using test::error_of;
using Texts = std::map<std::string, std::string>;

// A template with braces, quotes, a number sign and a line break in its texts.
constexpr const char* kOwn = R"({"eos": "<#end#}>", "default_system": "It's {so}\\", "system": "{{# {content} #}}\n",
  "begin": ["{bos}", "{system}"], "prompt": ["Q: {user}\nA:"], "answer": [" {answer}<#end#}}>"], "about": "x"})";

class StoredTemplates : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::setenv("FP8_SHARE", "share", 1), 0); }
};

Template own_form() { return parse_template(json::parse(kOwn, "own.json"), "own.json"); }

std::vector<Template> all_forms() {
  std::vector<Template> forms{own_form()};
  for (const std::string& name : template_names()) forms.push_back(read_template(name));
  return forms;
}

TEST_F(StoredTemplates, AreReadBack) {
  for (const Template& form : all_forms()) {
    const StoredTemplate stored = to_stored(form);
    EXPECT_TRUE(is_stored(stored));
    EXPECT_TRUE(same_form(from_stored(stored, "x"), form)) << form.name;
    EXPECT_EQ(to_stored(from_stored(stored, "x")), stored) << form.name;
    EXPECT_EQ(stored.text == form.name, form.name != "own.json") << stored.text;
  }
}

TEST_F(StoredTemplates, OthersAreRefused) {
  const StoredTemplate qwen = to_stored(read_template("qwen")), own = to_stored(own_form());
  EXPECT_FALSE(is_stored({"/etc/passwd", qwen.digest}));
  EXPECT_FALSE(is_stored({"../qwen", qwen.digest}));
  EXPECT_FALSE(is_stored({"", qwen.digest}));
  EXPECT_FALSE(is_stored({"qwen", ""}));
  EXPECT_FALSE(is_stored({"{" + std::string(kMostStoredBytes, ' ') + "}", own.digest}));
  EXPECT_EQ(error_of([&] { from_stored({"/etc/passwd", qwen.digest}, "x"); }), "x: not a template");
  EXPECT_EQ(error_of([&] { from_stored({"gemma", qwen.digest}, "x"); }), "x: this version has no template gemma");
  EXPECT_EQ(error_of([&] {
              from_stored({"qwen", own.digest}, "x");
            }),
            "x: the digest is not that of the template qwen of this version");
  EXPECT_EQ(error_of([&] { from_stored({own.text, qwen.digest}, "x"); }), "x: the digest is not that of the template");
  EXPECT_NE(error_of([&] { from_stored({R"({"begin": []})", own.digest}, "x"); }), "");
  Template longest = own_form();
  longest.default_system = std::string(kMostStoredBytes, 'a');
  EXPECT_EQ(error_of([&] { to_stored(longest); }), "own.json: longer than 32768 bytes, which no token file holds");
}

TEST_F(StoredTemplates, JinjaContainsItsTemplate) {
  for (const Template& form : all_forms()) {
    const std::string jinja = jinja_text(form);
    const std::optional<Equivalent> known = known_jinja("\n" + jinja + "\r\n", "x");
    ASSERT_TRUE(known) << form.name;
    EXPECT_TRUE(same_form(known->form, form)) << form.name;
    EXPECT_FALSE(template_of_jinja(jinja + "{{ 1 }}", "x")) << "a text that was changed";
  }
  Template marks = own_form();
  marks.default_system = std::string(6000, '#');  // six bytes each in the comment
  EXPECT_TRUE(template_of_jinja(jinja_text(marks), "x"));
  EXPECT_FALSE(template_of_jinja("{#- fp8-template(5) {}", "x"));
  EXPECT_FALSE(template_of_jinja("{#- fp8-template(5) {} #}\n", "x"));
}

// The statements, without the comment. tests/hf renders them.
TEST_F(StoredTemplates, Jinja) {
  const std::string jinja = jinja_text(own_form());
  EXPECT_EQ(jinja.substr(jinja.find('\n') + 1), R"({%- set turns = messages %}
{%- set system = '' %}
{%- if messages and messages[0]['role'] == 'system' %}
{%- set system = messages[0]['content'] %}
{%- set turns = messages[1:] %}
{%- endif %}
{%- if not system %}
{%- set system = 'It\'s {so}\\' %}
{%- endif %}
{%- set opening = '' %}
{%- if system %}
{%- set opening = '{# ' + system + ' #}\n' %}
{%- endif %}
{{- bos_token }}
{{- opening }}
{%- for message in turns %}
{%- if message['role'] == 'user' %}
{{- 'Q: ' + message['content'] + '\nA:' }}
{%- elif message['role'] == 'assistant' %}
{{- ' ' + message['content'] + '<#end#}>' }}
{%- else %}
{{- raise_exception('the roles are user and assistant, and system first') }}
{%- endif %}
{%- endfor %}
)");
}

TEST_F(StoredTemplates, TakeThePlaceOfOthers) {
  const Template form = read_template("qwen");
  Texts texts{{"tokenizer_config.json", R"({"eos_token": "</s>", "chat_template": "x", "pad_token": "p"})"},
              {"special_tokens_map.json", R"({"eos_token": {"content": "</s>"}})"},
              {"chat_template.json", R"({"chat_template": "x"})"},
              {"other.json", "{}"}};
  put_template(texts, form, "m/");
  EXPECT_EQ(carried_template(texts, {}, "")->equivalent->form.name, "qwen");
  EXPECT_EQ(json::parse(texts.at("tokenizer_config.json"), "x"),
            json::parse(R"({"eos_token": "<|im_end|>", "pad_token": "p"})", "x"));
  EXPECT_EQ(json::parse(texts.at("special_tokens_map.json"), "x"), json::parse(R"({"eos_token": "<|im_end|>"})", "x"));
  EXPECT_FALSE(texts.contains("chat_template.json"));
  EXPECT_EQ(texts.size(), 4U);
  const Texts before = texts;
  put_template(texts, form, "m/");
  EXPECT_EQ(texts, before) << "again, nothing changes";
  Texts none;
  put_template(none, form, "m/");
  EXPECT_EQ(special_tokens_of(none, "m/").eos, "<|im_end|>");
  EXPECT_FALSE(none.contains("special_tokens_map.json"));
  Texts bad{{"tokenizer_config.json", "[]"}};
  EXPECT_EQ(error_of([&] { put_template(bad, form, "m/"); }), "m/tokenizer_config.json: not an object");
}

}  // namespace
}  // namespace fp8::chat
