// Checkpoints of a run: the list, their counters, pruning.

#include "fixture.h"
#include "fp8/json/json.h"

namespace fp8::ckpt {
namespace {

using RunFolder = FolderTest;

TEST(StepName, round_trips) {
  EXPECT_EQ(step_name(1000), "step-00001000");
  EXPECT_EQ(step_name(123456789), "step-123456789");
  for (const std::int64_t step : {0, 1, 99999999, 100000000}) EXPECT_EQ(parse_step_name(step_name(step)), step);
  for (const char* name : {"step-1", "step-00001000.tmp", "step-0000100x", "step-000001000", "step-",
                           "step-99999999999999999999", "log.jsonl"})
    EXPECT_EQ(parse_step_name(name), std::nullopt) << name;
}

TEST_F(RunFolder, lists_steps_only_newest_first) {
  EXPECT_TRUE(list_steps(at("none")).empty());
  for (const char* name : {"step-00000002", "step-00000010", "step-100000000", "step-00000011.tmp", "other"})
    std::filesystem::create_directory(at(name));
  write_file(at("step-00000099"), "a file");
  std::vector<std::int64_t> steps;
  for (const StepFolder& s : list_steps(at(""))) steps.push_back(s.step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{100000000, 10, 2}));
  EXPECT_EQ(cleanup_tmp(at("run")).size(), 0U);
  const auto removed = cleanup_tmp(at(""));
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_HOLDS(removed[0], "step-00000011.tmp");
  EXPECT_FALSE(std::filesystem::exists(at("step-00000011.tmp")));
}

// A valid digest does not imply valid counters.
TEST_F(RunFolder, forged_counters_are_refused) {
  const auto refusal = [&](const std::string& train) {
    const std::string path = at("x.h5");
    ModelWriter w(path, FileKind::training, true);
    w.document("config", config());
    w.document("train", json::parse(train, "train"));
    w.commit();
    const Checkpoint forged = Checkpoint::open(path);
    forged.verify();
    const std::string said = error_of([&] { (void)position_of(forged); }), where = path + ": /train: ";
    return said.starts_with(where) ? said.substr(where.size()) : said;
  };
  EXPECT_EQ(refusal(R"({"step":3,"updates":2,"tokens":48})"), "no error");
  EXPECT_EQ(refusal(R"({"step":0,"updates":0,"tokens":0})"), "no error");
  EXPECT_EQ(refusal(R"({"step":-3,"updates":2,"tokens":48})"), "step is -3, which is below 0");
  EXPECT_EQ(refusal(R"({"step":3,"updates":-1,"tokens":48})"), "updates is -1, which is below 0");
  EXPECT_EQ(refusal(R"({"step":3,"updates":2,"tokens":-48})"), "tokens is -48, which is below 0");
  EXPECT_EQ(refusal(R"({"step":3,"updates":4,"tokens":48})"), "4 updates in 3 steps");
  EXPECT_EQ(refusal(R"({"step":3,"updates":3,"tokens":49})"), "49 tokens in 3 steps of equal size");
  EXPECT_EQ(refusal(R"({"step":3,"updates":3,"tokens":0})"), "0 tokens in 3 steps of equal size");
  EXPECT_EQ(refusal(R"({"step":0,"updates":0,"tokens":8})"), "8 tokens in 0 steps of equal size");
  const auto based = [&](const std::string& base) {
    return refusal(R"({"step":5,"updates":5,"tokens":80,"base":)" + base + "}");
  };
  EXPECT_EQ(based(R"({"step":3,"tokens":30,"sample":6})"), "no error");
  EXPECT_EQ(based(R"({"step":5,"tokens":80,"sample":0})"), "no error");
  EXPECT_EQ(based(R"({"step":3,"tokens":31,"sample":6})"), "49 tokens in 2 steps of equal size");
  EXPECT_EQ(based(R"({"step":3,"tokens":90,"sample":6})"), "-10 tokens in 2 steps of equal size");
  EXPECT_EQ(based(R"({"step":6,"tokens":80,"sample":6})"), "0 tokens in -1 steps of equal size");
  EXPECT_EQ(based(R"({"step":3,"tokens":30,"sample":-6})"), "base: sample is -6, which is below 0");
  EXPECT_EQ(based("7"), "base: is no object");
  EXPECT_HOLDS(based(R"({"step":3,"tokens":30})"), "\"sample\"");
  EXPECT_HOLDS(refusal(R"({"step":3.0,"updates":3,"tokens":48})"), "\"step\"");
  EXPECT_HOLDS(refusal(R"({"step":3,"updates":1e300,"tokens":48})"), "\"updates\"");
  EXPECT_HOLDS(refusal(R"({"step":3,"updates":3,"tokens":99999999999999999999})"), "\"tokens\"");
  EXPECT_HOLDS(refusal(R"({"step":3,"tokens":48})"), "\"updates\"");
  EXPECT_HOLDS(refusal("[]"), "has no /train");
}

TEST_F(RunFolder, pruning_keeps_the_newest_and_the_protected) {
  for (const int step : {10, 20, 30, 40, 50}) std::filesystem::create_directory(at(step_name(step)));
  EXPECT_TRUE(prune(at(""), 0).empty());
  const auto removed = prune(at(""), 2, [](std::int64_t step) { return step == 20; });
  EXPECT_EQ(removed.size(), 2U);
  std::vector<std::int64_t> left;
  for (const StepFolder& s : list_steps(at(""))) left.push_back(s.step);
  EXPECT_EQ(left, (std::vector<std::int64_t>{50, 40, 20}));
}

TEST(Provenance, grows_by_one_entry) {
  const json::Value one = append_provenance({}, "fp8-init", "0.1.0", "fp8-init tiny");
  const json::Value two = append_provenance(one, "fp8-convert", "0.1.0", "fp8-convert a.h5");
  ASSERT_EQ(two.as_array().size(), 2U);
  EXPECT_EQ(two.as_array()[0], one.as_array()[0]);
  EXPECT_EQ(two.as_array()[1].as_object().at("tool").as_string(), "fp8-convert");
}

}  // namespace
}  // namespace fp8::ckpt
