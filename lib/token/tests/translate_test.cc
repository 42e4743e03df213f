// Translation of expressions from Oniguruma to PCRE2, and refusal of those with a different meaning.
#include "translate.h"

#include <gtest/gtest.h>

#include "expression.h"
#include "fp8_test.h"

namespace fp8::token {
namespace {

using test::error_of;

std::string expression_refusal(std::string_view pattern) {
  return error_of([&] { Expression::of_pattern(pattern, "e"); });
}

TEST(Translate, KeepsSyntaxWithTheSameMeaning) {
  for (const char* same :
       {"a|b", "(?:a)(?=b)(?!c)(?<=d)(?<!e)(?>f)", "a?+b++c*+", "[a-z_]", "[^\\r\\n]", "\\p{L}\\P{Lu}",
        "a{2}b{2,}c{2,3}", "\\.\\$", "\xE4\xB8\x80", "[\xE4\xB8\x80-\xE9\xBE\xA5]", "^a$", "(a)"})
    EXPECT_EQ(translate(same, "e"), same);
}

TEST(Translate, WritesOutSyntaxThatDiffers) {
  EXPECT_EQ(translate("\\p{Han}", "e"), "\\p{sc:Han}");
  EXPECT_EQ(translate("\\p{^Letter}", "e"), "\\P{L}");
  EXPECT_EQ(translate("\\p{lu}", "e"), "\\p{Lu}");
  EXPECT_EQ(translate("\\d", "e"), "[\\p{Nd}]");
  EXPECT_EQ(translate("[\\d-a]", "e"), "[\\p{Nd}\\-a]");
  EXPECT_EQ(translate("a{,3}", "e"), "a{0,3}");
  EXPECT_EQ(translate("a{x", "e"), "a\\{x");
  EXPECT_EQ(translate("\\u3042\\x41\\x{1F600}", "e"), "\\x{3042}\\x{41}\\x{1F600}");
  EXPECT_EQ(translate("\\v", "e"), "\\x{b}");
  Matcher matcher;
  Span span;
  const auto matches = [&](const char* pattern, const char* text) {
    return matcher.find(Expression::of_pattern(pattern, "e"), text, 0, false, span) == Found::match;
  };
  EXPECT_FALSE(matches("\\s", "\xE1\xA0\x8E")) << "U+180E is not white space";
  EXPECT_TRUE(matches("^\\S$", "\xE1\xA0\x8E"));
  EXPECT_TRUE(matches("\\s", "\xE3\x80\x80"));
  EXPECT_TRUE(matches("(?i:'S)", "'\xC5\xBF"));
  EXPECT_TRUE(matches("a$", "a\nb")) << "$ matches at the end of a line";
  EXPECT_FALSE(matches("a.b", "a\nb"));
}

TEST(Translate, RefusesUnsupportedSyntax) {
  for (const char* pattern : {"[a[b]]",
                              "[a&&b]",
                              "\\h",
                              "\\R",
                              "\\X",
                              "\\G",
                              "\\K",
                              "\\1",
                              "\\k<a>",
                              "(?<n>a)",
                              "(?P<n>a)",
                              "(*UTF)",
                              "(?R)",
                              "a(?i)b",
                              "(?m:a)",
                              "a{2}+",
                              "[\\W]",
                              "[a-\\d]",
                              "[]a]",
                              "[a",
                              "\\p{L",
                              "\\pL",
                              "\\p{}",
                              "\\p{x:y}",
                              "\\x",
                              "\\u12",
                              "(?i)ss",
                              "(?i:a|\xC3\xA9)",
                              "(?i:(?:x|(Fi)))",
                              "\\"}) {
    EXPECT_HOLDS(expression_refusal(pattern), "in an expression is not supported");
  }
  EXPECT_HOLDS(expression_refusal("(a"), "e: invalid expression: ");
  EXPECT_HOLDS(expression_refusal("\\p{Klingon}"), "e: invalid expression: ");
  EXPECT_HOLDS(expression_refusal(std::string(70000, 'a')), "e: longer than 65536 bytes");
  EXPECT_EQ(expression_refusal("(?i:a)ss"), "no error") << "(?i) ends with its group";
}

TEST(Matches, SkipEmptyMatchesAsTheReference) {
  Matcher matcher;
  const Expression pattern = Expression::of_pattern("a*", "e");
  Matches all(matcher, pattern, "baab", false);
  std::vector<std::pair<std::size_t, std::size_t>> found;
  for (Span span; all.next(span) == Found::match;) found.emplace_back(span.begin, span.end);
  EXPECT_EQ(found, (std::vector<std::pair<std::size_t, std::size_t>>{{0, 0}, {1, 3}, {4, 4}}));
}

TEST(Matcher, ReturnsPartialIfFollowingTextMatters) {
  Matcher matcher;
  Span span;
  const Expression words = Expression::of_pattern("\\p{L}+", "e");
  EXPECT_EQ(matcher.find(words, "ab", 0, true, span), Found::partial);
  EXPECT_EQ(matcher.find(words, "ab ", 0, true, span), Found::match);
  EXPECT_EQ(span.end, 2U);
  EXPECT_EQ(matcher.find(words, "ab ", 2, true, span), Found::none);
}

}  // namespace
}  // namespace fp8::token
