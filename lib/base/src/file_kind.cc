// Magic numbers of file formats.
#include "fp8/base/file_kind.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

namespace fp8 {
namespace {

using namespace std::string_view_literals;

struct Magic {
  std::string_view bytes;
  FileKind kind;
};

constexpr std::array<Magic, 11> kMagic = {{{"fp8-checkpoint 1 "sv, FileKind::checkpoint},
                                           {"fp8-tokens 1 "sv, FileKind::tokens},
                                           {"\x89HDF\r\n\x1A\n"sv, FileKind::hdf5},
                                           {"\x93NUMPY"sv, FileKind::numpy},
                                           {"PAR1"sv, FileKind::parquet},
                                           {"\x1F\x8B"sv, FileKind::gzip},
                                           {"\x28\xB5\x2F\xFD"sv, FileKind::zstd},
                                           {"PK\x03\x04"sv, FileKind::zip},
                                           {"PK\x05\x06"sv, FileKind::zip},
                                           {"\x89PNG"sv, FileKind::png},
                                           {"\177ELF"sv, FileKind::program}}};

// A safetensors file begins with the length of its header, which is a JSON object.
bool is_safetensors(std::string_view head) {
  constexpr std::uint64_t kLongestHeader = 100'000'000;
  std::uint64_t length = 0;
  if (head.size() < sizeof length || !head.substr(sizeof length).starts_with("{\"")) return false;
  std::memcpy(&length, head.data(), sizeof length);
  return length <= kLongestHeader;
}

}  // namespace

FileKind kind_of_file(std::string_view head) {
  const auto* const found = std::ranges::find_if(kMagic, [&](const Magic& m) { return head.starts_with(m.bytes); });
  if (found != kMagic.end()) return found->kind;
  return is_safetensors(head) ? FileKind::safetensors : FileKind::unknown;
}

bool is_stream(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_type kind = std::filesystem::status(path, error).type();
  return kind == std::filesystem::file_type::fifo || kind == std::filesystem::file_type::character;
}

}  // namespace fp8
