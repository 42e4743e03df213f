// The scanner of flat objects against the strict parser: the same values bit for bit, and no line accepted that the
// parser rejects.
#include "fp8/json/flat.h"

#include <bit>
#include <random>

#include "helpers.h"

namespace fp8::json {
namespace {

Shape shape_of(const std::string& text, bool wanted = true) {
  return Shape::of(parse(text, "f").as_object(), [=](const std::string&) { return wanted; }).value();
}

// Whether the scanner accepted the line; if so, the parser must have found the same values.
bool agrees(const Shape& shape, const std::string& line, bool wanted = true) {
  std::vector<Scalar> values(shape.size());
  if (!shape.read(line, values)) return false;
  const std::string complaint = refusal(line);
  EXPECT_EQ(complaint, "no error") << line;
  if (complaint != "no error") return true;
  const Value parsed = parse(line, "f");
  EXPECT_EQ(parsed.as_object().size(), values.size()) << line;
  std::size_t i = 0;
  for (const auto& [key, value] : parsed.as_object()) {
    const Scalar& scalar = values[i++];
    EXPECT_EQ(scalar.type, value.type()) << line << " " << key;
    if (value.is_string()) {
      EXPECT_EQ(scalar.text, value.as_string()) << line;
    }
    if (value.is_bool()) {
      EXPECT_EQ(scalar.number, value.as_bool() ? 1 : 0) << line;
    }
    if (value.is_int()) {
      EXPECT_EQ(scalar.integer, value.as_int()) << line;
    }
    if (!value.is_number() || !(wanted || value.is_int())) continue;
    EXPECT_EQ(std::bit_cast<std::uint64_t>(scalar.number), std::bit_cast<std::uint64_t>(value.as_double())) << line;
  }
  return true;
}

// Numbers, valid and malformed.
std::string number(std::mt19937_64& random) {
  const auto digits = [&](std::size_t most) {
    std::string text;
    for (std::size_t n = random() % (most + 1); text.size() < n;) text += static_cast<char>('0' + random() % 10);
    return text;
  };
  if (random() % 3 == 0) return dump(Value(std::bit_cast<double>(random())));
  std::string text = (random() % 4 == 0 ? "-" : "") + digits(random() % 8 == 0 ? 25 : 6);
  if (random() % 2 == 0) text += "." + digits(random() % 8 == 0 ? 400 : 18);
  if (random() % 4 == 0) text += (random() % 2 ? "e" : "E") + std::string(random() % 2 ? "-" : "") + digits(3);
  return text;
}

std::string scalar(std::mt19937_64& random) {
  static const std::vector<std::string> kOthers = {"true",
                                                   "false",
                                                   "null",
                                                   "\"fp8\"",
                                                   "\"\"",
                                                   "\"a\\u0041\"",
                                                   "\"\xC3\xA9\"",
                                                   "[]",
                                                   "{}",
                                                   "tru",
                                                   "nulll",
                                                   "\"open",
                                                   "\"\x01\"",
                                                   "-0",
                                                   "-0.0",
                                                   "01",
                                                   "1e999",
                                                   "1e-999",
                                                   "4e-324",
                                                   "+1",
                                                   "1.",
                                                   ".5",
                                                   "\"\xFF\"",
                                                   "NaN",
                                                   "-",
                                                   "999999999999999999",
                                                   "1000000000000000000",
                                                   "\"\x7F\""};
  return random() % 2 == 0 ? number(random) : kOthers[random() % kOthers.size()];
}

TEST(Shape, RandomMembersMatchTheParser) {
  std::mt19937_64 random(7);
  const Shape all = shape_of(R"({"a":1,"b c":2,"d":3})"), none = shape_of(R"({"a":1,"b c":2,"d":3})", false);
  int taken = 0;
  for (int i = 0; i < 30000; ++i) {
    const std::string gap = random() % 4 == 0 ? " " : "";
    const std::string line = gap + "{" + gap + "\"a\"" + gap + ":" + scalar(random) + gap + ",\"b c\":" + gap +
                             scalar(random) + "," + gap + "\"d\":" + scalar(random) + gap + "}" + gap;
    taken += agrees(all, line) ? 1 : 0;
    agrees(none, line, false);
  }
  EXPECT_GT(taken, 3000);
}

TEST(Shape, NoInvalidLineIsAccepted) {
  std::mt19937_64 random(8);
  const std::string good = R"({"type":"step","step":12,"loss":2.345e0,"recipe":null,"emulated":false,"rate":-1.5E-3})";
  const Shape shape = shape_of(good);
  EXPECT_TRUE(agrees(shape, good));
  EXPECT_TRUE(agrees(shape, good + "\r\n"));
  for (std::size_t n = 0; n < good.size(); ++n) EXPECT_FALSE(agrees(shape, good.substr(0, n))) << n;
  for (int i = 0; i < 100000; ++i) {
    std::string line = good;
    for (std::uint64_t n = random() % 3 + 1; n > 0; --n) {
      const std::size_t at = random() % line.size();
      const char c = random() % 2 ? static_cast<char>(random()) : R"({}[]",:0123456789.eE+-\tfn)"[random() % 26];
      if (random() % 3 == 0) {
        line.erase(at, 1);
      } else if (random() % 2 == 0) {
        line.insert(at, 1, c);
      } else {
        line[at] = c;
      }
    }
    agrees(shape, line);
  }
}

TEST(Shape, LeavesOtherLinesToTheParser) {
  const auto shape = [](const std::string& text) {
    return Shape::of(parse(text, "f").as_object(), [](const std::string&) { return true; });
  };
  EXPECT_FALSE(shape("{}"));
  EXPECT_FALSE(shape(R"({"a":[1]})"));
  EXPECT_FALSE(shape(R"({"a":{}})"));
  EXPECT_FALSE(shape(R"({"a\n":1})"));
  EXPECT_FALSE(shape("{\"\xC3\xA9\":1}"));
  const Shape two = shape_of(R"({"a":1,"b":2})");
  std::vector<Scalar> values(2);
  EXPECT_TRUE(two.read(R"({"a":1,"b":2})", values));
  for (const char* line :
       {R"({"b":1,"a":2})", R"({"a":1})", R"({"a":1,"b":2,"c":3})", R"({"a":1,"b":2,})", "", " ", "{}", "}", "{"}) {
    EXPECT_FALSE(two.read(line, values)) << line;
  }
}

}  // namespace
}  // namespace fp8::json
