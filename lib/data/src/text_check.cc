// What to do with files of other formats, and bytes that text never contains.
#include "text_check.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "fp8/base/file_kind.h"
#include "fp8/base/text.h"

namespace fp8::data {
namespace {

struct Format {
  FileKind kind;
  const char* advice;
  bool ids = false;  // the advice makes a file of ids
};

constexpr std::array<Format, 9> kFormats = {{
    {FileKind::numpy, "a NumPy array; write its ids without the header (numpy's tofile)", true},
    {FileKind::gzip, "compressed by gzip; give the output of gzip -dc"},
    {FileKind::zstd, "compressed by zstd; give the output of zstd -dc"},
    {FileKind::zip, "a zip archive; give the files in it"},
    {FileKind::tokens, "already a token file, which fp8-step reads"},
    {FileKind::checkpoint, "a checkpoint, not text"},
    {FileKind::hdf5, "an HDF5 file; write the text in it as JSON Lines, or its ids as raw integers"},
    {FileKind::parquet, "a Parquet file; make JSON Lines of it: "},
    {FileKind::safetensors, "a safetensors file, which holds weights"},
}};

constexpr std::string_view kDescription = "dataset_info.json";

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
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
  const std::string from = is_plain_word(name) ? name : "FILE.parquet";
  const std::string to = from.substr(0, from.ends_with(".parquet") ? from.size() - 8 : from.size()) + ".jsonl";
  return "python3 -c \"import pandas; pandas.read_parquet('" + from + "').to_json('" + to +
         "', orient='records', lines=True)\"";
}

}  // namespace

void refuse_known_formats(const std::string& name, std::span<const std::byte> head, std::vector<Hint> hints) {
  const auto found = std::ranges::find(kFormats, kind_of_file(text_of(head)), &Format::kind);
  if (found == kFormats.end()) return;
  if (found->kind == FileKind::parquet) throw Error(name + ": " + found->advice + parquet_command(name));
  if (found->ids) hints.insert(hints.begin(), {"from", "u16 or u32 for the ids"});
  throw Error(name + ": " + found->advice, std::move(hints));
}

void refuse_description(const std::string& path) {
  if (path == kDescription || path.ends_with("/" + std::string(kDescription)))
    throw Error(path + ": describes datasets of LLaMA-Factory and holds none; fp8-import reads it");
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
