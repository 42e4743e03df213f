// What a file is that is given instead of a log, by its first bytes.
#include "foreign.h"

#include "fp8/base/error.h"
#include "fp8/base/file_kind.h"

namespace fp8::log {
namespace {

// What a file is; empty if it may be a log.
std::string_view foreign_name(std::string_view head) {
  switch (kind_of_file(head)) {
    case FileKind::checkpoint:
      return "a checkpoint";
    case FileKind::tokens:
      return "a token file";
    case FileKind::hdf5:
      return "an HDF5 file";
    case FileKind::safetensors:
      return "a safetensors file";
    case FileKind::numpy:
      return "a NumPy array";
    case FileKind::parquet:
      return "a Parquet file";
    case FileKind::gzip:
      return "compressed by gzip";
    case FileKind::zstd:
      return "compressed by zstd";
    case FileKind::zip:
      return "a zip archive";
    case FileKind::png:
      return "a PNG image";
    case FileKind::program:
      return "a program";
    case FileKind::unknown:
      break;
  }
  constexpr std::size_t kHead = 4096;
  if (head.starts_with('<')) return "a file of XML or HTML";
  if (head.starts_with("{\n") || head.starts_with("{\r\n")) return "a JSON document of several lines";
  if (head.starts_with("run,step,")) return "a table that fp8-log exported";
  return head.substr(0, kHead).find('\0') == std::string_view::npos ? "" : "a binary file";
}

}  // namespace

void refuse_foreign(const std::string& name, std::string_view head) {
  if (const std::string_view what = foreign_name(head); !what.empty())
    throw Error(name + ": is " + std::string(what) + ", not the log of a run; give a run's folder or its log.jsonl");
}

}  // namespace fp8::log
