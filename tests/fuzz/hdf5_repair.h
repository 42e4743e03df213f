/// Lets a fuzzer past digests: after each mutation of an HDF5 file, the digests and checksums in it are made right
/// again, those of the user block, the superblock, object headers, and the tables of large groups. Nothing else is
/// repaired, so that what the parser sees is as hostile as the mutation left it. An HDF5 file of a forger looks so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace fp8::fuzz {

/// Repairs `file` in place; `magic` is the first word of its user block.
void repair(std::span<std::uint8_t> file, std::string_view magic);

/// One mutation of libFuzzer, then repair().
std::size_t mutate_hdf5(std::uint8_t* data, std::size_t size, std::size_t max_size, std::string_view magic);

}  // namespace fp8::fuzz
