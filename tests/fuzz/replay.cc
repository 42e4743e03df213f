// Replays the corpus of a target for make check, without a fuzzer: build/test/fuzz_NAME_test reads
// tests/fuzz/corpus/NAME. Checks the time and memory of each input, and that some are accepted and some refused.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <ctime>

#include "fuzz.h"

// Defined by libFuzzer; targets with a custom mutator call it.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t*, std::size_t size, std::size_t) { return size; }

namespace fp8::fuzz {
namespace {

std::string corpus_of(std::string name) {
  name = std::filesystem::path(name).filename().string();
  name = name.substr(std::string_view("fuzz_").size());
  return "tests/fuzz/corpus/" + name.substr(0, name.rfind("_test"));
}

TEST(Corpus, IsParsedInBoundedTimeAndMemory) {
  constexpr double kSeconds = 10;           // per input, with sanitizers; milliseconds without
  constexpr long kKilobytes = 1024 * 1024;  // limit for the memory of the process
  const std::string corpus = corpus_of(testing::internal::GetArgvs().front());
  for (const auto& file : std::filesystem::directory_iterator(corpus)) {
    const std::string bytes = test::read_file(file.path().string());
    SCOPED_TRACE(file.path().string());
    const std::clock_t begin = std::clock();
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()), 0);
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, kSeconds);
  }
  EXPECT_GT(counts().accepted, 0U);
  EXPECT_GT(counts().refused, 0U);
  rusage used{};
  ASSERT_EQ(getrusage(RUSAGE_SELF, &used), 0);
  EXPECT_LT(used.ru_maxrss, kKilobytes);
}

}  // namespace
}  // namespace fp8::fuzz
