/// Cases that take long, which make check leaves out and counts, and make check-long runs.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

namespace fp8::test {

/// Whether to run `cases` that take long: FP8_LONG is set. If it is not, prints their number, which tests/run adds up.
inline bool long_run(int cases = 1) {
  const char* const set = std::getenv("FP8_LONG");
  if (set != nullptr && *set != '\0') return true;
  if (cases > 0) std::printf("# %d long cases left out\n", cases);
  return false;
}

}  // namespace fp8::test

/// Skips the rest of a test that takes long, unless FP8_LONG is set. tests/run knows the message.
#define FP8_LONG_TEST() \
  if (!::fp8::test::long_run()) GTEST_SKIP() << "make check-long runs it"
