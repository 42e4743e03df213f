// The commit of a folder: the entries of all ranks become one manifest, then one rename makes the folder a checkpoint.
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>

#include "fp8/base/checked.h"
#include "fp8/base/digest.h"
#include "fp8/base/file.h"
#include "fp8/base/text.h"
#include "fp8/ckpt/checkpoint.h"
#include "fp8/ckpt/writer.h"
#include "manifest.h"

namespace fp8::ckpt {
namespace {

// Entries ordered by rank; throws unless there is exactly one per rank.
std::vector<const FileEntry*> by_rank(const std::vector<FileEntry>& entries, const std::string& what) {
  const auto world = static_cast<std::int64_t>(entries.size());
  std::vector<const FileEntry*> sorted;
  for (const FileEntry& e : entries) sorted.push_back(&e);
  std::sort(sorted.begin(), sorted.end(), [](const FileEntry* a, const FileEntry* b) { return a->name < b->name; });
  for (std::int64_t rank = 0; rank < world; ++rank)
    if (sorted[static_cast<std::size_t>(rank)]->name != shard_name(rank, world))
      throw Error(what + ": the file of rank " + std::to_string(rank) + " of " + std::to_string(world) + " is missing");
  return sorted;
}

Manifest manifest_of_ranks(FileKind kind, const json::Value& mesh, const std::vector<FileEntry>& entries,
                           const std::string& what) {
  Manifest manifest;
  manifest.kind = kind;
  manifest.mesh = mesh;
  std::map<std::string, TensorPlaces> tensors;
  for (const FileEntry* entry : by_rank(entries, what)) {
    const std::size_t file = manifest.files.size();
    manifest.files.push_back({entry->bytes, entry->digest});
    for (const TensorBlock& b : entry->blocks) {
      TensorPlaces& places = tensors.try_emplace(b.tensor.name, TensorPlaces{b.tensor, {}}).first->second;
      if (places.meta != b.tensor)
        throw Error(what + ": /" + b.tensor.name + ": ranks disagree on its dtype, shape or attributes");
      places.blocks.push_back({file, b.block});
    }
  }
  for (auto& [name, places] : tensors) {
    std::sort(places.blocks.begin(), places.blocks.end(),
              [](const BlockPlace& a, const BlockPlace& b) { return a.block.offset < b.block.offset; });
    manifest.tensors.push_back(std::move(places));
  }
  check(manifest, what);
  return manifest;
}

}  // namespace

std::string begin_folder(const std::string& final_path, const LockedFolder* held) {
  std::string temporary = final_path + ".tmp";
  if (held != nullptr) held->check();
  remove_tree(temporary);
  const bool by_path = held == nullptr || !held->taken();
  const std::string name = by_path ? temporary : std::filesystem::path(temporary).filename().string();
  if (mkdirat(by_path ? AT_FDCWD : held->fd(), name.c_str(), 0777) != 0) throw_errno(temporary, "cannot create", errno);
  return temporary;
}

void check_space(const std::string& folder, std::uint64_t bytes) {
  const std::uint64_t free = free_space(folder);
  if (free < bytes)
    throw Error(folder + ": " + human_bytes(bytes) + " needed, " + human_bytes(free) +
                " free: free some space, or write to another file system");
}

void commit_folder(const std::string& temporary, const std::string& final_path, FileKind kind, const json::Value& mesh,
                   const std::vector<FileEntry>& entries, const LockedFolder* held) {
  const std::string text = format_manifest(manifest_of_ranks(kind, mesh, entries, final_path));
  File file = File::create_exclusive(temporary + "/" + std::string(kManifestName));
  file.write_all(text);
  file.sync();
  drop_page_cache(file.fd());
  file.close();
  if (Checkpoint::open(temporary).digest() != digest_of(std::as_bytes(std::span(text))).hex())
    throw Error(file.path() + ": reads back differently than written");
  fsync_directory(temporary);
  if (held != nullptr) held->check();
  const int parent = held != nullptr ? held->fd() : -1;
  std::error_code ignored;
  if (std::filesystem::is_directory(final_path, ignored)) return replace_directory(temporary, final_path, parent);
  commit_directory(temporary, final_path, parent);
}

json::Value to_json(const FileEntry& entry) {
  json::Array blocks;
  for (const TensorBlock& b : entry.blocks) {
    json::Object block = tensor_to_json(b.tensor);
    block.set("offset", integers_to_json(b.block.offset));
    block.set("extent", integers_to_json(b.block.extent));
    blocks.emplace_back(std::move(block));
  }
  return json::object(
      {{"name", entry.name}, {"bytes", entry.bytes}, {"digest", entry.digest}, {"blocks", std::move(blocks)}});
}

FileEntry file_entry_from_json(const json::Value& value, const std::string& what) {
  const json::Object& object = value.as_object();
  FileEntry entry;
  entry.name = object.get_string("name", what);
  entry.bytes = checked_cast<std::uint64_t>(object.get_int("bytes", what), what);
  entry.digest = object.get_string("digest", what);
  for (const json::Value& block : object.get_array("blocks", what)) {
    const json::Object& b = block.as_object();
    entry.blocks.push_back(
        {tensor_from_json(b, what),
         {integers_from_json(b.get_array("offset", what)), integers_from_json(b.get_array("extent", what))}});
  }
  return entry;
}

}  // namespace fp8::ckpt
