/// Shared helpers of this crate's tests: short names for the common helpers, and values as bytes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "fp8_test.h"

namespace fp8::h5 {

using test::error_of;
using test::FolderTest;
using test::read_file;
using test::write_file;

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace fp8::h5
