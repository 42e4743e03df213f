// What a file is that is given instead of a log, by its first bytes.
#include "foreign.h"

#include <algorithm>
#include <array>

#include "fp8/base/error.h"

namespace fp8::log {
namespace {

using namespace std::string_view_literals;

struct Kind {
  std::size_t offset;
  std::string_view magic;
  std::string_view what;
};

constexpr std::array<Kind, 13> kKinds = {{{0, "fp8-checkpoint 1 "sv, "a checkpoint"},
                                          {0, "fp8-tokens 1 "sv, "a token file"},
                                          {0, "\x89HDF\r\n\x1A\n"sv, "an HDF5 file"},
                                          {8, "{\""sv, "a safetensors file"},
                                          {0, "\x1F\x8B"sv, "compressed by gzip"},
                                          {0, "\x28\xB5\x2F\xFD"sv, "compressed by zstd"},
                                          {0, "PK\x03\x04"sv, "a zip archive"},
                                          {0,
                                           "\x7F"
                                           "ELF"sv,
                                           "a program"},
                                          {0, "\x89PNG"sv, "a PNG image"},
                                          {0, "<"sv, "a file of XML or HTML"},
                                          {0, "{\n"sv, "a JSON document of several lines"},
                                          {0, "{\r\n"sv, "a JSON document of several lines"},
                                          {0, "run,step,"sv, "a table that fp8-log exported"}}};

}  // namespace

void refuse_foreign(const std::string& name, std::string_view head) {
  const auto is = [&](const Kind& kind) {
    return head.substr(std::min(kind.offset, head.size())).starts_with(kind.magic);
  };
  const auto* const kind = std::ranges::find_if(kKinds, is);
  const bool binary = head.substr(0, 4096).find('\0') != std::string_view::npos;
  // The length before the header of a safetensors file has zero bytes.
  const bool known = kind != kKinds.end() && (kind->offset == 0 || binary);
  if (!known && !binary) return;
  throw Error(name + ": is " + std::string(known ? kind->what : "a binary file") +
              ", not the log of a run; give a run's folder or its log.jsonl");
}

}  // namespace fp8::log
