/// manifest.json: the files of a checkpoint, and the rows of each tensor in each file. Its last member `self` is the
/// digest of all bytes before that member; only a closing brace and a newline follow. Private to the crate.
#pragma once

#include "fp8/ckpt/tensor_meta.h"
#include "fp8/ckpt/writer.h"
#include "fp8/json/value.h"

namespace fp8::ckpt {

inline constexpr std::string_view kManifestName = "manifest.json";

/// `rank-%05d-of-%05d.h5`.
std::string shard_name(std::int64_t rank, std::int64_t world);

/// Rows [begin, end) of a tensor are in file `file`.
struct BlockPlace {
  std::size_t file = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// A file of the manifest.
struct FileFact {
  std::uint64_t bytes = 0;
  std::string digest;
};

/// A tensor and the location of its rows.
struct TensorPlaces {
  TensorMeta meta;
  std::vector<BlockPlace> blocks;  ///< blocks in row order, which cover each row exactly once
};

/// The whole table. For a single-file checkpoint it is computed from the file.
struct Manifest {
  FileKind kind = FileKind::model;
  json::Value mesh;
  std::vector<FileFact> files;        ///< files by rank
  std::vector<TensorPlaces> tensors;  ///< tensors by name
};

/// Throws Error `what: ...` unless the tensors are sorted by name, each row of each is covered exactly once, and no
/// file holds two blocks of one tensor.
void check(const Manifest& manifest, const std::string& what);
/// Text of manifest.json.
std::string format_manifest(const Manifest& manifest);
/// Inverse of format_manifest; checks `self` first, then everything else.
Manifest parse_manifest(std::string_view text, const std::string& path);

/// Name, dtype, shape, compute precision, reason and attributes as an object.
json::Object tensor_to_json(const TensorMeta& meta);
/// Inverse of tensor_to_json; other members are ignored.
TensorMeta tensor_from_json(const json::Object& object, const std::string& what);

}  // namespace fp8::ckpt
