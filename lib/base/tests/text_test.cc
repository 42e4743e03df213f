// Text: display, parsing of numbers, globs.
#include "fp8/base/text.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "fp8/base/expert_name.h"

namespace fp8 {
namespace {

TEST(ExpertName, HasThreeParts) {
  const ExpertName parts = expert_name("model.layers.1.mlp.experts.12.up_proj.weight").value();
  EXPECT_EQ(parts.experts, "model.layers.1.mlp.experts");
  EXPECT_EQ(parts.number, 12);
  EXPECT_EQ(parts.rest, "up_proj.weight");
  EXPECT_EQ(glob_of_experts("m.1.experts.0.w1.weight"), "m.1.experts.*.w1.weight");
  for (const std::string name : {"model.layers.1.mlp.up_proj.weight", "m.experts.3", "m.experts.x.w1", "m.experts..w1",
                                 "m.experts.-1.w1", "m.experts.*.w1"}) {
    EXPECT_FALSE(expert_name(name)) << name;
    EXPECT_EQ(glob_of_experts(name), name);
  }
}

TEST(Excerpt, CutsBetweenCharacters) {
  EXPECT_EQ(excerpt("short"), "short");
  EXPECT_EQ(excerpt(std::string(80, 'a')), std::string(80, 'a'));
  EXPECT_EQ(excerpt(std::string(81, 'a')), std::string(80, 'a') + "...");
  EXPECT_EQ(excerpt("ab\u00e9cd", 3), "ab...");
  EXPECT_EQ(excerpt("ab\u00e9cd", 4), "ab\u00e9...");
  EXPECT_EQ(excerpt("\x80\x80\x80", 2), "...");
}

TEST(TerminalSafe, KeepsTextAndEscapesTheRest) {
  EXPECT_EQ(terminal_safe(""), "");
  EXPECT_EQ(terminal_safe("plain \\ text"), "plain \\ text");
  EXPECT_EQ(terminal_safe("na\xC3\xAFve \xE6\x97\xA5 \xF0\x9F\x98\x80"), "na\xC3\xAFve \xE6\x97\xA5 \xF0\x9F\x98\x80");
  EXPECT_EQ(terminal_safe("\x1b[31mred\x07\n\t\x7f"), "\\x1b[31mred\\x07\\x0a\\x09\\x7f");
  EXPECT_EQ(terminal_safe(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(terminal_safe("\xC2\x9B"), "\\u{009b}");  // CSI as one character
  EXPECT_EQ(terminal_safe("a\xE2\x80\xAE"
                          "b"),
            "a\\u{202e}b");                                    // right-to-left override
  EXPECT_EQ(terminal_safe("\xE2\x81\xA6"), "\\u{2066}");       // isolate
  EXPECT_EQ(terminal_safe("\xF3\xA0\x81\x81"), "\\u{e0041}");  // tag
  EXPECT_EQ(terminal_safe("\xFF\xC3"), "\\xff\\xc3");
  EXPECT_EQ(terminal_safe("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // a surrogate
}

TEST(ByteOrderMark, IsLeftOutAtTheBeginning) {
  EXPECT_EQ(without_byte_order_mark("\xEF\xBB\xBF"
                                    "a\xEF\xBB\xBF"),
            "a\xEF\xBB\xBF");
  EXPECT_EQ(without_byte_order_mark("\xEF\xBB"), "\xEF\xBB");
  EXPECT_EQ(without_byte_order_mark(""), "");
}

TEST(PlainWord, NeedsNoQuotes) {
  EXPECT_TRUE(is_plain_word("a/b-1.h5"));
  for (const char* word : {"", "a b", "a'b", "$a", "a*", "\n"}) EXPECT_FALSE(is_plain_word(word)) << word;
}

TEST(ValidUtf8, AcceptsAndRefuses) {
  for (const char* good : {"", "a", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(valid_utf8(good)) << terminal_safe(good);
  }
  for (const char* bad : {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2g", "\xE0\x9F\xBF", "\xE0\xA0",
                          "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x8F\xBF\xBF", "\xF0\x90\x80", "\xF4\x90\x80\x80",
                          "\xF5\x80\x80\x80", "\xFE", "\xFF", "a\xC3"}) {
    EXPECT_FALSE(valid_utf8(bad)) << terminal_safe(bad);
  }
}

TEST(ParseDouble, WholeAndFinite) {
  EXPECT_EQ(parse_double("0.5"), 0.5);
  EXPECT_EQ(parse_double("-3e2"), -300.0);
  EXPECT_EQ(parse_double("3"), 3.0);
  for (const char* bad : {"", " ", "1e-3x", "+-3", "+3", "--3", " 3", "3 ", "nan", "NAN", "inf", "-inf", "infinity",
                          "0x10", "1e999", "1,5", "e5", "-", "."}) {
    EXPECT_EQ(parse_double(bad), std::nullopt) << bad;
  }
}

TEST(ParseInt, WholeAndInRange) {
  EXPECT_EQ(parse_int64("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(parse_int64("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(parse_uint64("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  for (const char* bad : {"", "9223372036854775808", "1.0", "1e3", "+1", " 1", "1 ", "0x1", "-"}) {
    EXPECT_EQ(parse_int64(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(parse_uint64("-1"), std::nullopt);
  EXPECT_EQ(parse_uint64("18446744073709551616"), std::nullopt);
}

TEST(FormatDouble, ReadsBackToTheSameBits) {
  for (const double v :
       {0.1, -0.0, 1.0 / 3, 5e-324, 1.7976931348623157e308, 1e22, 123456789.0, 2.5e-7, static_cast<double>(0.1F)}) {
    const auto back = parse_double(format_double(v));
    ASSERT_TRUE(back) << v;
    EXPECT_EQ(std::bit_cast<std::uint64_t>(*back), std::bit_cast<std::uint64_t>(v));
  }
  EXPECT_EQ(format_double(0.1), "0.1");
  EXPECT_EQ(format_double(std::numeric_limits<double>::quiet_NaN()), "nan");
  EXPECT_EQ(format_double(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(format_short(2.0 / 3, 4), "0.6667");
  EXPECT_EQ(format_short(0.5, 4), "0.5");
  EXPECT_EQ(format_short(1.5e-7, 3), "1.5e-07");
}

TEST(Human, ThreeDigits) {
  EXPECT_EQ(counted(0, "layer") + ", " + counted(1, "layer") + ", " + counted(2, "layer"),
            "0 layers, 1 layer, 2 layers");
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1 KiB");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(1000 * 1024), "1000 KiB");
  EXPECT_EQ(human_bytes(1024 * 1024 - 1), "1 MiB");
  EXPECT_EQ(human_bytes(139ULL << 30U), "139 GiB");
  EXPECT_EQ(human_bytes(std::numeric_limits<std::uint64_t>::max()), "16 EiB");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(1500), "1.5 k");
  EXPECT_EQ(human_count(123'456'789), "123 M");
  EXPECT_EQ(human_count(999'999), "1 M");
}

TEST(Glob, StarsAndQuestionMarks) {
  EXPECT_TRUE(glob_match("", ""));
  EXPECT_FALSE(glob_match("", "a"));
  EXPECT_TRUE(glob_match("*", ""));
  EXPECT_TRUE(glob_match("*", "model.layers.0"));
  EXPECT_TRUE(glob_match("model.layers.*.mlp.*_proj.weight", "model.layers.11.mlp.up_proj.weight"));
  EXPECT_FALSE(glob_match("model.layers.*.mlp.*_proj.weight", "model.layers.11.mlp.up_proj.bias"));
  EXPECT_TRUE(glob_match("layers.?.x", "layers.1.x"));
  EXPECT_FALSE(glob_match("layers.?.x", "layers.12.x"));
  EXPECT_TRUE(glob_match("a*b*c", "aXbXbc"));
  EXPECT_FALSE(glob_match("a*b*c", "aXbXb"));
  EXPECT_FALSE(glob_match("[ab]", "a"));  // no classes
  EXPECT_TRUE(glob_match("**a**", "a"));
  EXPECT_FALSE(glob_match("?", ""));
}

TEST(Glob, HostilePatternIsFast) {
  std::string pattern;
  for (int i = 0; i < 50; ++i) pattern += "a*";
  EXPECT_FALSE(glob_match(pattern + "b", std::string(10'000, 'a')));
}

}  // namespace
}  // namespace fp8
