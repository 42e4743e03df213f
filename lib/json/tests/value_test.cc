// Values and objects in memory.
#include "fp8/json/value.h"

#include <gtest/gtest.h>

#include <limits>

#include "fp8/json/sizes.h"
#include "helpers.h"

namespace fp8::json {
namespace {

TEST(Value, ReportsItsType) {
  EXPECT_TRUE(Value().is_null());
  EXPECT_TRUE(Value(nullptr).is_null());
  EXPECT_EQ(Value(true).type(), Type::boolean);
  EXPECT_EQ(Value(3).type(), Type::integer);
  EXPECT_EQ(Value(std::uint8_t{3}).type(), Type::integer);
  EXPECT_EQ(Value(3.0).type(), Type::real);
  EXPECT_EQ(Value(3.0F).type(), Type::real);
  EXPECT_EQ(Value("x").type(), Type::string);
  EXPECT_EQ(Value(std::string_view("x")).type(), Type::string);
  EXPECT_EQ(Value(Array{}).type(), Type::array);
  EXPECT_EQ(Value(Object{}).type(), Type::object);
  EXPECT_TRUE(Value(3).is_number());
  EXPECT_TRUE(Value(3.0).is_number());
  EXPECT_FALSE(Value(3.0).is_int());
}

TEST(Sizes, ThoseAboveOne) {
  EXPECT_EQ(sizes_text(object({{"dp_replicate", 1}, {"dp_shard", 4}, {"pp", 1}, {"ep", 2}}).as_object()),
            "dp_shard=4 ep=2");
  EXPECT_EQ(sizes_text(object({{"tp", 1}, {"x", "3"}, {"y", 2.5}, {"z", nullptr}}).as_object()), "");
}

TEST(Value, Integers) {
  EXPECT_EQ(Value(-1).as_int(), -1);
  EXPECT_EQ(Value(std::numeric_limits<std::uint64_t>::max()).as_uint(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(error_of([] { Value(std::numeric_limits<std::uint64_t>::max()).as_int(); }), "integer out of range");
  EXPECT_EQ(error_of([] { Value(-1).as_uint(); }), "expected an integer that is not negative, found -1");
  EXPECT_EQ(error_of([] { Value(3.0).as_int(); }), "expected an integer, found number");
  EXPECT_EQ(Value(3U), Value(3));  // one representation
  EXPECT_FALSE(Value(3) == Value(3.0));
  EXPECT_EQ(Value(3).as_double(), 3.0);
}

TEST(Value, AccessorsNameTheTypes) {
  EXPECT_EQ(error_of([] { Value("x").as_bool(); }), "expected a boolean, found string");
  EXPECT_EQ(error_of([] { Value(true).as_double(); }), "expected a number, found boolean");
  EXPECT_EQ(error_of([] { Value().as_string(); }), "expected a string, found null");
  EXPECT_EQ(error_of([] { Value(1).as_array(); }), "expected an array, found integer");
  EXPECT_EQ(error_of([] { Value(Array{}).as_object(); }), "expected an object, found array");
}

TEST(Value, NestsAndCompares) {
  const Value a = object({{"list", Array{1, "two", 3.5, nullptr, false}}, {"in", object({{"x", 1}})}});
  Value b = a;
  EXPECT_EQ(a, b);
  b.as_object().find("list")->as_array().push_back(4);
  EXPECT_FALSE(a == b);
  EXPECT_EQ(a.as_object().at("list").as_array().size(), 5U);
  EXPECT_EQ(object({{"a", 1}, {"b", 2}}), object({{"b", 2}, {"a", 1}}));
  EXPECT_EQ(object({{"a", 1}, {"a", 2}}), object({{"a", 2}}));
}

TEST(Object, KeepsTheOrder) {
  Object o;
  o["z"] = 1;
  o.set("a", 2);
  o["m"];
  o["z"] = 3;
  std::string keys;
  for (const auto& [key, value] : o) keys += key;
  EXPECT_EQ(keys, "zam");
  EXPECT_EQ(o.at("z").as_int(), 3);
  EXPECT_TRUE(o.at("m").is_null());
  EXPECT_TRUE(o.erase("z"));
  EXPECT_FALSE(o.erase("z"));
  EXPECT_EQ(o.size(), 2U);
  EXPECT_EQ(o.find("z"), nullptr);
  EXPECT_EQ(error_of([&] { (void)o.at("z"); }), "\"z\" is missing");
  EXPECT_TRUE(Object().empty());
  EXPECT_EQ(Object().begin(), Object().end());
}

TEST(Object, LargeOnesFindEveryMember) {
  constexpr int kMembers = 1000;
  Object o;
  const auto key = [](int i) { return "key" + std::to_string(i * 7919 % kMembers); };
  for (int i = 0; i < kMembers; ++i) o.set(key(i), i);
  ASSERT_EQ(o.size(), static_cast<std::size_t>(kMembers));
  for (int i = 0; i < kMembers; ++i) ASSERT_EQ(o.at(key(i)).as_int(), i);
  EXPECT_EQ(o.begin()->key, "key0");
  const Object copy = o;
  for (int i = 0; i < kMembers; i += 2) ASSERT_TRUE(o.erase(key(i)));
  for (int i = 0; i < kMembers; ++i) ASSERT_EQ(o.contains(key(i)), i % 2 == 1);
  for (int i = 0; i < kMembers; i += 2) o.set(key(i), i);
  EXPECT_EQ(o, copy);
}

TEST(Object, MembersMustDiffer) {
  EXPECT_EQ(error_of([] { Object::from_members({{"a", 1}, {"b", 1}, {"a", 2}}); }), "duplicate key \"a\"");
  std::vector<Member> many;
  for (int i = 0; i < 100; ++i) many.push_back({std::to_string(i), i});
  EXPECT_EQ(Object::from_members(many).at("99").as_int(), 99);
  many.push_back({"42", 0});
  EXPECT_EQ(error_of([&] { Object::from_members(many); }), "duplicate key \"42\"");
}

TEST(Object, GettersNameFileAndKey) {
  const Value v = parse(R"({"i":1,"d":2.5,"b":true,"s":"x","a":[1],"o":{"k":1},"n":null})", "f");
  const Object& o = v.as_object();
  EXPECT_EQ(o.get_int("i", "c.json"), 1);
  EXPECT_EQ(o.get_double("d", "c.json"), 2.5);
  EXPECT_EQ(o.get_double("i", "c.json"), 1.0);
  EXPECT_TRUE(o.get_bool("b", "c.json"));
  EXPECT_EQ(o.get_string("s", "c.json"), "x");
  EXPECT_EQ(o.get_array("a", "c.json").size(), 1U);
  EXPECT_EQ(o.get_object("o", "c.json").get_int("k", "c.json"), 1);
  EXPECT_EQ(error_of([&] { (void)o.get_int("none", "c.json"); }), "c.json: \"none\" is missing");
  EXPECT_EQ(error_of([&] { (void)o.get_int("d", "c.json"); }), "c.json: \"d\": expected an integer, found number");
  EXPECT_EQ(error_of([&] { (void)o.get_string("n", "c.json"); }), "c.json: \"n\": expected a string, found null");
  EXPECT_EQ(o.get_int_or("none", 7, "c.json"), 7);
  EXPECT_EQ(o.get_int_or("n", 7, "c.json"), 7);
  EXPECT_EQ(o.get_double_or("none", 0.5, "c.json"), 0.5);
  EXPECT_TRUE(o.get_bool_or("none", true, "c.json"));
  EXPECT_EQ(o.get_string_or("none", "y", "c.json"), "y");
  EXPECT_EQ(o.get_string_or("s", "y", "c.json"), "x");
  EXPECT_EQ(error_of([&] { (void)o.get_int_or("s", 7, "c.json"); }),
            "c.json: \"s\": expected an integer, found string");
}

}  // namespace
}  // namespace fp8::json
