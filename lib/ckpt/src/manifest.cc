// Text and checks of the manifest. One file or tensor per line, readable for people and diff.
#include "manifest.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <set>

#include "fp8/base/checked.h"
#include "fp8/base/digest.h"
#include "fp8/base/text.h"
#include "fp8/json/json.h"

namespace fp8::ckpt {
namespace {

/// Members of `mesh`.
constexpr std::array<std::string_view, 5> kMeshDimensions{"dp_replicate", "dp_shard", "pp", "ep", "tp"};

constexpr std::string_view kSelfHead = "\"self\":\"";
constexpr std::string_view kSelfTail = "\"}\n";
constexpr std::size_t kDigestDigits = 32;
constexpr std::size_t kSelfBytes = kSelfHead.size() + kDigestDigits + kSelfTail.size();

std::string digest_of_text(std::string_view text) { return digest_of(std::as_bytes(std::span(text))).hex(); }

bool plain_name(std::string_view name) {
  return !name.empty() && name.size() <= h5::kMaxNameBytes * h5::kMaxDepth &&
         std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

json::Value attribute_to_json(const h5::AttributeValue& value) {
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&value)) return integers_to_json(*list);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer;
  return std::get<double>(value);
}

h5::AttributeValue attribute_from_json(const json::Value& value) {
  if (value.is_string()) return value.as_string();
  if (value.is_int()) return value.as_int();
  if (value.is_array()) return integers_from_json(value.as_array());
  return value.as_double();
}

json::Object file_to_json(std::size_t rank, std::size_t world, const FileFact& file) {
  json::Object object;
  object.set("name", shard_name(static_cast<std::int64_t>(rank), static_cast<std::int64_t>(world)));
  object.set("bytes", file.bytes);
  object.set("digest", file.digest);
  return object;
}

std::vector<FileFact> files_from_json(const json::Array& array, const std::string& path) {
  std::vector<FileFact> files;
  for (std::size_t i = 0; i < array.size(); ++i) {
    const json::Object& object = array[i].as_object();
    const std::string expected = shard_name(static_cast<std::int64_t>(i), static_cast<std::int64_t>(array.size()));
    if (object.get_string("name", path) != expected)
      throw Error(path + ": file " + std::to_string(i) + " is not named " + expected);
    FileFact file;
    file.bytes = checked_cast<std::uint64_t>(object.get_int("bytes", path), path + ": " + expected + ": bytes");
    file.digest = object.get_string("digest", path);
    if (!Digest::from_hex(file.digest)) throw Error(path + ": " + expected + ": its digest is invalid");
    files.push_back(std::move(file));
  }
  return files;
}

TensorPlaces places_from_json(const json::Object& object, const std::string& path) {
  TensorPlaces tensor{tensor_from_json(object, path), {}};
  for (const json::Value& value : object.get_array("blocks", path)) {
    const json::Array& block = value.as_array();
    if (block.size() != 3)
      throw Error(path + ": " + tensor.meta.name + ": a block must be [file, [offset, ...], [extent, ...]]");
    try {
      tensor.blocks.push_back({checked_cast<std::size_t>(block[0].as_int(), "file"),
                               {integers_from_json(block[1].as_array()), integers_from_json(block[2].as_array())}});
    } catch (const Error& e) {
      throw Error(path + ": " + tensor.meta.name + ": a block: " + e.what());
    }
  }
  return tensor;
}

// Throws Error unless `mesh` has the number of ranks along each dimension, and the mesh has as many ranks as there are
// files. See comm::MeshShape.
void check_mesh(const json::Value& mesh, std::size_t files, const std::string& path) {
  const std::string here = path + ": mesh: ";
  if (!mesh.is_object()) throw Error(here + "not an object");
  for (const auto& [name, value] : mesh.as_object())
    if (std::ranges::find(kMeshDimensions, name) == kMeshDimensions.end())
      throw Error(here + "unknown member " + terminal_safe(name));
  const auto most =
      static_cast<std::int64_t>(files) + 1;  // stands for all larger numbers, so that no product overflows
  std::map<std::string_view, std::int64_t> sizes;
  for (const std::string_view name : kMeshDimensions) {
    const json::Value* size = mesh.as_object().find(name);
    if (size == nullptr) throw Error(here + "no " + std::string(name));
    if (!size->is_int() || size->as_double() < 1) throw Error(here + std::string(name) + " is not a positive integer");
    sizes[name] = size->as_double() < static_cast<double>(most) ? size->as_int() : most;
  }
  std::int64_t ranks = 1;
  for (const char* name : {"dp_replicate", "dp_shard", "pp", "tp"}) ranks = std::min(most, ranks * sizes[name]);
  if (ranks != most - 1)
    throw Error(here + "dp_replicate x dp_shard x pp x tp is not the number of files, " + std::to_string(files));
  if (sizes["dp_shard"] * sizes["tp"] % sizes["ep"] != 0) throw Error(here + "ep does not divide dp_shard x tp");
}

// Splits the text at `self`, whose digest must match; returns the text without that member.
std::string_view check_self(std::string_view text, const std::string& path) {
  const std::string damaged = path + ": damaged: ";
  if (text.size() <= kSelfBytes || !text.ends_with(kSelfTail))
    throw Error(damaged + "it does not end as written (truncated or appended to)");
  const std::string_view body = text.substr(0, text.size() - kSelfBytes);
  const std::string_view self = text.substr(body.size());
  if (!self.starts_with(kSelfHead)) throw Error(damaged + "its last member is not self");
  if (self.substr(kSelfHead.size(), kDigestDigits) != digest_of_text(body))
    throw Error(damaged + "its bytes differ from its digest (self)");
  return body;
}

Manifest manifest_from_json(const json::Object& object, const std::string& path) {
  if (object.get_string("format", path) != h5::kCheckpointMagic)
    throw Error(path + ": not the manifest of a checkpoint");
  check_version(object.get_int("version", path), path);
  Manifest manifest;
  manifest.kind = parse_kind(object.get_string("kind", path), path);
  if (const json::Value* mesh = object.find("mesh"); mesh != nullptr) manifest.mesh = *mesh;
  manifest.files = files_from_json(object.get_array("files", path), path);
  if (manifest.files.empty() || object.get_int("world", path) != static_cast<std::int64_t>(manifest.files.size()))
    throw Error(path + ": world is not the number of files");
  for (const json::Value& tensor : object.get_array("tensors", path))
    manifest.tensors.push_back(places_from_json(tensor.as_object(), path));
  check(manifest, path);
  return manifest;
}

}  // namespace

