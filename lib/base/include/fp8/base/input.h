/// Reads from a descriptor that another object owns, such as standard input. Whole files are in file.h. Every function
/// throws Error `name: cannot read: reason` on failure.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace fp8 {

/// Reads up to `bytes.size()` bytes, 1 GiB at most; returns the number read, 0 only at the end or if `bytes` is empty.
std::size_t read_some(int fd, const std::string& name, std::span<std::byte> bytes);

/// Appends up to `most` bytes, 1 GiB at most, to `text`; returns the number appended, 0 only at the end. `text` is
/// unchanged if this throws.
std::size_t append_some(int fd, const std::string& name, std::string& text, std::size_t most);

}  // namespace fp8
