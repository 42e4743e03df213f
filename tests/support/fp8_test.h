/// What the tests of every crate share: a folder of a test's own, the message of an error; small files lie in
/// fp8_files.h. Nothing here knows a crate above base; what one crate's tests share lies with them.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "fp8/base/error.h"
#include "fp8_files.h"

namespace fp8::test {

/// A fixture with a folder of its own: path(), at(), write() and names() are those of TemporaryFolder.
class FolderTest : public ::testing::Test, protected TemporaryFolder {};

/// The message of the Error that `call` throws, whose status must be `code`; "no error" when it throws none.
template <class Call>
std::string error_of(Call&& call, Exit code = Exit::bad) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "no error";
}

}  // namespace fp8::test

/// `text` holds `part`.
#define EXPECT_HOLDS(text, part) \
  EXPECT_PRED2([](const std::string& a, const std::string& b) { return a.find(b) != std::string::npos; }, text, part)
