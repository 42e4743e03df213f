/// Common code of the fuzz targets. A target passes its input to a parser, which may throw only fp8::Error; any other
/// exception, trap or sanitizer report is a finding. make fuzz links targets with libFuzzer, make check with replay.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fp8/base/error.h"
#include "fp8_files.h"

/// The entry point that libFuzzer calls; returns 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fp8::fuzz {

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

/// A temporary folder for the lifetime of the process.
inline const test::TemporaryFolder& folder() {
  static const test::TemporaryFolder scratch;
  return scratch;
}

}  // namespace fp8::fuzz
