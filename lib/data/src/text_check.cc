// Magic numbers of binary formats, and bytes that text never contains.
#include "text_check.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "fp8/base/text.h"

namespace fp8::data {
namespace {

using namespace std::string_view_literals;

struct Format {
  std::size_t offset;
  std::string_view magic;
  const char* advice;
  bool ids = false;  // the advice makes a file of ids
};

constexpr std::string_view kParquet = "PAR1";

constexpr std::array<Format, 10> kFormats = {{
    {0, "\x93NUMPY"sv, "a NumPy array; write its ids without the header (numpy's tofile)", true},
    {0, "\x1F\x8B"sv, "compressed by gzip; give the output of gzip -dc"},
    {0, "\x28\xB5\x2F\xFD"sv, "compressed by zstd; give the output of zstd -dc"},
    {0, "PK\x03\x04"sv, "a zip archive; give the files in it"},
    {0, "PK\x05\x06"sv, "a zip archive; give the files in it"},
    {0, "fp8-tokens 1 "sv, "already a token file, which fp8-step reads"},
    {0, "fp8-checkpoint 1 "sv, "a checkpoint, not text"},
    {0, "\x89HDF\r\n\x1A\n"sv, "an HDF5 file; write the text in it as JSON Lines, or its ids as raw integers"},
    {0, kParquet, "a Parquet file; make JSON Lines of it: "},
    {8, "{\""sv, "a safetensors file, which holds weights"},
}};
constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool has(const Format& format, std::string_view head) {
  if (!head.substr(std::min(format.offset, head.size())).starts_with(format.magic)) return false;
  if (format.offset == 0) return true;
  std::uint64_t length = 0;  // a safetensors file begins with the length of its header
  std::memcpy(&length, head.data(), sizeof length);
  return length <= kMaxSafetensorsHeader;
}

// `text` without an incomplete UTF-8 sequence in its last three bytes.
std::string_view without_cut_sequence(std::string_view text) {
  for (std::size_t n = 1; n <= std::min<std::size_t>(3, text.size()); ++n) {
    const auto byte = static_cast<unsigned char>(text[text.size() - n]);
    if (byte < 0x80) break;
    if (byte < 0xC0) continue;
    const std::size_t length = byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    return length > n ? text.substr(0, text.size() - n) : text;
  }
  return text;
}

// A shell command that converts the Parquet file `name` to JSON Lines. A name that would need quotes is not repeated.
std::string parquet_command(const std::string& name) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-+=@%,";
  const bool plain = name.find_first_not_of(kPlain) == std::string::npos;
  const std::string from = plain ? name : "FILE.parquet";
  const std::string to = from.substr(0, from.ends_with(".parquet") ? from.size() - 8 : from.size()) + ".jsonl";
  return "python3 -c \"import pandas; pandas.read_parquet('" + from + "').to_json('" + to +
         "', orient='records', lines=True)\"";
}

}  // namespace

void refuse_known_formats(const std::string& name, std::span<const std::byte> head, std::vector<Hint> hints) {
  const auto found = std::ranges::find_if(kFormats, [&](const Format& f) { return has(f, text_of(head)); });
  if (found == kFormats.end()) return;
  if (found->magic == kParquet) throw Error(name + ": " + found->advice + parquet_command(name));
  if (found->ids) hints.insert(hints.begin(), {"from", "u16 or u32 for the ids"});
  throw Error(name + ": " + found->advice, std::move(hints));
}

void check_text(const std::string& name, std::span<const std::byte> head) {
  refuse_known_formats(name, head, {kAnyBytes});
  const std::string_view text = text_of(head);
  const std::vector<Hint> hints{{"from", "u16 or u32 for ids"}, kAnyBytes};
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    throw Error(name + ": not text: byte " + std::to_string(nul) + " is NUL", hints);
  if (!valid_utf8(without_cut_sequence(text))) throw Error(name + ": not text: not UTF-8", hints);
}

}  // namespace fp8::data
