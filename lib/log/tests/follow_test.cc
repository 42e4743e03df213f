// Following a log that grows, is truncated, is replaced.
#include "fp8/log/follow.h"

#include <filesystem>

#include "fp8/base/file.h"
#include "run_text.h"

namespace fp8::log {
namespace {

const Wanted kAll{.all = true, .metrics = {}};

void append(const std::string& path, const std::string& text) {
  File f = File::open_append(path);
  f.write_all(text);
  f.close();
}

std::vector<double> losses(const Follower& follower) {
  const std::span<const double> loss = follower.run()->find("loss");
  return {loss.begin(), loss.end()};
}

TEST(Follower, ReadsWholeLines) {
  const test::TemporaryFolder scratch;
  Follower follower(scratch.at("run"), kAll);
  EXPECT_FALSE(follower.poll(0));
  EXPECT_EQ(follower.run(), nullptr);
  const std::string path = scratch.write("run/log.jsonl", "");
  EXPECT_FALSE(follower.poll(0));
  append(path, step(1, 8, "3") + step(2, 16, "2").substr(0, 20));
  EXPECT_TRUE(follower.poll(0));
  EXPECT_EQ(follower.run()->steps.size(), 1U);
  EXPECT_FALSE(follower.poll(0));
  append(path, step(2, 16, "2").substr(20));
  EXPECT_TRUE(follower.poll(0));
  EXPECT_EQ(losses(follower), (std::vector<double>{3, 2}));
  // A killed writer, and the resumed run.
  append(path, "{\"type\":\n");
  EXPECT_TRUE(follower.poll(0));
  append(path, "{\"type\":\"run\",\"steps\":9}\n" + step(2, 16, "1"));
  EXPECT_TRUE(follower.poll(0));
  EXPECT_EQ(losses(follower), (std::vector<double>{3, 1}));
  EXPECT_EQ(follower.run()->restarts.size(), 1U);
  append(path, "[]\n");
  EXPECT_EQ(test::error_of([&] { follower.poll(0); }), path + ": line 6: expected an object, found array");
}

TEST(Follower, ReplacedLogIsReadFromItsBeginning) {
  const test::TemporaryFolder scratch;
  const std::string path = scratch.write("a.jsonl", step(1, 8, "3") + step(2, 16, "2"));
  Follower follower(path, kAll);
  EXPECT_TRUE(follower.poll(0));
  test::write_file(path, step(1, 8, "4"));  // shorter
  EXPECT_TRUE(follower.poll(0));
  EXPECT_EQ(losses(follower), (std::vector<double>{4}));
  test::write_file(path, step(1, 8, "5") + step(2, 16, "6"));  // longer, with other content
  EXPECT_TRUE(follower.poll(0));
  EXPECT_EQ(losses(follower), (std::vector<double>{5, 6}));
  std::filesystem::rename(scratch.write("b.jsonl", step(1, 8, "5") + step(2, 16, "6") + step(3, 24, "7")), path);
  EXPECT_TRUE(follower.poll(0));
  EXPECT_EQ(follower.run()->steps.size(), 3U);
  std::filesystem::remove(path);
  EXPECT_FALSE(follower.poll(0));
  EXPECT_EQ(follower.run()->steps.size(), 3U);
}

TEST(Progress, IsOfTheLastSteps) {
  std::string text = R"({"type":"run","steps":200})"
                     "\n";
  for (int i = 1; i <= 100; ++i) {
    text += R"({"type":"step","step":)" + std::to_string(i) + R"(,"loss":2,"step_s":)" + (i <= 50 ? "8" : "0.5") +
            R"(,"tokens_per_s":16})"
            "\n";
  }
  const Progress p = progress(run_of(text + R"({"type":"checkpoint","step":90})"
                                            "\n"));
  EXPECT_EQ(p.steps, 100);
  EXPECT_EQ(p.planned, 200);
  EXPECT_EQ(p.step_s, 0.5);
  EXPECT_EQ(p.seconds_left, 50);
  EXPECT_EQ(p.tokens_per_s, 16);
  EXPECT_EQ(p.loss, 2);
  EXPECT_EQ(p.checkpoint, 90);
  EXPECT_EQ(p.tokens, std::nullopt);
  EXPECT_EQ(progress(run_of(step(1, 8, "null"))).loss, std::nullopt);
}

}  // namespace
}  // namespace fp8::log
