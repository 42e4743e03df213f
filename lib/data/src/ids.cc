// Raw ids and files of llm.c.
#include "ids.h"

#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "input.h"

static_assert(std::endian::native == std::endian::little, "ids are little-endian in every file");

namespace fp8::data {
namespace {

constexpr std::size_t kLlmcHeader = 256 * sizeof(std::int32_t);
constexpr std::int32_t kLlmcMagic16 = 20240520;
constexpr std::int32_t kLlmcMagic32 = 20240801;

template <class T>
void read_ids(Input& input, Sink& sink) {
  std::vector<T> piece(kPiece / sizeof(T));
  std::vector<std::uint32_t> wide;
  while (const std::size_t bytes = input.fill(std::as_writable_bytes(std::span(piece)))) {
    if (bytes % sizeof(T) != 0) {
      throw Error(input.name() + ": its size is not a multiple of " + std::to_string(sizeof(T)) + " bytes");
    }
    wide.assign(piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(bytes / sizeof(T)));
    sink.append(wide);
  }
  sink.end_document();
}

}  // namespace

bool has_llmc_magic(std::span<const std::byte> head) {
  if (head.size() < kLlmcHeader) return false;
  std::int32_t magic = 0;
  std::memcpy(&magic, head.data(), sizeof magic);
  return magic == kLlmcMagic16 || magic == kLlmcMagic32;
}

void read_u16(const std::string& path, Sink& sink) {
  Input input(path, sink.waiting());
  read_ids<std::uint16_t>(input, sink);
}

void read_u32(const std::string& path, Sink& sink) {
  Input input(path, sink.waiting());
  read_ids<std::uint32_t>(input, sink);
}

void read_llmc(const std::string& path, Sink& sink) {
  Input input(path, sink.waiting());
  const std::uint64_t size = input.file().size();
  std::array<std::int32_t, 256> header{};
  if (input.fill(std::as_writable_bytes(std::span(header))) != kLlmcHeader) {
    throw Error(path + ": not an llm.c file: shorter than its header of 1024 bytes");
  }
  const std::int32_t magic = header[0];
  if (magic != kLlmcMagic16 && magic != kLlmcMagic32) {
    throw Error(path + ": not an llm.c file: it begins with " + std::to_string(magic) +
                ", not with 20240520 or 20240801");
  }
  if (header[1] != 1 && header[1] != 7) {
    throw Error(path + ": llm.c version " + std::to_string(header[1]) + " is not known (1 and 7 are)");
  }
  const std::int64_t width = magic == kLlmcMagic16 ? 2 : 4;
  const std::int64_t there = checked_cast<std::int64_t>(size, path) - static_cast<std::int64_t>(kLlmcHeader);
  if (header[2] < 0 || header[2] * width != there) {
    throw Error(path + ": its header states " + std::to_string(header[2]) + " tokens of " + std::to_string(width) +
                " bytes, but " + std::to_string(there) + " bytes follow");
  }
  width == 2 ? read_ids<std::uint16_t>(input, sink) : read_ids<std::uint32_t>(input, sink);
}

}  // namespace fp8::data
