/// Common code of the fuzz targets. A target passes its input to a parser, which may throw only fp8::Error; any other
/// exception, trap or sanitizer report is a finding. make fuzz links each target with libFuzzer, make check all with
/// replay.cc, which gets the name of each in FP8_REPLAY.
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

#ifdef FP8_REPLAY
#define FP8_JOIN(a, b) a##b
#define FP8_NAMED(prefix, name) FP8_JOIN(prefix, name)
#define FP8_TEXT(name) #name
#define FP8_NAME_OF(name) FP8_TEXT(name)
#define LLVMFuzzerTestOneInput FP8_NAMED(fuzz_, FP8_REPLAY)
#define LLVMFuzzerCustomMutator FP8_NAMED(mutate_, FP8_REPLAY)
#endif

/// The entry point that libFuzzer calls; returns 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fp8::fuzz {

/// Entry points of the targets in this program, by name; those that libFuzzer calls are not listed.
inline std::map<std::string, decltype(&LLVMFuzzerTestOneInput)>& targets() {
  static std::map<std::string, decltype(&LLVMFuzzerTestOneInput)> all;
  return all;
}
#ifdef FP8_REPLAY
[[maybe_unused]] static const bool listed = targets().emplace(FP8_NAME_OF(FP8_REPLAY), &LLVMFuzzerTestOneInput).second;
#endif

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
