// Timelines parse as JSON.
#include "fp8/json/trace.h"

#include <gtest/gtest.h>

#include "fp8/json/json.h"

namespace fp8::json {
namespace {

TEST(Trace, IsOneObjectWithItsEventsInOrder) {
  Object arguments;
  arguments.set("bytes", 12);
  const std::string text =
      trace_file({trace_line({"a \"quoted\" name", "casts", 1, 0, 2.5, 4, arguments}), trace_line({"b", "c"})});
  const Value file = parse(text, "trace");
  EXPECT_EQ(file.as_object().get_string("displayTimeUnit", "trace"), "ms");
  const Array& events = file.as_object().at("traceEvents").as_array();
  ASSERT_EQ(events.size(), 2u);
  const Object& first = events[0].as_object();
  EXPECT_EQ(first.get_string("name", "event"), "a \"quoted\" name");
  EXPECT_EQ(first.get_string("cat", "event"), "casts");
  EXPECT_EQ(first.get_string("ph", "event"), "X");
  EXPECT_EQ(first.get_int("pid", "event"), 1);
  EXPECT_EQ(first.at("ts").as_double(), 2.5);
  EXPECT_EQ(first.at("dur").as_double(), 4.0);
  EXPECT_EQ(first.at("args").as_object().get_int("bytes", "event"), 12);
}

TEST(Trace, WithoutEventsIsValid) {
  EXPECT_TRUE(parse(trace_file({}), "trace").as_object().at("traceEvents").as_array().empty());
}

TEST(Trace, EveryKind) {
  Object values;
  values.set("loss", 2.5);
  EXPECT_EQ(trace_line({"restart", "run", 1, 2, 3, 0, {}, TraceKind::mark}),
            R"({"name":"restart","cat":"run","ph":"i","pid":1,"tid":2,"ts":3.0,"s":"p","args":{}})");
  EXPECT_EQ(trace_line({"loss", "run", 1, 0, 3, 0, values, TraceKind::count}),
            R"({"name":"loss","cat":"run","ph":"C","pid":1,"tid":0,"ts":3.0,"args":{"loss":2.5}})");
  EXPECT_EQ(trace_line({"saves", "", 1, 2, 0, 0, {}, TraceKind::thread}),
            R"({"name":"thread_name","ph":"M","pid":1,"tid":2,"args":{"name":"saves"}})");
  EXPECT_EQ(trace_line({"run", "", 1, 0, 0, 0, {}, TraceKind::process}),
            R"({"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"run"}})");
}

}  // namespace
}  // namespace fp8::json
