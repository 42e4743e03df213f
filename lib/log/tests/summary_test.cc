// Statistics and summaries of exact numbers.
#include "fp8/log/summary.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include "fp8/json/json.h"
#include "run_text.h"
#include "statistics.h"

namespace fp8::log {
namespace {

TEST(Statistics, SkipNonFiniteValues) {
  const std::vector<double> values = {4, kNan, 1, 3, std::numeric_limits<double>::infinity(), 2};
  EXPECT_EQ(mean(values), 2.5);
  EXPECT_EQ(quantile(values, 0.5), 2.5);
  EXPECT_EQ(quantile(values, 0), 1);
  EXPECT_EQ(quantile(values, 1), 4);
  EXPECT_EQ(least(values), 1);
  EXPECT_EQ(greatest(values), 4);
  EXPECT_EQ(last(values), 2);
  const std::vector<double> none = {kNan};
  EXPECT_EQ(mean(none), std::nullopt);
  EXPECT_EQ(quantile(none, 0.5), std::nullopt);
  EXPECT_EQ(least(none), std::nullopt);
  EXPECT_EQ(last(none), std::nullopt);
  EXPECT_EQ(last(std::vector<double>{}), std::nullopt);
}

TEST(Statistics, StandardError) {
  EXPECT_EQ(standard_error(std::vector<double>{1}), std::nullopt);
  EXPECT_EQ(standard_error(std::vector<double>{2, 2, 2}), 0);
  // Two values: lag 1 with weight 1/2: (1 - 1/2) / 1.
  EXPECT_DOUBLE_EQ(standard_error(std::vector<double>{1, 3}).value(), std::sqrt(0.5));
  // Correlated values have a larger standard error than alternating ones.
  std::vector<double> blocks, alternating;
  for (int i = 0; i < 64; ++i) {
    blocks.push_back(i / 8 % 2);
    alternating.push_back(i % 2);
  }
  EXPECT_GT(standard_error(blocks).value(), 3 * standard_error(alternating).value());
}

TEST(Summary, LastPart) {
  EXPECT_EQ(last_part(0), 0U);
  EXPECT_EQ(last_part(1), 1U);
  EXPECT_EQ(last_part(4), 2U);
  EXPECT_EQ(last_part(100), 50U);
  EXPECT_EQ(last_part(400), 50U);
  EXPECT_EQ(last_part(1000), 100U);
}

TEST(Summary, Fields) {
  const auto line = [](int n, double loss, int rate, bool skipped) {
    return R"({"type":"step","step":)" + std::to_string(n) + R"(,"tokens":)" + std::to_string(8 * n) + R"(,"loss":)" +
           std::to_string(loss) + R"(,"step_s":0.5,"data_wait_s":0.125,"tokens_per_s":)" + std::to_string(rate) +
           R"(,"memory_peak_bytes":)" + std::to_string(1000 - n) + R"(,"sent_bytes":)" + std::to_string(8 * n) +
           R"(,"fp8_flop_share":0.5,"fp8_flop_share_total":0.25,"skipped":)" + (skipped ? "true" : "false") +
           R"(,"precision":"fp8","recipe":"rowwise","emulated":true})"
           "\n";
  };
  const Summary s =
      summarize(run_of(R"({"type":"run","steps":8})"
                       "\n" +
                       line(1, 8, 10, false) + line(2, 1, 20, true) + line(3, 3, 30, false) + line(4, 2, 40, false) +
                       R"({"type":"eval","step":4,"loss":2.5})"
                       "\n"));
  EXPECT_EQ(s.steps, 4);
  EXPECT_EQ(s.planned_steps, 8);
  EXPECT_EQ(s.tokens, 32);
  EXPECT_EQ(s.final_loss, 2);
  EXPECT_EQ(s.best_loss, 1);
  EXPECT_EQ(s.mean_loss_last, 2.5);
  EXPECT_EQ(s.last_steps, 2);
  EXPECT_EQ(s.eval_loss, 2.5);
  EXPECT_EQ(s.tokens_per_s, 25);
  EXPECT_DOUBLE_EQ(s.tokens_per_s_p10.value(), 13);
  EXPECT_DOUBLE_EQ(s.tokens_per_s_p90.value(), 37);
  EXPECT_EQ(s.data_wait_share, 0.25);
  EXPECT_EQ(s.memory_peak_bytes, 999);
  EXPECT_EQ(s.sent_bytes, 28);
  EXPECT_EQ(s.fp8_flop_share, 0.5);
  EXPECT_EQ(s.fp8_flop_share_total, 0.25);
  EXPECT_EQ(s.precision, "fp8");
  EXPECT_EQ(s.recipe, "rowwise");
  EXPECT_EQ(s.emulated, true);
  EXPECT_EQ(s.skipped, 1);
  EXPECT_FALSE(s.finished);
}

// Means over the last part of the run, of the steps that have them.
TEST(Summary, FieldsOfExperts) {
  const auto line = [](int n, const std::string& fields) {
    return R"({"type":"step","step":)" + std::to_string(n) + R"(,"tokens":)" + std::to_string(8 * n) +
           R"(,"loss":2.0)" + fields + "}\n";
  };
  const auto experts = [](int aux, int idle) {
    return R"(,"aux_loss":)" + std::to_string(aux) + R"(,"z_loss":0.5,"expert_load_max":1.5,"expert_idle":)" +
           std::to_string(idle) + R"(,"expert_passes":)" + std::to_string(idle + 1);
  };
  const Summary s = summarize(
      run_of(line(1, experts(9, 9)) + line(2, experts(9, 9)) + line(3, experts(2, 0)) + line(4, experts(3, 1))));
  EXPECT_EQ(s.last_steps, 2);
  EXPECT_EQ(s.aux_loss, 2.5);
  EXPECT_EQ(s.z_loss, 0.5);
  EXPECT_EQ(s.expert_load_max, 1.5);
  EXPECT_EQ(s.expert_idle, 0.5);
  EXPECT_EQ(s.expert_passes, 1.5);
  EXPECT_EQ(record(s).as_object().at("expert_idle"), json::Value(0.5));
}

TEST(Summary, CountsStepsWithoutTargets) {
  const std::string masked = R"({"type":"step","step":2,"tokens":16,"loss":null,"masked":true})";
  const Summary s = summarize(run_of(step(1, 8, "2") + masked + "\n" + step(3, 24, "1")));
  EXPECT_EQ(s.masked, 1);
  EXPECT_EQ(record(s).as_object().at("masked").as_int(), 1);
}

TEST(Summary, ListsChangedSettings) {
  const auto start = [](const std::string& lr, const std::string& changed) {
    return R"({"type":"run","config":{"lr":)" + lr + "}" + changed + "}\n";
  };
  const std::string lr = R"(,"changed":[{"name":"lr","old":0.5,"new":0.25},{"name":1},3])";
  const std::string text = start("0.5", "") + step(1, 8, "3") + step(2, 16, "3") + start("0.25", lr) + step(3, 24, "2");
  const Summary once = summarize(run_of(text)), again = summarize(run_of(text + start("0.25", "") + step(4, 32, "1"))),
                repeated = summarize(run_of(text + start("0.25", lr) + step(3, 24, "2"))),
                undone = summarize(run_of(text + start("0.5", "") + step(3, 24, "2")));
  const Change change{"lr", 0.5, 0.25};
  for (const Summary* s : {&once, &again, &repeated}) {
    ASSERT_EQ(s->changes.size(), 1U);
    EXPECT_EQ(s->changes[0], (std::pair<std::int64_t, Change>{3, change}));
  }
  EXPECT_TRUE(undone.changes.empty());
  const json::Value listed = record(once).as_object().at("changes");
  EXPECT_EQ(json::dump(listed), R"([{"step":3,"name":"lr","old":0.5,"new":0.25}])");
}

// The mesh is that of the last start; one that is unknown has no text.
TEST(Summary, HasTheLastMesh) {
  const auto start = [](const std::string& mesh, int batch) {
    return R"({"type":"run","config":{"batch-size":)" + std::to_string(batch) + R"(},"mesh":{)" + mesh + "}}\n";
  };
  const std::string one = start(R"("dp_replicate":1,"dp_shard":1,"pp":1,"ep":1,"tp":1)", 8) + step(1, 8, "3"),
                    several = start(R"("dp_replicate":2,"dp_shard":2,"pp":1,"ep":2,"tp":1)", 2) + step(2, 16, "2");
  EXPECT_EQ(summarize(run_of(one)).mesh, "1 rank");
  EXPECT_EQ(summarize(run_of(one + several)).mesh, "dp_replicate=2 dp_shard=2 ep=2");
  EXPECT_EQ(summarize(run_of(start("", 2) + step(1, 8, "3"))).mesh, "");
}

// Lines of steps from `first` to `last`, each of which names a rank with its lag.
std::string named(int first, int last, int rank, double lag) {
  std::string text;
  for (int n = first; n <= last; ++n)
    text += R"({"type":"step","step":)" + std::to_string(n) + R"(,"loss":1,"slowest_rank":)" + std::to_string(rank) +
            R"(,"slowest_lag":)" + std::to_string(lag) + "}\n";
  return text;
}

TEST(Summary, NamesTheRankThatNineInTenRecordsName) {
  const auto start = [](const std::string& hosts) { return R"({"type":"run","config":{},"hosts":[)" + hosts + "]}\n"; };
  const std::string two = start(R"({"host":"a","ranks":"0-3,8"},{"host":"b","ranks":"4-7,9-11"})"), one = start("");
  const auto slow = [](const std::string& log) {
    const std::optional<SlowRank> found = summarize(run_of(log)).slow_rank;
    return found ? text_of(*found) : "none";
  };
  EXPECT_EQ(slow(one + named(1, 8, 5, 0.12)), "rank 5 waits least: 12 % slower than the median");
  EXPECT_EQ(slow(two + named(1, 8, 5, 0.12)), "rank 5 on b waits least: 12 % slower than the median");
  EXPECT_EQ(slow(two + named(1, 8, 8, 0.12)), "rank 8 on a waits least: 12 % slower than the median");
  EXPECT_EQ(slow(two + named(1, 8, 12, 0.12)), "rank 12 waits least: 12 % slower than the median") << "on no machine";
  EXPECT_EQ(slow(one + named(1, 7, 5, 0.12)), "none") << "too few records";
  EXPECT_EQ(slow(one + named(1, 7, 5, 0.12) + step(8, 8, "1") + step(9, 9, "1")), "none") << "two without a rank";
  EXPECT_EQ(slow(one + named(1, 8, 5, 0.04)), "none") << "a small lag";
  EXPECT_EQ(slow(one + named(1, 4, 5, 0.04) + named(5, 9, 5, 0.06)), "rank 5 waits least: 6 % slower than the median");
  EXPECT_EQ(slow(one + named(1, 9, 5, 0.5) + named(10, 10, 4, 9)), "rank 5 waits least: 50 % slower than the median");
  EXPECT_EQ(slow(one + named(1, 8, 5, 0.5) + named(9, 10, 4, 9)), "none") << "eight in ten";
  EXPECT_EQ(slow(one + named(1, 90, 4, 0.5) + named(91, 140, 5, 0.1)),
            "rank 5 waits least: 10 % slower than the median")
      << "the last 50";
  EXPECT_EQ(slow(two + named(1, 20, 5, 0.5) + one + named(15, 21, 5, 0.1)), "none") << "a start with seven records";
  EXPECT_EQ(slow(two + named(1, 20, 5, 0.5) + one + named(15, 22, 6, 0.1)),
            "rank 6 waits least: 10 % slower than the median")
      << "the machines of the newest start";
  EXPECT_EQ(slow(one + named(1, 8, -1, 0.5)), "none");
}

TEST(Summary, MissingValuesAreNull) {
  const json::Value value = record(summarize(run_of(step(1, 8, "null"))));
  const json::Object& r = value.as_object();
  EXPECT_EQ(r.at("type").as_string(), "summary");
  for (const char* key : {"final_loss",        "best_loss",
                          "mean_loss_last",    "eval_loss",
                          "tokens_per_s",      "tokens_per_s_p10",
                          "tokens_per_s_p90",  "data_wait_share",
                          "memory_peak_bytes", "sent_bytes",
                          "fp8_flop_share",    "fp8_flop_share_total",
                          "aux_loss",          "z_loss",
                          "expert_load_max",   "expert_idle",
                          "expert_passes",     "experts",
                          "precision",         "recipe",
                          "emulated",          "mesh",
                          "documents",         "adapters",
                          "delayed",           "reason",
                          "planned_steps",     "slowest_rank",
                          "slowest_host",      "slowest_lag"}) {
    EXPECT_TRUE(r.at(key).is_null()) << key;
  }
  EXPECT_EQ(r.at("steps").as_int(), 1);
  EXPECT_EQ(r.at("tokens").as_int(), 8);
  EXPECT_FALSE(r.at("finished").as_bool());
}

// The best evaluation, and the best of the checkpoints that are still there.
TEST(Summary, BestEvaluationAndCheckpoint) {
  const test::TemporaryFolder scratch;
  const auto eval = [](int at, const std::string& loss, int targets = 7) {
    return R"({"type":"eval","step":)" + std::to_string(at) + R"(,"loss":)" + loss + R"(,"tokens":)" +
           std::to_string(targets) + "}\n" + R"({"type":"checkpoint","step":)" + std::to_string(at) +
           R"(,"path":"r/step-)" + std::to_string(at) + "\"}\n";
  };
  std::string text;
  for (int i = 1; i <= 5; ++i)
    text += step(i, 8 * i, "3") + eval(i, i == 1 ? "0.5" : i == 3 ? "2.0" : i == 4 ? "2.1" : "2.5", i == 1 ? 1 : 7);
  const Summary all = summarize(run_of(text));
  EXPECT_EQ(all.eval_loss, 2.5);
  EXPECT_EQ(all.best_eval_loss, 2.0) << "that of step 1 is over other targets";
  EXPECT_EQ(all.best_eval_step, 3);
  EXPECT_EQ(all.best_checkpoint, 3);
  std::filesystem::create_directories(scratch.at("r/step-4"));
  std::filesystem::create_directories(scratch.at("r/step-5"));
  (void)scratch.write("r/log.jsonl", text);
  const Summary pruned = summarize(read_run(scratch.at("r"), {.all = true, .metrics = {}}));
  EXPECT_EQ(pruned.best_eval_step, 3);
  EXPECT_EQ(pruned.best_checkpoint, 4);
}

// The summary shows the documents of the run record, in which "auto" is resolved.
TEST(Summary, DocumentsAreThoseOfTheLastStart) {
  const std::string run = R"({"type":"run","config":{"documents":"auto"},"documents":"joined"})",
                    last = R"({"type":"run","config":{"documents":"auto"},"documents":"separate"})";
  EXPECT_EQ(summarize(run_of(run + "\n" + step(1, 8, "2.0"))).documents, "joined");
  EXPECT_EQ(summarize(run_of(run + "\n" + step(1, 8, "2.0") + last + "\n" + step(2, 16, "2.0"))).documents, "separate");
}

TEST(Summary, SaysTheAdaptersOfTheLastStart) {
  const std::string config = R"({"lora-rank":8,"lora-alpha":null,"lora-targets":["q_proj","v_proj"]})";
  const std::string run = R"({"type":"run","config":)" + config + R"(,"settings":{"lora-rank":8,"lora-alpha":16.0}})";
  EXPECT_EQ(summarize(run_of(run + "\n" + step(1, 8, "2.0"))).adapters, "rank 8, alpha 16 on q_proj,v_proj");
  const std::string more = R"({"type":"run","config":{"lora-rank":8,"lora-dropout":0.1,"rslora":true}})";
  EXPECT_EQ(summarize(run_of(more + "\n" + step(1, 8, "2.0"))).adapters, "rank 8, rslora, dropout 0.1");
  EXPECT_EQ(summarize(run_of(R"({"type":"run","config":{"lora-rank":null}})" + std::string("\n") + step(1, 8, "2.0")))
                .adapters,
            "");
  EXPECT_EQ(
      summarize(run_of(R"({"type":"run","config":{"lora-rank":0}})" + std::string("\n") + step(1, 8, "2.0"))).adapters,
      "");
}

// With --lora no flag gives them.
TEST(Summary, SaysTheSettingsOfAnAdapterThatWasRead) {
  const std::string config = R"({"lora-rank":null,"lora-alpha":null,"lora-dropout":null,"rslora":false,"lora":"a"})",
                    settings = R"({"lora-rank":8,"lora-alpha":16.0,"lora-dropout":0.25,"rslora":true,"lora":"1f"})";
  const std::string run = R"({"type":"run","config":)" + config + R"(,"settings":)" + settings + "}\n";
  EXPECT_EQ(summarize(run_of(run + step(1, 8, "2.0"))).adapters, "rank 8, alpha 16, rslora, dropout 0.25");
}

TEST(Summary, SaysTheSettingsOfDelayed) {
  const auto delayed = [](const std::string& recipe, const std::string& margin) {
    const std::string config = R"({"amax-history":16,"amax-algo":"most_recent","margin":)" + margin + "}";
    const std::string start = R"({"type":"run","precision":"fp8","recipe":")" + recipe + R"(","config":)" + config;
    return summarize(run_of(start + "}\n" + step(1, 8, "2.0"))).delayed;
  };
  EXPECT_EQ(delayed("delayed", "0"), "history 16, most_recent");
  EXPECT_EQ(delayed("delayed", "3"), "history 16, most_recent, margin 3");
  EXPECT_EQ(delayed("tensorwise", "3"), "");
}

TEST(Summary, RunWithoutSteps) {
  const Summary s = summarize(run_of(R"({"type":"run","precision":"bf16"})"
                                     "\n"));
  EXPECT_EQ(s.steps, 0);
  EXPECT_EQ(s.tokens, std::nullopt);
  EXPECT_EQ(s.last_steps, 0);
}

}  // namespace
}  // namespace fp8::log
