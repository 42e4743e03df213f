// The file of tensor statistics on a disk that is full.
#include "fp8/train/observe.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>

#include "fp8_test.h"

namespace fp8::train {
namespace {

class TensorLogTest : public test::FolderTest {
 protected:
  std::vector<json::Value> records(int count) {
    return std::vector<json::Value>(static_cast<std::size_t>(count),
                                    json::object({{"type", "operand"}, {"name", "model.layers.0.mlp.up_proj.weight"}}));
  }
  LockedFolder held_;
};

TEST_F(TensorLogTest, AFullDiskLeavesNoPartOfAStep) {
  const TensorLog log(path(), held_);
  EXPECT_EQ(log.write(1, records(3)), std::nullopt);
  const std::string before = test::read_file(at("tensors.jsonl"));
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  const rlimit limit{before.size() + before.size() / 2, unlimited.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::optional<std::string> failed = log.write(2, records(3));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &unlimited), 0);
  (void)std::signal(SIGXFSZ, handler);
  EXPECT_EQ(failed.value_or(""),
            at("tensors.jsonl") + ": cannot write: File too large; the statistics of this step are lost");
  EXPECT_EQ(test::read_file(at("tensors.jsonl")), before);
  EXPECT_EQ(log.write(3, records(1)), std::nullopt);
  const std::string after = test::read_file(at("tensors.jsonl"));
  EXPECT_TRUE(after.starts_with(before + "{")) << after;
  EXPECT_EQ(after.find("\"step\":2"), std::string::npos);
}

}  // namespace
}  // namespace fp8::train
