/// GoogleTest helpers for the tests of all crates: a temporary folder, the message of an Error. Depends only on the
/// crate base. Helpers for the tests of one crate are in that crate's tests/.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "fp8/base/error.h"
#include "fp8_files.h"

namespace fp8::test {

/// A fixture with a temporary folder; path(), at(), write() and names() are inherited from TemporaryFolder.
class FolderTest : public ::testing::Test, protected TemporaryFolder {};

/// What error_of() returns if nothing is thrown.
inline constexpr const char* kNoError = "no error";

/// Returns the message of the Error that `call` throws and expects `code` as its exit status; kNoError if none is
/// thrown.
template <class Call>
std::string error_of(Call&& call, Exit code = Exit::bad) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return kNoError;
}

}  // namespace fp8::test

/// Expects that `text` contains `part`.
#define EXPECT_HOLDS(text, part) \
  EXPECT_PRED2([](const std::string& a, const std::string& b) { return a.find(b) != std::string::npos; }, text, part)
