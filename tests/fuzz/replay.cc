// Replays the corpora of all targets for make check, without a fuzzer: the test NAME reads tests/fuzz/corpus/NAME.
// Checks the time and memory of each input, and that some are accepted and some refused.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <ctime>
#include <set>

#include "fuzz.h"

// Defined by libFuzzer; targets with a custom mutator call it.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t*, std::size_t size, std::size_t) { return size; }

namespace fp8::fuzz {
namespace {

std::set<std::string> names() {
  std::set<std::string> all;
  for (const auto& [name, target] : targets()) all.insert(name);
  return all;
}

class Corpus : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Fuzz, Corpus, ::testing::ValuesIn(names()), [](const auto& test) { return test.param; });

TEST_P(Corpus, IsParsedInBoundedTimeAndMemory) {
  constexpr double kSeconds = 10;           // per input, with sanitizers; milliseconds without
  constexpr long kKilobytes = 1024 * 1024;  // limit for the memory of the process
  counts() = {};
  for (const auto& file : std::filesystem::directory_iterator("tests/fuzz/corpus/" + GetParam())) {
    const std::string bytes = test::read_file(file.path().string());
    SCOPED_TRACE(file.path().string());
    const std::clock_t begin = std::clock();
    EXPECT_EQ(targets().at(GetParam())(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()), 0);
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, kSeconds);
  }
  EXPECT_GT(counts().accepted, 0U);
  EXPECT_GT(counts().refused, 0U);
  rusage used{};
  ASSERT_EQ(getrusage(RUSAGE_SELF, &used), 0);
  EXPECT_LT(used.ru_maxrss, kKilobytes);
}

TEST(Corpora, BelongToOneTargetEach) {
  std::set<std::string> folders;
  for (const auto& folder : std::filesystem::directory_iterator("tests/fuzz/corpus"))
    folders.insert(folder.path().filename().string());
  EXPECT_EQ(folders, names());
}

}  // namespace
}  // namespace fp8::fuzz
