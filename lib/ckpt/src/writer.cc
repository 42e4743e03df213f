// Writes one HDF5 file of a checkpoint: the single file, or one rank's shard. They differ in root attributes, in the
// position attributes of blocks, and in the commit.
#include "fp8/ckpt/writer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/file_name.h"
#include "fp8/ckpt/checkpoint.h"
#include "fp8/h5/user_block.h"
#include "fp8/h5/writer.h"
#include "fp8/json/json.h"
#include "manifest.h"

namespace fp8::ckpt {
namespace {

h5::Writer start(const std::string& path, FileKind kind, bool exclusive, PieceRunner run = {}) {
  h5::Writer writer(path, h5::kCheckpointMagic, exclusive, std::move(run));
  writer.attribute("", "format", std::string(h5::kCheckpointMagic));
  writer.attribute("", "version", kVersion);
  writer.attribute("", "kind", std::string(name_of(kind)));
  return writer;
}

// Reports the invalid tensors of a finished file.
void report(const h5::Writer& writer, const std::string& path, const InvalidTensor& invalid) {
  for (const std::string& reason : writer.invalid()) {
    if (!invalid) throw Error(path + ": " + reason);
    invalid(path + ": " + reason);
  }
}

h5::Attributes attributes_of(const TensorMeta& meta) {
  h5::Attributes attributes = meta.attributes;
  if (!meta.precision.empty()) attributes.insert_or_assign("precision", meta.precision);
  if (!meta.reason.empty()) attributes.insert_or_assign("reason", meta.reason);
  return attributes;
}

}  // namespace

struct FileWriter::State {
  std::optional<AtomicFile> file;  // that is committed; empty in a shard
  std::string path;                // for messages
  bool texts = true;               // whether the file has the documents and texts
  FileEntry entry;                 // of a shard
  h5::Writer writer;

  State(const std::string& target, FileKind kind, bool force)
      : file(std::in_place, target, force), path(target), writer(start(file->path(), kind, false)) {}
  State(const std::string& folder, std::int64_t rank, std::int64_t world, FileKind kind, PieceRunner run)
      : path(folder + "/" + shard_name(rank, world)),
        texts(rank == 0),
        entry{shard_name(rank, world), 0, {}, {}},
        writer(start(path, kind, true, std::move(run))) {
    writer.attribute("", "rank", rank);
    writer.attribute("", "world", world);
  }

  // The writer of documents and texts.
  h5::Writer& for_texts() {
    if (!texts) throw Error(path + ": documents belong to rank 0");
    return writer;
  }
};

FileWriter::FileWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
FileWriter::~FileWriter() = default;
FileWriter::FileWriter(FileWriter&&) noexcept = default;
FileWriter& FileWriter::operator=(FileWriter&&) noexcept = default;

void FileWriter::document(const std::string& name, const json::Value& value) {
  h5::Writer& writer = state_->for_texts();
  if (name != "config" && name != "train" && name != "provenance")
    throw Error(name + ": not a document of a checkpoint");
  writer.text(name, json::dump(value));
}

void FileWriter::tokenizer(std::string_view text) { state_->for_texts().text("tokenizer", text); }
void FileWriter::tokenizer_id(const std::string& id) { state_->for_texts().attribute("", "tokenizer", id); }

void FileWriter::huggingface(const std::map<std::string, std::string>& files) {
  h5::Writer& writer = state_->for_texts();
  for (const auto& [name, text] : files) {
    if (!is_bare_name(name)) throw Error(name + ": not a file name");
    writer.text(std::string(kHuggingFace) + name, text);
  }
}

void FileWriter::write(std::span<const std::byte> bytes) { state_->writer.write(bytes); }
void FileWriter::end_tensor() { state_->writer.end_dataset(); }

ModelWriter::ModelWriter(const std::string& path, FileKind kind, bool force)
    : FileWriter(std::make_unique<State>(path, kind, force)) {}

void ModelWriter::begin_tensor(const TensorMeta& meta) {
  state_->writer.begin_dataset(meta.name, meta.dtype, meta.shape, attributes_of(meta), values_of(meta.name));
}

void ModelWriter::tensor(const TensorMeta& meta, std::span<const std::byte> bytes) {
  begin_tensor(meta);
  write(bytes);
  end_tensor();
}

void ModelWriter::commit(const InvalidTensor& invalid) {
  state_->writer.finish();
  report(state_->writer, state_->path, invalid);
  Checkpoint::open(state_->file->path());  // checks that all documents exist and can be read
  state_->file->commit();
}

ShardWriter::ShardWriter(const std::string& folder, std::int64_t rank, std::int64_t world, FileKind kind,
                         PieceRunner run)
    : FileWriter(std::make_unique<State>(folder, rank, world, kind, std::move(run))) {}

void ShardWriter::begin_tensor(const TensorMeta& meta, const Block& block) {
  check_block(meta, block, state_->path + ": /" + meta.name);
  h5::Attributes attributes = attributes_of(meta);
  attributes.insert_or_assign("offset", block.offset);
  attributes.insert_or_assign("global_shape", meta.shape);
  state_->writer.begin_dataset(meta.name, meta.dtype, block.extent, attributes, values_of(meta.name));
  state_->entry.blocks.push_back({meta, block});
}

void ShardWriter::tensor(const TensorMeta& meta, const Block& block, std::span<const std::byte> bytes) {
  if (block.elements() == 0 && bytes.empty()) return;
  begin_tensor(meta, block);
  write(bytes);
  end_tensor();
}

FileEntry ShardWriter::finish(const InvalidTensor& invalid) {
  State& s = *state_;
  s.entry.digest = s.writer.finish();
  report(s.writer, s.path, invalid);
  s.entry.bytes = File::open_read(s.path).size();
  return s.entry;
}

void copy_tensor(const Checkpoint& source, const std::string& name, ModelWriter& target) {
  constexpr std::uint64_t kPiece = std::uint64_t{16} << 20;
  const TensorMeta& meta = source.at(name);
  const std::uint64_t row = meta.row_bytes();
  const auto step = static_cast<std::int64_t>(std::max<std::uint64_t>(1, kPiece / std::max<std::uint64_t>(1, row)));
  std::vector<std::byte> buffer;
  target.begin_tensor(meta);
  for (std::int64_t begin = 0; row > 0 && begin < meta.rows(); begin += step) {
    const std::int64_t rows = std::min(step, meta.rows() - begin);
    buffer.resize(static_cast<std::uint64_t>(rows) * row);
    source.read_rows(name, begin, begin + rows, buffer);
    target.write(buffer);
  }
  target.end_tensor();
}

void copy_texts(const Checkpoint& source, ModelWriter& target) {
  if (const std::optional<std::string> text = source.tokenizer()) target.tokenizer(*text);
  if (const std::optional<std::string> id = source.tokenizer_id()) target.tokenizer_id(*id);
  target.huggingface(source.huggingface());
}

void copy_unknown(const Checkpoint& source, ModelWriter& target) {
  for (const TensorMeta& meta : source.unknown()) copy_tensor(source, meta.name, target);
}

}  // namespace fp8::ckpt
