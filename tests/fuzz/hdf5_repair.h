/// Makes digests and checksums of an HDF5 file valid after a mutation, so that fuzzing reaches the parser: those of the
/// user block, the superblock, object headers, and the tables of large groups. Nothing else is repaired. A malicious
/// file may have valid digests too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace fp8::fuzz {

/// Repairs `file` in place; `magic` is the first word of its user block.
void repair(std::span<std::uint8_t> file, std::string_view magic);

/// Applies one mutation of libFuzzer, then repair(); returns the new size.
std::size_t mutate_hdf5(std::uint8_t* data, std::size_t size, std::size_t max_size, std::string_view magic);

}  // namespace fp8::fuzz
