// Exports as CSV, TensorBoard records, Prometheus text and traces, compared byte by byte.
#include "fp8/log/export.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "fp8/base/text.h"
#include "fp8/json/json.h"
#include "run_text.h"

namespace fp8::log {
namespace {

std::string gathered(const std::function<void(const Sink&)>& write) {
  std::string out;
  write([&](std::string_view piece) { out += piece; });
  return out;
}

TEST(Csv, EveryMetricOfAnyRun) {
  const std::vector<Log> runs = runs_of(
      run_of(R"({"type":"step","step":1,"tokens":8,"loss":0.1,"precision":"fp8","recipe":"rowwise","skipped":true})"
             "\n",
             "a,\"b\".jsonl"),
      run_of(R"({"type":"step","step":1,"lr":1e-05,"memory_peak_bytes":100000})"
             "\n"
             R"({"type":"step","step":2,"lr":null})"
             "\n"));
  EXPECT_EQ(gathered([&](const Sink& sink) { write_csv(runs, sink); }),
            "run,step,tokens,precision,recipe,loss,skipped,lr,memory_peak_bytes\n"
            "\"a,\"\"b\"\"\",1,8,fp8,rowwise,0.1,1,,\n"
            "run,1,,,,,,1e-05,100000\n"
            "run,2,,,,,,,\n");
}

// An evaluation before the first step has a line of its own; a setting has the value of its step.
TEST(Csv, EvaluationsAndSettings) {
  const std::string eval0 = R"({"type":"eval","step":0,"loss":3})"
                            "\n",
                    eval2 = R"({"type":"eval","step":2,"loss":2.5})"
                            "\n";
  const std::vector<Log> runs =
      runs_of(run_of(R"({"type":"run","config":{"lr":1,"clip":1}})"
                     "\n" +
                         eval0 + step(1, 8, "4") + R"({"type":"run","config":{"lr":0.5,"clip":1}})" + "\n" +
                         step(2, 16, "3") + eval2,
                     "a.jsonl"),
              run_of(R"({"type":"run","config":{"lr":0.25,"clip":1}})"
                     "\n" +
                         step(1, 8, "4"),
                     "b.jsonl"));
  EXPECT_EQ(gathered([&](const Sink& sink) { write_csv(runs, sink); }),
            "run,step,tokens,precision,recipe,loss,eval_loss,setting:lr\n"
            "a,0,,,,,3,1\n"
            "a,1,8,,,4,,1\n"
            "a,2,16,,,3,2.5,0.5\n"
            "b,1,8,,,4,,0.25\n");
}

TEST(Csv, NamesAreEscaped) {
  std::vector<Log> runs = runs_of(run_of(R"({"type":"step","step":1,"tokens":8,"l\u001b[31m":1,"precision":"a\nb\\c"})"
                                         "\n"));
  runs[0].name = "x\x1b]0;t\x07\u009b\\,\xff";
  EXPECT_EQ(gathered([&](const Sink& sink) { write_csv(runs, sink); }),
            "run,step,tokens,precision,recipe,l\\x1b[31m\n"
            "\"x\\x1b]0;t\\x07\\u{009b}\\\\,\\xff\",1,8,a\\x0ab\\\\c,,1\n");
  const std::string text = prometheus(runs);
  EXPECT_EQ(terminal_safe(text).size() - text.size(),
            3U * static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')));
}

TEST(Csv, LongLogIsWrittenInPieces) {
  std::string text;
  for (int i = 1; i <= 5000; ++i) text += step(i, i * 8, "0.25");
  const Log run = run_of(text);
  int pieces = 0;
  std::string out;
  write_csv({&run, 1}, [&](std::string_view piece) {
    ++pieces;
    out += piece;
  });
  EXPECT_GT(pieces, 2);
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 5001);
  EXPECT_TRUE(out.ends_with("run,5000,40000,,,0.25\n"));
}

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
}

// The data of the next record; checks its framing.
std::string next_record(std::string_view& file) {
  const auto number = [&](std::size_t at) {
    std::uint32_t v = 0;
    std::memcpy(&v, file.data() + at, sizeof v);
    return v;
  };
  const auto masked = [](std::string_view bytes) {
    const std::uint32_t c = crc32c(bytes);
    return ((c >> 15U) | (c << 17U)) + 0xa282ead8U;
  };
  EXPECT_GE(file.size(), 16U);
  const std::size_t length = number(0);
  EXPECT_EQ(number(4), 0U);
  EXPECT_EQ(number(8), masked(file.substr(0, 8)));
  const std::string data(file.substr(12, length));
  EXPECT_EQ(number(12 + length), masked(data));
  file.remove_prefix(16 + length);
  return data;
}

TEST(TensorBoard, Records) {
  const Log run = run_of(R"({"type":"step","step":300,"tokens":8,"loss":0.5,"step_s":2})"
                         "\n"
                         R"({"type":"eval","step":300,"loss":4})"
                         "\n");
  const std::string file = gathered([&](const Sink& sink) { write_tensorboard(run, sink); });
  std::string_view rest = file;
  using namespace std::string_literals;
  EXPECT_EQ(next_record(rest), "\x09\0\0\0\0\0\0\0\0\x1a\x0d"s + "brain.Event:2");
  // wall_time 2.0, step 300, summary { value { tag "loss" simple_value 0.5 } value { tag "step_s" simple_value 2 } }
  EXPECT_EQ(next_record(rest), "\x09\0\0\0\0\0\0\0\x40\x10\xac\x02\x2a\x1c"s + "\x0a\x0b\x0a\x04loss\x15\0\0\0\x3f"s +
                                   "\x0a\x0d\x0a\x06step_s\x15\0\0\0\x40"s);
  EXPECT_EQ(next_record(rest),
            "\x09\0\0\0\0\0\0\0\x40\x10\xac\x02\x2a\x12"s + "\x0a\x10\x0a\x09"s + "eval/loss"s + "\x15\0\0\x80\x40"s);
  EXPECT_TRUE(rest.empty());
}

// The wall time is that of the record where it has one, and goes on from there.
TEST(TensorBoard, WallTimeIsThatOfTheRecord) {
  const Log run = run_of(R"({"type":"step","step":1,"step_s":2,"time":"1970-01-01T00:01:00.500Z"})"
                         "\n"
                         R"({"type":"eval","step":1,"loss":4,"time":"1970-01-01T00:01:03.000Z"})"
                         "\n"
                         R"({"type":"step","step":2,"step_s":2,"time":"soon"})"
                         "\n");
  const std::string file = gathered([&](const Sink& sink) { write_tensorboard(run, sink); });
  std::string_view rest = file;
  std::string times;
  for (std::ignore = next_record(rest); !rest.empty();) {
    const std::string data = next_record(rest);
    double time = 0;
    std::memcpy(&time, data.data() + 1, sizeof time);
    times += std::to_string(time).substr(0, 4) + " ";
    EXPECT_EQ(data.find("time"), std::string::npos);
  }
  EXPECT_EQ(times, "60.5 63.0 65.0 ");
}

// The events of a trace as "phase name begin duration", in order, without thread names and curves.
std::vector<std::string> events_of(const std::vector<Log>& runs) {
  const json::Value file = json::parse(gathered([&](const Sink& sink) { write_trace(runs, sink); }), "trace");
  std::vector<std::string> all;
  for (const json::Value& value : file.as_object().get_array("traceEvents", "trace")) {
    const json::Object& e = value.as_object();
    const std::string kind = e.get_string("ph", "event");
    if (kind == "M" || kind == "C") continue;
    all.push_back(kind + " " + e.get_string("name", "event") + " " + std::to_string(e.get_int("pid", "event")) + " " +
                  std::to_string(e.get_double("ts", "event") * 1e-6).substr(0, 4) + " " +
                  std::to_string(e.get_double_or("dur", -1e6, "event") * 1e-6).substr(0, 4));
  }
  return all;
}

TEST(Trace, StepsSavesEvaluationsRestarts) {
  const auto at = [](int n, const std::string& rest) {
    return R"({"type":"step","step":)" + std::to_string(n) + R"(,"loss":2,"step_s":1,"data_wait_s":0.25)" + rest +
           "}\n";
  };
  std::vector<Log> runs;
  runs.push_back(run_of(R"({"type":"run"})"
                        "\n"));
  runs.push_back(run_of(at(1, R"(,"precision":"bf16")") + at(3, R"(,"precision":"fp8","recipe":"rowwise")") +
                        R"({"type":"checkpoint","step":3,"seconds":2})"
                        "\n"
                        R"({"type":"eval","step":4,"loss":2,"seconds":0.5})"
                        "\n"
                        R"({"type":"run"})"
                        "\n" +
                        at(5, R"(,"precision":"fp8","recipe":"rowwise")") +
                        R"({"type":"checkpoint","step":5,"seconds":4,"wait_s":1})"
                        "\n"
                        R"({"type":"eval","step":5,"loss":2})"
                        "\n"));
  EXPECT_EQ(events_of(runs),
            (std::vector<std::string>{
                "X step 1 2 0.00 1.00", "X waiting for data 2 0.00 0.25", "X bf16 2 0.00 1.00", "X step 3 2 1.00 1.00",
                "X waiting for data 2 1.00 0.25", "X evaluation 2 2.00 0.50", "X save 3 2 2.50 2.00",
                "i restart 2 4.50 -1.0", "X step 5 2 4.50 1.00", "X waiting for data 2 4.50 0.25",
                "i evaluation 2 5.50 -1.0", "X save 5 2 5.50 4.00", "X fp8 rowwise 2 1.00 5.50"}));
}

TEST(Trace, NeedsStepDurations) {
  const Log run = run_of(step(1, 8, "2"));
  EXPECT_EQ(test::error_of([&] {
              write_trace({&run, 1}, [](std::string_view) {});
            }),
            run.path + ": has no step durations (step_s), which a timeline needs");
}

TEST(Prometheus, LastStepOfEachRun) {
  const std::vector<Log> runs = runs_of(run_of(step(1, 8, "3") + step(2, 16, "2.5") +
                                                   R"({"type":"end"})"
                                                   "\n",
                                               "a\"b.jsonl"),
                                        run_of(R"({"type":"step","step":1,"loss":null,"x-y":1})"
                                               "\n"));
  EXPECT_EQ(prometheus(runs),
            "# HELP fp8_step Updates completed.\n"
            "# TYPE fp8_step gauge\n"
            "fp8_step{run=\"a\\\"b\"} 2\n"
            "fp8_step{run=\"run\"} 1\n"
            "# HELP fp8_tokens Tokens seen.\n"
            "# TYPE fp8_tokens gauge\n"
            "fp8_tokens{run=\"a\\\"b\"} 16\n"
            "# HELP fp8_finished Whether the log has an end record.\n"
            "# TYPE fp8_finished gauge\n"
            "fp8_finished{run=\"a\\\"b\"} 1\n"
            "fp8_finished{run=\"run\"} 0\n"
            "# HELP fp8_loss Field loss of the last step.\n"
            "# TYPE fp8_loss gauge\n"
            "fp8_loss{run=\"a\\\"b\"} 2.5\n"
            "# HELP fp8_x_y Field x-y of the last step.\n"
            "# TYPE fp8_x_y gauge\n"
            "fp8_x_y{run=\"run\"} 1\n"
            "# EOF\n");
}

TEST(Prometheus, BaseUnitsAndEvaluation) {
  const Log run = run_of(
      R"({"type":"step","step":1,"x_s":2,"tokens_per_s":3,"model_tflops":0.25,"fp8_flop_share":0.5,"a_share_total":1,)"
      R"("memory_peak_bytes":9,"x-s":4,"x.s":5,"time":"1970-01-02T00:00:00.500Z"})"
      "\n"
      R"({"type":"eval","step":1,"loss":1.5})"
      "\n");
  std::string values;
  std::istringstream lines(prometheus({&run, 1}));
  for (std::string line; std::getline(lines, line);)
    if (!line.starts_with("#")) values += line.substr(4, line.find('{') - 4) + line.substr(line.find('}') + 1) + ",";
  EXPECT_EQ(values,
            "step 1,finished 0,eval_loss 1.5,eval_step 1,x_seconds 2,tokens_per_second 3,model_flops_per_second "
            "250000000000,flop_ratio 0.5,a_total_ratio 1,memory_peak_bytes 9,x_seconds_2 4,x_seconds_3 5,"
            "time_seconds 86400.5,");
}

}  // namespace
}  // namespace fp8::log
