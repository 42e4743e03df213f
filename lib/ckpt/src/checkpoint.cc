// Reading. A single file is treated as a folder of one shard whose table is computed from the file, so that the code
// after open() is the same for both.
#include "fp8/ckpt/checkpoint.h"

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "fp8/base/checked.h"
#include "fp8/base/digest.h"
#include "fp8/base/file.h"
#include "fp8/base/file_name.h"
#include "fp8/dtype/convert.h"
#include "fp8/dtype/e2m1.h"
#include "fp8/h5/reader.h"
#include "fp8/h5/user_block.h"
#include "fp8/json/json.h"
#include "manifest.h"
#include "read_block.h"

namespace fp8::ckpt {
namespace {

constexpr std::uint64_t kMaxDocument = std::uint64_t{1} << 28;
constexpr std::uint64_t kMaxTokenizer = std::uint64_t{1} << 30;
constexpr std::uint64_t kMaxText = std::uint64_t{1} << 26;
constexpr std::uint64_t kMaxManifest = std::uint64_t{1} << 30;

bool is_document(std::string_view name) {
  return name == "config" || name == "train" || name == "provenance" || name == "tokenizer" ||
         name.starts_with(kHuggingFace);
}

// The metadata of a dataset, with its shape in the file.
TensorMeta meta_of(const h5::Entry& entry) {
  TensorMeta meta{entry.name,
                  entry.dtype,
                  entry.shape,
                  h5::text_or_empty(entry.attributes, "precision"),
                  h5::text_or_empty(entry.attributes, "reason"),
                  entry.attributes};
  for (const char* key : {"dtype", "digest", "precision", "reason", "offset", "global_shape"})
    meta.attributes.erase(key);
  return meta;
}

std::int64_t integer_attribute(const h5::Reader& file, std::string_view key) {
  const auto& attributes = file.group("");
  const auto it = attributes.find(key);
  const auto* value = it == attributes.end() ? nullptr : std::get_if<std::int64_t>(&it->second);
  if (value == nullptr) throw Error(file.path() + ": attribute " + std::string(key) + " is missing or not an integer");
  return *value;
}

// Checks the root attributes that every file has.
FileKind check_root(const h5::Reader& file) {
  const h5::Attributes& root = file.group("");
  if (h5::text_or_empty(root, "format") != h5::kCheckpointMagic)
    throw Error(file.path() + ": its format is not fp8-checkpoint");
  check_version(integer_attribute(file, "version"), file.path());
  return parse_kind(h5::text_or_empty(root, "kind"), file.path());
}

// Compares the attributes of a block's dataset with the manifest.
void check_dataset(const h5::Reader& reader, const TensorMeta& meta, const Block& block) {
  const h5::Entry& entry = reader.at(meta.name);
  const auto has = [&](const char* key, const std::vector<std::int64_t>& expected) {
    const auto it = entry.attributes.find(key);
    return it != entry.attributes.end() && it->second == h5::AttributeValue(expected);
  };
  if (entry.dtype != meta.dtype || entry.shape != block.extent || !has("offset", block.offset) ||
      !has("global_shape", meta.shape))
    throw Error(reader.path() + ": /" + meta.name +
                ": its dtype, shape, offset or global_shape differs from the manifest");
}

Manifest manifest_of_file(const h5::Reader& file) {
  Manifest manifest;
  manifest.kind = check_root(file);
  if (file.group("").contains("rank"))
    throw Error(file.path() + ": is one rank's shard of a checkpoint; give the folder that contains it");
  manifest.files.push_back({file.file_bytes(), file.stated_digest()});
  for (const h5::Entry& entry : file.list()) {
    if (is_document(entry.name)) continue;
    TensorPlaces tensor{meta_of(entry), {}};
    if (entry.bytes > 0) tensor.blocks.push_back({0, whole_block(tensor.meta)});
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

}  // namespace

struct Checkpoint::State {
  std::string path;
  bool folder = false;
  std::string digest;
  Manifest manifest;
  std::vector<TensorMeta> metas;
  std::vector<std::vector<std::pair<std::size_t, std::size_t>>> by_file;  // tensor and block
  json::Value config;
  json::Value train;
  json::Value provenance = json::Array{};
  std::vector<std::string> passed_over;
  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<const h5::Reader>> readers;
  mutable std::vector<File> open_files;  // open files that have no reader yet; may be empty

  std::string file_path(std::size_t i) const {
    if (!folder) return path;
    return path + "/" + shard_name(static_cast<std::int64_t>(i), static_cast<std::int64_t>(manifest.files.size()));
  }
  const h5::Reader& file(std::size_t i) const;
  void check_shard(std::size_t i, const h5::Reader& reader) const;
  json::Value document(std::string_view name, bool required) const;
  const TensorPlaces& places(std::string_view name) const;
};

const h5::Reader& Checkpoint::State::file(std::size_t i) const {
  const std::lock_guard lock(mutex);
  auto& reader = readers.at(i);
  if (reader == nullptr) {
    File open =
        i < open_files.size() && open_files[i].is_open() ? std::move(open_files[i]) : h5::open_regular(file_path(i));
    auto opened = std::make_unique<const h5::Reader>(std::move(open), h5::kCheckpointMagic);
    check_shard(i, *opened);
    reader = std::move(opened);
  }
  return *reader;
}

void Checkpoint::State::check_shard(std::size_t i, const h5::Reader& reader) const {
  const FileFact& fact = manifest.files[i];
  if (reader.file_bytes() != fact.bytes || reader.stated_digest() != fact.digest)
    throw Error(reader.path() + ": is not the file that the manifest describes (of another step or rank)");
  if (check_root(reader) != manifest.kind) throw Error(reader.path() + ": its kind differs from the manifest");
  if (integer_attribute(reader, "rank") != static_cast<std::int64_t>(i) ||
      integer_attribute(reader, "world") != static_cast<std::int64_t>(manifest.files.size()))
    throw Error(reader.path() + ": its rank or world differs from its name");
  for (const auto& [tensor, block] : by_file[i])
    check_dataset(reader, manifest.tensors[tensor].meta, manifest.tensors[tensor].blocks[block].block);
  const auto held = static_cast<std::size_t>(std::count_if(reader.list().begin(), reader.list().end(),
                                                           [](const h5::Entry& e) { return !is_document(e.name); }));
  if (held != by_file[i].size()) throw Error(reader.path() + ": holds tensors that the manifest does not list");
}

json::Value Checkpoint::State::document(std::string_view name, bool required) const {
  const h5::Reader& reader = file(0);
  if (reader.find(name) == nullptr) {
    if (required) throw Error(reader.path() + ": has no /" + std::string(name));
    return {};
  }
  return json::parse(reader.read_text(name, kMaxDocument), reader.path() + ": /" + std::string(name));
}

const TensorPlaces& Checkpoint::State::places(std::string_view name) const {
  const auto& tensors = manifest.tensors;
  const auto it = std::lower_bound(tensors.begin(), tensors.end(), name, [](const TensorPlaces& t, std::string_view n) {
    return std::string_view(t.meta.name) < n;
  });
  if (it == tensors.end() || it->meta.name != name)
    throw Error(path + ": /" + std::string(name) + ": there is no such tensor");
  return *it;
}

Checkpoint::Checkpoint(std::unique_ptr<State> state) : state_(std::move(state)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Checkpoint Checkpoint::open(const std::string& path) {
  auto state = std::make_unique<State>();
  State& s = *state;
  s.path = path;
  while (s.path.size() > 1 && s.path.back() == '/') s.path.pop_back();
  std::error_code ignored;
  s.folder = std::filesystem::is_directory(path, ignored);
  if (s.folder) {
    const std::string name = s.path + "/" + std::string(kManifestName);
    if (!std::filesystem::exists(name, ignored)) throw Error(path + ": not a checkpoint: it has no manifest.json");
    if (!std::filesystem::is_regular_file(name, ignored)) throw Error(name + ": not a regular file");
    const std::string text = read_whole_file(name, kMaxManifest);
    s.digest = digest_of(std::as_bytes(std::span(text))).hex();
    s.manifest = parse_manifest(text, name);
    s.readers.resize(s.manifest.files.size());
  } else {
    s.readers.push_back(std::make_unique<const h5::Reader>(s.path, h5::kCheckpointMagic));
    s.digest = s.readers.front()->stated_digest();
    s.manifest = manifest_of_file(*s.readers.front());
  }
  s.by_file.resize(s.manifest.files.size());
  for (std::size_t t = 0; t < s.manifest.tensors.size(); ++t) {
    const TensorPlaces& tensor = s.manifest.tensors[t];
    s.metas.push_back(tensor.meta);
    for (std::size_t b = 0; b < tensor.blocks.size(); ++b) s.by_file[tensor.blocks[b].file].emplace_back(t, b);
  }
  s.config = s.document("config", true);
  s.train = s.document("train", s.manifest.kind == FileKind::training);
  if (const json::Value provenance = s.document("provenance", false); !provenance.is_null()) s.provenance = provenance;
  return Checkpoint(std::move(state));
}

void Checkpoint::hold() const {
  const std::lock_guard lock(state_->mutex);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = 0;
  state_->open_files.resize(std::min<std::size_t>(file_count(), limit.rlim_cur / 2));
  for (std::size_t i = 0; i < state_->open_files.size(); ++i) {
    if (state_->readers[i] != nullptr) continue;
    try {
      state_->open_files[i] = h5::open_regular(file_path(i));
    } catch (const Error&) {
      continue;  // its first use reports why
    }
  }
}

const std::string& Checkpoint::path() const { return state_->path; }
const std::vector<std::string>& Checkpoint::passed_over() const { return state_->passed_over; }
void Checkpoint::set_passed_over(std::vector<std::string> messages) { state_->passed_over = std::move(messages); }
FileKind Checkpoint::kind() const { return state_->manifest.kind; }
std::int64_t Checkpoint::version() const { return kVersion; }
const std::string& Checkpoint::digest() const { return state_->digest; }
std::int64_t Checkpoint::world() const { return static_cast<std::int64_t>(file_count()); }
const json::Value& Checkpoint::mesh() const { return state_->manifest.mesh; }
const json::Value& Checkpoint::config() const { return state_->config; }
const json::Value& Checkpoint::train() const { return state_->train; }
const json::Value& Checkpoint::provenance() const { return state_->provenance; }

std::optional<std::string> Checkpoint::tokenizer() const {
  const h5::Reader& reader = state_->file(0);
  if (reader.find("tokenizer") == nullptr) return std::nullopt;
  return reader.read_text("tokenizer", kMaxTokenizer);
}

std::optional<std::string> Checkpoint::tokenizer_id() const {
  std::string id = h5::text_or_empty(state_->file(0).group(""), "tokenizer");
  return id.empty() ? std::nullopt : std::optional(std::move(id));
}

std::map<std::string, std::string> Checkpoint::huggingface() const {
  const h5::Reader& reader = state_->file(0);
  std::map<std::string, std::string> files;
  for (const h5::Entry& entry : reader.list()) {
    if (!entry.name.starts_with(kHuggingFace)) continue;
    const std::string file = entry.name.substr(kHuggingFace.size());
    if (!is_bare_name(file)) throw Error(reader.path() + ": /" + entry.name + ": not a file name");
    files[file] = reader.read_text(entry.name, kMaxText);
  }
  return files;
}

const std::vector<TensorMeta>& Checkpoint::tensors() const { return state_->metas; }

std::vector<TensorMeta> Checkpoint::tensors(std::string_view prefix) const {
  std::vector<TensorMeta> found;
  for (const TensorMeta& meta : tensors())
    if (meta.name.starts_with(prefix)) found.push_back(meta);
  return found;
}

std::vector<TensorMeta> Checkpoint::unknown() const {
  std::vector<TensorMeta> found;
  for (const TensorMeta& meta : tensors())
    if (!is_known_section(meta.name)) found.push_back(meta);
  return found;
}

const TensorMeta* Checkpoint::find(std::string_view name) const {
  const auto& metas = tensors();
  const auto it = std::lower_bound(metas.begin(), metas.end(), name, [](const TensorMeta& m, std::string_view n) {
    return std::string_view(m.name) < n;
  });
  return it != metas.end() && it->name == name ? &*it : nullptr;
}

const TensorMeta& Checkpoint::at(std::string_view name) const { return state_->places(name).meta; }

void Checkpoint::read_rows(std::string_view name, std::int64_t begin, std::int64_t end,
                           std::span<std::byte> out) const {
  const TensorPlaces& tensor = state_->places(name);
  const std::string here = path() + ": /" + tensor.meta.name + ": ";
  if (begin < 0 || end < begin || end > tensor.meta.rows())
    throw Error(here + "has no rows " + std::to_string(begin) + " to " + std::to_string(end));
  const std::uint64_t row = tensor.meta.row_bytes();
  if (out.size() != static_cast<std::uint64_t>(end - begin) * row)
    throw Error(here + "buffer size differs from the size of its rows");
  for (const BlockPlace& b : tensor.blocks)
    if (b.block.begin_row() < end && begin < b.block.end_row())
      read_block(state_->file(b.file), tensor.meta, b.block, begin, end, out);
}

void Checkpoint::read_rows_as_f32(std::string_view name, std::int64_t begin, std::int64_t end,
                                  std::span<float> out) const {
  const TensorMeta& meta = at(name);
  if (meta.dtype == DType::f32) return read_rows(name, begin, end, std::as_writable_bytes(out));
  const std::uint64_t row_bytes = meta.row_bytes();
  const std::uint64_t row =
      row_bytes / dtype::size_of(meta.dtype) * static_cast<std::uint64_t>(dtype::packed(meta.dtype));
  const std::string here = path() + ": /" + meta.name + ": ";
  if (begin < 0 || end < begin || end > meta.rows())
    throw Error(here + "has no rows " + std::to_string(begin) + " to " + std::to_string(end));
  if (out.size() != static_cast<std::uint64_t>(end - begin) * row)
    throw Error(here + "buffer size differs from the size of its rows");
  const auto step =
      static_cast<std::int64_t>(std::max<std::uint64_t>(1, kReadPiece / std::max<std::uint64_t>(1, row_bytes)));
  std::vector<std::byte> buffer;
  for (std::int64_t r = begin; r < end; r += step) {
    const std::int64_t rows = std::min(step, end - r);
    buffer.resize(static_cast<std::uint64_t>(rows) * row_bytes);
    read_rows(name, r, r + rows, buffer);
    dtype::to_floats(meta.dtype, buffer.data(),
                     out.subspan(static_cast<std::uint64_t>(r - begin) * row, static_cast<std::uint64_t>(rows) * row));
  }
}

void Checkpoint::read(std::string_view name, std::span<std::byte> out) const {
  read_rows(name, 0, at(name).rows(), out);
}

std::size_t Checkpoint::file_count() const { return state_->manifest.files.size(); }
std::string Checkpoint::file_path(std::size_t i) const { return state_->file_path(i); }

void Checkpoint::verify_file(std::size_t i, const Destination& destination) const {
  const h5::Reader& reader = state_->file(i);
  const auto place_of = [&](const h5::Entry& entry) -> std::span<std::byte> {
    if (!destination || is_document(entry.name)) return {};
    const TensorPlaces& tensor = state_->places(entry.name);
    const auto b = std::find_if(tensor.blocks.begin(), tensor.blocks.end(), [&](const auto& x) { return x.file == i; });
    return b == tensor.blocks.end() ? std::span<std::byte>() : destination(tensor.meta, b->block);
  };
  h5::verify_file(reader, place_of, values_of);
}

void Checkpoint::verify() const {
  std::vector<std::optional<Error>> found(file_count());
#pragma omp parallel for schedule(dynamic) if (file_count() > 1)
  for (std::size_t i = 0; i < file_count(); ++i) {
    try {
      verify_file(i);
    } catch (const std::exception&) {
      found[i] = current_error();
    }
  }
  for (const auto& error : found)
    if (error) throw Error(*error);
}

}  // namespace fp8::ckpt