void check_version(std::int64_t version, const std::string& path) {
  if (version != kVersion)
    throw Error(path + ": version " + std::to_string(version) + " of the checkpoint format is not known (" +
                std::to_string(kVersion) + " is)");
}

json::Array integers_to_json(std::span<const std::int64_t> values) { return {values.begin(), values.end()}; }

std::vector<std::int64_t> integers_from_json(const json::Array& array) {
  std::vector<std::int64_t> values;
  for (const json::Value& v : array) values.push_back(v.as_int());
  return values;
}

std::string shard_name(std::int64_t rank, std::int64_t world) {
  std::string name(64, '\0');
  const int length = std::snprintf(name.data(), name.size(), "rank-%05lld-of-%05lld.h5", static_cast<long long>(rank),
                                   static_cast<long long>(world));
  name.resize(checked_cast<std::size_t>(length));
  return name;
}

json::Object tensor_to_json(const TensorMeta& meta) {
  json::Object object;
  object.set("name", meta.name);
  object.set("dtype", dtype::name_of(meta.dtype));
  object.set("shape", integers_to_json(meta.shape));
  if (!meta.precision.empty()) object.set("precision", meta.precision);
  if (!meta.reason.empty()) object.set("reason", meta.reason);
  if (meta.attributes.empty()) return object;
  json::Object attributes;
  for (const auto& [key, value] : meta.attributes) attributes.set(key, attribute_to_json(value));
  object.set("attributes", std::move(attributes));
  return object;
}

TensorMeta tensor_from_json(const json::Object& object, const std::string& what) {
  TensorMeta meta;
  meta.name = object.get_string("name", what);
  if (!plain_name(meta.name)) throw Error(what + ": a tensor's name is not allowed: " + terminal_safe(meta.name));
  const auto type = dtype::parse_dtype(object.get_string("dtype", what));
  if (!type) throw Error(what + ": " + meta.name + ": its dtype is not known");
  meta.dtype = *type;
  meta.shape = integers_from_json(object.get_array("shape", what));
  if (meta.shape.size() > h5::kMaxRank) throw Error(what + ": " + meta.name + ": has too many dimensions");
  meta.bytes();  // throws where shape or size overflow
  meta.precision = object.get_string_or("precision", "", what);
  meta.reason = object.get_string_or("reason", "", what);
  if (const json::Value* attributes = object.find("attributes"); attributes != nullptr)
    for (const auto& [key, value] : attributes->as_object()) meta.attributes.emplace(key, attribute_from_json(value));
  return meta;
}

void check(const Manifest& manifest, const std::string& what) {
  check_mesh(manifest.mesh, manifest.files.size(), what);
  const std::string* previous = nullptr;
  std::set<std::size_t> holders;
  for (const TensorPlaces& t : manifest.tensors) {
    const std::string here = what + ": " + t.meta.name;
    if (previous != nullptr && *previous >= t.meta.name)
      throw Error(here + ": tensors are not sorted, or one is there twice");
    previous = &t.meta.name;
    holders.clear();
    for (const BlockPlace& b : t.blocks) {
      if (b.file >= manifest.files.size()) throw Error(here + ": a block names a file that is not listed");
      if (!holders.insert(b.file).second) throw Error(here + ": two blocks in one file");
      check_block(t.meta, b.block, here);
    }
    check_cover(t, here);
  }
}

std::string format_manifest(const Manifest& manifest) {
  json::Object head;
  head.set("format", h5::kCheckpointMagic);
  head.set("version", kVersion);
  head.set("kind", name_of(manifest.kind));
  head.set("world", manifest.files.size());
  head.set("mesh", manifest.mesh);
  std::string text = json::dump(head);
  text.pop_back();  // more members follow
  text += ",\n\"files\":[";
  for (std::size_t i = 0; i < manifest.files.size(); ++i)
    text.append(i == 0 ? "\n" : ",\n").append(json::dump(file_to_json(i, manifest.files.size(), manifest.files[i])));
  text += "],\n\"tensors\":[";
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    json::Object tensor = tensor_to_json(manifest.tensors[i].meta);
    json::Array blocks;
    for (const BlockPlace& b : manifest.tensors[i].blocks)
      blocks.emplace_back(json::Array{b.file, integers_to_json(b.block.offset), integers_to_json(b.block.extent)});
    tensor.set("blocks", std::move(blocks));
    text.append(i == 0 ? "\n" : ",\n").append(json::dump(tensor));
  }
  text += "],\n";
  const std::string self = digest_of_text(text);
  return text.append(kSelfHead).append(self).append(kSelfTail);
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  check_self(text, path);
  try {
    return manifest_from_json(json::parse(text, path).as_object(), path);
  } catch (const Error& e) {
    if (std::string_view(e.what()).starts_with(path)) throw;
    throw Error(path + ": " + e.what());
  }
}

}  // namespace fp8::ckpt
