/// manifest.json: the files of a checkpoint, and the block of each tensor in each file. Its last member `self` is the
/// digest of all bytes before that member; only a closing brace and a newline follow. Private to the crate.
#pragma once

#include <span>

#include "fp8/ckpt/block.h"
#include "fp8/ckpt/tensor_meta.h"
#include "fp8/ckpt/writer.h"
#include "fp8/json/value.h"

namespace fp8::ckpt {

inline constexpr std::string_view kManifestName = "manifest.json";

/// `rank-%05d-of-%05d.h5`.
std::string shard_name(std::int64_t rank, std::int64_t world);

/// A block of a tensor is in file `file`.
struct BlockPlace {
  std::size_t file = 0;
  Block block;
};

/// A file of the manifest.
struct FileFact {
  std::uint64_t bytes = 0;
  std::string digest;
};

/// A tensor and the location of its blocks.
struct TensorPlaces {
  TensorMeta meta;
  std::vector<BlockPlace> blocks;  ///< in any order; they cover each element exactly once
};

/// The whole table. For a single-file checkpoint it is computed from the file.
struct Manifest {
  FileKind kind = FileKind::model;
  json::Value mesh;                   ///< ranks along dp_replicate, dp_shard, pp, ep and tp
  std::vector<FileFact> files;        ///< files by rank
  std::vector<TensorPlaces> tensors;  ///< tensors by name
};

/// Throws Error `path: ...` with the version found unless it is kVersion.
void check_version(std::int64_t version, const std::string& path);
/// Throws Error `what: ...`, naming the first row or element that is in two blocks or in none, unless the blocks cover
/// each element of the tensor exactly once. Each passes check_block().
void check_cover(const TensorPlaces& tensor, const std::string& what);
/// Throws Error `what: ...` unless the mesh has as many ranks as there are files, the tensors are sorted by name, each
/// element of each is covered exactly once, and no file holds two blocks of one tensor.
void check(const Manifest& manifest, const std::string& what);
/// Text of manifest.json.
std::string format_manifest(const Manifest& manifest);
/// Inverse of format_manifest; checks `self` first, then everything else.
Manifest parse_manifest(std::string_view text, const std::string& path);

/// A list of integers as JSON.
json::Array integers_to_json(std::span<const std::int64_t> values);
/// Inverse of integers_to_json.
std::vector<std::int64_t> integers_from_json(const json::Array& array);
/// Name, dtype, shape, compute precision, reason and attributes as an object.
json::Object tensor_to_json(const TensorMeta& meta);
/// Inverse of tensor_to_json; other members are ignored.
TensorMeta tensor_from_json(const json::Object& object, const std::string& what);

}  // namespace fp8::ckpt
