// Expressions of Python: full matches, and expressions that are refused.
#include "fp8/token/pattern.h"

#include <gtest/gtest.h>

#include "fp8_test.h"

namespace fp8::token {
namespace {

const std::vector<std::string> kTexts{"model.layers.0.self_attn.q_proj", "model.layers.11.mlp.up_proj", "lm_head"};

std::string matched(const std::string& pattern) {
  std::string out;
  for (const bool match : full_matches(pattern, kTexts, "p")) out += match ? '1' : '0';
  return out;
}

// The expected results are those of re.fullmatch in Python 3.11.
TEST(FullMatches, AreThoseOfPython) {
  EXPECT_EQ(matched(".*"), "111");
  EXPECT_EQ(matched("q_proj"), "000");
  EXPECT_EQ(matched(R"(.*\.q_proj)"), "100");
  EXPECT_EQ(matched(R"(.*_proj|lm)"), "110");
  EXPECT_EQ(matched(R"(lm|lm_head)"), "001");
  EXPECT_EQ(matched(R"(model\.layers\.\d\..*)"), "100");
  EXPECT_EQ(matched(R"(model\.layers\.[0-9]{2,}\..*?)"), "010");
  EXPECT_EQ(matched(R"(^(?!.*(?:q_proj|k_proj)).*$)"), "011");
  EXPECT_EQ(matched(R"((?:.*?(?:self_attn|mlp).*?(?:q_proj|up_proj).*?)|(?:\bmodel\.layers\.[\d]{1,}\.x))"), "110");
  EXPECT_EQ(matched(R"(.*[^\w]mlp[.]\w+)"), "010");
  EXPECT_EQ(matched(""), "000");
}

TEST(FullMatches, RefuseWhatMayDiffer) {
  const auto refusal = [](const std::string& pattern) { return test::error_of([&] { (void)matched(pattern); }); };
  EXPECT_EQ(refusal("(?i).*"), "p: an expression with a group that begins with (?i, which is not evaluated");
  EXPECT_EQ(refusal("a)(b"), "p: an expression with a parenthesis that is not open, which is not evaluated");
  EXPECT_EQ(refusal("a*+"),
            "p: an expression with two quantifiers in a row, or a possessive one, which is not evaluated");
  for (const char* pattern : {"(?P<n>a)", "(?<=a)b", R"((a)\1)", R"(\Aa)", R"(\Qa)", "[[:alpha:]]", "[]a]", "a{,3}",
                              "{", "a{2}{3}", "(*FAIL)", "(a", "a\\", "[a", "(?", "\xC3\xA9"})
    EXPECT_NE(refusal(pattern).find(", which is not evaluated"), std::string::npos) << pattern << refusal(pattern);
  EXPECT_NE(refusal("*a").find("p: invalid expression: "), std::string::npos);
  EXPECT_NE(refusal("[z-a]").find("p: invalid expression: "), std::string::npos);
}

TEST(FullMatches, TakesABoundedNumberOfSteps) {
  const std::string error = test::error_of([] { (void)full_matches("(a|a)*b", {std::string(64, 'a') + "cb"}, "p"); });
  EXPECT_EQ(error.substr(0, 31), "p: too many steps on this text:");
}

}  // namespace
}  // namespace fp8::token
