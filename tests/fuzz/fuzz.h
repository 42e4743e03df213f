/// Common code of the fuzz targets. A target passes its input to a parser, which may throw only fp8::Error; any other
/// exception, trap or sanitizer report is a finding. make fuzz links each target with libFuzzer, make check all with
/// replay.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "fp8/base/error.h"
#include "fp8_files.h"

/// FP8_FUZZ(target) { ... } defines the entry point of a target, a function of `data` and `size` that returns 0.
/// libFuzzer calls it by one name in all programs; with FP8_REPLAY, targets() lists it under the name of the target.
/// FP8_MUTATOR is the name of its mutator, which only libFuzzer calls.
#ifdef FP8_REPLAY
#define FP8_FUZZ(target)                                                                                             \
  static int fuzz_##target(const std::uint8_t* data, std::size_t size);                                              \
  [[maybe_unused]] static const bool listed_##target = fp8::fuzz::targets().emplace(#target, &fuzz_##target).second; \
  static int fuzz_##target(const std::uint8_t* data, std::size_t size)
#define FP8_MUTATOR(target) mutate_##target
#else
#define FP8_FUZZ(target) extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
#define FP8_MUTATOR(target) LLVMFuzzerCustomMutator
#endif

namespace fp8::fuzz {

/// Entry points of the targets in this program, by name; those that libFuzzer calls are not listed.
inline std::map<std::string, int (*)(const std::uint8_t*, std::size_t)>& targets() {
  static std::map<std::string, int (*)(const std::uint8_t*, std::size_t)> all;
  return all;
}

/// Number of accepted and refused inputs; replay.cc requires that a corpus has both.
struct Counts {
  std::size_t accepted = 0;
  std::size_t refused = 0;
};

/// Counts of this process.
inline Counts& counts() {
  static Counts all;
  return all;
}

/// Aborts, which is a finding, unless `held`.
inline void require(bool held, const char* what) {
  if (held) return;
  std::fprintf(stderr, "not held: %s\n", what);
  std::abort();
}

/// The input as text.
inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Runs `call` and counts the input as accepted or, if it throws Error, refused. The Error must have a message and
/// status 2.
template <class Call>
int judge(Call&& call) {
  try {
    call();
    ++counts().accepted;
  } catch (const Error& e) {
    require(e.code() == Exit::bad && e.what()[0] != '\0', "an error has a message and status 2");
    ++counts().refused;
  }
  return 0;
}

/// A temporary folder of this target for the lifetime of the process.
[[maybe_unused]] static const test::TemporaryFolder& folder() {
  static const test::TemporaryFolder scratch;
  return scratch;
}

}  // namespace fp8::fuzz
