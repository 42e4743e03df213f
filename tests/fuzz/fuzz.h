/// What the targets share. A target hands its input to a parser and lets nothing but fp8::Error come out of it;
/// whatever else is thrown, trapped or sanitized is a finding. Linked with libFuzzer by make fuzz, with replay.cc by
/// make check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "fp8/base/error.h"
#include "fp8_files.h"

/// What libFuzzer calls; returns 0.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace fp8::fuzz {

/// How many inputs this program accepted and refused: replay.cc asks that a corpus has both.
struct Counts {
  std::size_t accepted = 0;
  std::size_t refused = 0;
};

/// The counts of this program.
inline Counts& counts() {
  static Counts all;
  return all;
}

/// Ends the program, which is a finding, unless `held`.
inline void require(bool held, const char* what) {
  if (held) return;
  std::fprintf(stderr, "not held: %s\n", what);
  std::abort();
}

/// The input as text.
inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Runs `call`. An Error refuses the input: it must say something, and ask for status 2.
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

/// A folder that lasts as long as the program.
inline const test::TemporaryFolder& folder() {
  static const test::TemporaryFolder scratch;
  return scratch;
}

}  // namespace fp8::fuzz
