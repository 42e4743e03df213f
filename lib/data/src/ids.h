// Inputs that hold token ids. Private to the crate.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "sink.h"

namespace fp8::data {

// Bytes read at a time; a multiple of the size of every id.
inline constexpr std::size_t kPiece = std::size_t{1} << 18U;

// Whether `head`, the first bytes of a file, begin like a file of llm.c.
bool has_llmc_magic(std::span<const std::byte> head);

// Little-endian ids without a header. Throw Error `path: reason`.
void read_u16(const std::string& path, Sink& sink);
void read_u32(const std::string& path, Sink& sink);

// A data file of llm.c. Throws Error `path: reason`.
void read_llmc(const std::string& path, Sink& sink);

// Whether `path` is, or its .idx beside it is, the index of an indexed dataset of Megatron-LM.
bool is_megatron(const std::string& path);

// The path of an indexed dataset without .bin or .idx.
std::string megatron_prefix(const std::string& path);

// An indexed dataset of Megatron-LM: `path` is the .bin, the .idx, or both without their extension. Its documents are
// the documents of the index. Throws Error `path: reason`.
void read_megatron(const std::string& path, Sink& sink);

}  // namespace fp8::data
