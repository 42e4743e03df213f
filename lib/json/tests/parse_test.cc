// The strict parser: accepted text, rejected text and the reported positions.
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>

#include "helpers.h"

namespace fp8::json {
namespace {

TEST(Parse, Values) {
  EXPECT_TRUE(parse(" null ", "f").is_null());
  EXPECT_TRUE(parse("true", "f").as_bool());
  EXPECT_EQ(parse("-9223372036854775808", "f").as_int(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(parse("18446744073709551615", "f").as_uint(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(parse("1.0", "f").type(), Type::real);
  EXPECT_EQ(parse("1e2", "f").as_double(), 100.0);
  EXPECT_EQ(parse(R"("a\n\u00e9\ud83d\ude00\u0000")", "f").as_string(),
            std::string("a\n\xC3\xA9\xF0\x9F\x98\x80\0", 9));
  EXPECT_EQ(parse(" [1, [2, []], {}]\r\n", "f"), Value(Array{1, Array{2, Array{}}, Object{}}));
  EXPECT_EQ(parse(R"({"a":{"b":[{"c":1}]},"d":2})", "f"),
            object({{"a", object({{"b", Array{object({{"c", 1}})}}})}, {"d", 2}}));
}

TEST(Parse, RefusesWithLineAndColumn) {
  EXPECT_EQ(refusal(""), "f: line 1 column 1: empty");
  EXPECT_EQ(refusal(" \n "), "f: line 1 column 1: empty");
  EXPECT_EQ(refusal("{\n  \"a\": 1,\n  \"b\": ?\n}").substr(0, 20), "f: line 3 column 8: ");
  EXPECT_EQ(refusal("{} x").substr(0, 20), "f: line 1 column 4: ");
  EXPECT_EQ(refusal("1 2").substr(0, 20), "f: line 1 column 3: ");
  EXPECT_EQ(refusal("\xEF\xBB\xBF{}"), "f: line 1 column 1: byte order mark");
  EXPECT_EQ(refusal(std::string_view("{}\0garbage", 10)), "f: line 1 column 3: NUL byte");
  EXPECT_EQ(refusal("[1e999]"), "f: line 1 column 6: number out of range");
  EXPECT_EQ(refusal("{\"a\":1,\n\"a\":2}"), "f: line 2 column 6: duplicate key \"a\" in the object that ends here");
  EXPECT_EQ(refusal(R"({"x":{"a":1,"\u0061":2}})"),
            "f: line 1 column 23: duplicate key \"a\" in the object that ends here");
}

TEST(Parse, RefusesEverythingElse) {
  for (const char* bad : {"{",
                          "[",
                          "[1,]",
                          "{\"a\":1,}",
                          "{\"a\"}",
                          "{a:1}",
                          "{'a':1}",
                          "nan",
                          "NaN",
                          "Infinity",
                          "-inf",
                          "01",
                          "+1",
                          ".5",
                          "1.",
                          "0x10",
                          "// c\n1",
                          "/* c */ 1",
                          "\"a",
                          "\"\n\"",
                          "\"\\x\"",
                          "\"\\ud800\"",
                          "tru",
                          "]",
                          "}",
                          "[1}",
                          "\"\xFF\"",
                          "\"\xC0\x80\"",
                          "\"\xED\xA0\x80\"",
                          "\xC3\xA9",
                          "\x01",
                          "-"}) {
    EXPECT_EQ(refusal(bad).substr(0, 8), "f: line ") << bad;
  }
}

TEST(Parse, MessagesStayShort) {
  const std::string many(1'000'000, 'x');
  EXPECT_LT(refusal("\"" + many).size(), 300U);
  EXPECT_LT(refusal("{\"" + many + "\":1,\"" + many + "\":1}").size(), 300U);
  EXPECT_LT(refusal(std::string(1'000'000, '9') + "x").size(), 300U);
}

TEST(Parse, Limits) {
  EXPECT_EQ(refusal(std::string(64, '[') + std::string(64, ']')), "no error");
  EXPECT_EQ(refusal(std::string(65, '[')), "f: line 1 column 65: nested deeper than 64 levels");
  EXPECT_EQ(refusal("[{\"a\":[1]}]", {.max_depth = 2}), "f: line 1 column 7: nested deeper than 2 levels");
  EXPECT_EQ(refusal("[[1],[2]]", {.max_depth = 2}), "no error");
  EXPECT_EQ(refusal("123", {.max_bytes = 2}), "f: line 1 column 1: longer than 2 bytes");
  EXPECT_EQ(refusal(std::string(10'000'000, '[')), "f: line 1 column 65: nested deeper than 64 levels");
}

TEST(Parse, LargeObject) {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i)
    text += "\"token" + std::to_string(i * 7919 % 200'000) + "\":" + std::to_string(i) + ",";
  text += "\"last\":0}";
  const Value v = parse(text, "f");
  EXPECT_EQ(v.as_object().size(), 200'001U);
  EXPECT_EQ(v.as_object().at("token7919").as_int(), 1);
}

TEST(ParseFile, NamesThePath) {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("file", "{\"a\": }");
  EXPECT_EQ(error_of([&] { parse_file(path); }).substr(0, path.size() + 18), path + ": line 1 column 7:");
  EXPECT_EQ(error_of([&] { parse_file(path, {.max_bytes = 3}); }), path + ": larger than 3 B, the most that is read");
  std::filesystem::remove(path);
  EXPECT_EQ(error_of([&] { parse_file(path); }), path + ": No such file or directory");
}

TEST(Dump, OneLine) {
  EXPECT_EQ(dump(object({{"a", Array{1, -2, 3.0, 0.1, true, nullptr}}, {"b", "x"}, {"c", Object{}}, {"d", Array{}}})),
            R"({"a":[1,-2,3.0,0.1,true,null],"b":"x","c":{},"d":[]})");
  EXPECT_EQ(dump(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(dump(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(dump(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(dump(std::numeric_limits<double>::quiet_NaN()), "null");
  EXPECT_EQ(dump(1e20), "1e+20");
  EXPECT_EQ(dump(-0.0), "-0.0");
}

TEST(Dump, Strings) {
  EXPECT_EQ(dump("a\"\\/\b\f\n\r\t\x01\x0B\x1F\x7F"), "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u000b\\u001f\\u007f\"");
  EXPECT_EQ(dump("\xC2\x80\xC2\x9B\xC2\x9F\xC2\xA0\xC3\x9B"), "\"\\u0080\\u009b\\u009f\xC2\xA0\xC3\x9B\"");
  EXPECT_EQ(dump("\xE2\x80\xA7\xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xAA"), "\"\xE2\x80\xA7\\u2028\\u2029\xE2\x80\xAA\"")
      << "line separators";
  EXPECT_EQ(dump("\xC3\xA9\xF0\x9F\x98\x80"), "\"\xC3\xA9\xF0\x9F\x98\x80\"");
  EXPECT_EQ(dump("a\xFF\xC3"), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");
  EXPECT_EQ(dump(object({{"k\n", 1}})), "{\"k\\n\":1}");
  EXPECT_EQ(parse(dump(std::string("\0x", 2)), "f").as_string(), std::string("\0x", 2));
}

TEST(Dump, Indented) {
  EXPECT_EQ(dump(object({{"a", Array{1, 2}}, {"b", object({{"c", "x"}})}, {"e", Array{}}}), 2),
            "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {\n    \"c\": \"x\"\n  },\n  \"e\": []\n}");
}

TEST(Dump, FloatsReadBackToTheSameBits) {
  std::uint64_t state = 1;
  for (int i = 0; i < 20'000; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto f = std::bit_cast<float>(static_cast<std::uint32_t>(state >> 32U));
    const auto d = std::bit_cast<double>(state);
    if (f == f && f - f == 0) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(static_cast<float>(parse(dump(f), "f").as_double())),
                std::bit_cast<std::uint32_t>(f));
    }
    if (d == d && d - d == 0) {
      const Value back = parse(dump(d), "f");
      ASSERT_EQ(back.type(), Type::real);
      ASSERT_EQ(std::bit_cast<std::uint64_t>(back.as_double()), std::bit_cast<std::uint64_t>(d));
    }
  }
}

TEST(ParseObjectFile, NamesWhatIsNoObject) {
  const test::TemporaryFolder folder;
  const std::string yaml = folder.write("c.yaml", "\nsteps: 3\n"), list = folder.write("list.json", "[1]");
  EXPECT_EQ(
      error_of([&] { parse_object_file(yaml, "a configuration"); }),
      yaml + ": a configuration is a JSON object, which begins with {, and this file with steps: 3; YAML is not read");
  EXPECT_EQ(error_of([&] { parse_object_file(list, "a configuration"); }),
            list + ": a configuration is a JSON object, which begins with {, and this file with [1]");
  const std::string marked = folder.write("c.json", "\xEF\xBB\xBF {\"steps\": 3}");
  EXPECT_EQ(parse_object_file(marked, "a configuration").as_object().at("steps").as_int(), 3);
  EXPECT_EQ(parse_file(marked).as_object().at("steps").as_int(), 3);
}

}  // namespace
}  // namespace fp8::json
