// The instruction set in use. It is selected once per process, so each test runs in a child process.
#include "fp8/base/cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>

#include "fp8_test.h"

namespace fp8 {
namespace {

constexpr Isa kAll[] = {Isa::baseline, Isa::avx512, Isa::avx512_bf16};

// Ends a child process with status 0 if `ok` holds under FP8_CPU_ISA=value.
void expect_with(const std::string& value, const std::function<bool()>& ok) {
  EXPECT_EXIT(
      {
        ::setenv("FP8_CPU_ISA", value.c_str(), 1);
        std::_Exit(ok() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "")
      << value;
}

TEST(CpuIsa, IsTheSupportedSetOrLower) {
  for (const Isa isa : kAll)
    expect_with(std::string(name_of(isa)), [&] { return cpu_isa() == std::min(isa, supported_isa()); });
  expect_with("", [] { return cpu_isa() == supported_isa(); });
}

TEST(CpuIsa, RefusesAnUnknownName) {
  expect_with("avx1024", [] {
    return test::error_of([] { (void)cpu_isa(); }) ==
           "FP8_CPU_ISA: 'avx1024': unknown; one of " + std::string(name_of(Isa::baseline)) + ", avx512, avx512_bf16";
  });
}

}  // namespace
}  // namespace fp8
