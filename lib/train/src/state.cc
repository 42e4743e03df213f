// Checkpoints of a run: own rows in, own rows out. The format and the commit are ckpt's; ranks agree here.
#include "state.h"

#include <algorithm>

#include "fp8/base/digest.h"
#include "fp8/base/file.h"
#include "fp8/dtype/convert.h"
#include "fp8/h5/user_block.h"
#include "fp8/model/convert.h"

namespace fp8::train {
namespace {

constexpr std::int64_t kPieceElements = 1 << 20;  // of a tensor being read or converted

std::span<std::byte> bytes_of(const View& v) { return {static_cast<std::byte*>(v.data), v.bytes()}; }

// Rows [begin, end) of a stored tensor into memory of another format, piece by piece.
void read_converted(const ckpt::Checkpoint& checkpoint, const std::string& name, shard::Rows rows, const View& to) {
  const std::int64_t cols = to.size() / std::max<std::int64_t>(rows.count(), 1),
                     piece = std::max<std::int64_t>(1, kPieceElements / cols);
  std::vector<float> buffer;
  for (std::int64_t r = 0; r < rows.count(); r += piece) {
    const std::int64_t n = std::min(piece, rows.count() - r);
    buffer.resize(static_cast<std::size_t>(n * cols));
    checkpoint.read_rows_as_f32(name, rows.begin + r, rows.begin + r + n, buffer);
    dtype::from_floats(buffer, to.dtype, to.rows(r, r + n).data);
  }
}

void read_own(const Context& ctx, const ckpt::Checkpoint& checkpoint, const std::string& name, shard::Rows rows,
              const View& to) {
  if (rows.count() == 0) return;
  if (to.place != device::Place::host) {
    const device::Buffer staging(to.bytes(), device::Place::host, "a tensor on its way to the GPU");
    View there = to;
    there.place = device::Place::host;
    there.data = staging.data();
    read_own(ctx, checkpoint, name, rows, there);
    return tensor::copy_across(ctx, there, to);
  }
  if (checkpoint.at(name).dtype == to.dtype) {
    checkpoint.read_rows(name, rows.begin, rows.end, bytes_of(to));
  } else {
    read_converted(checkpoint, name, rows, to);
  }
}

std::string section(std::string_view prefix, const model::Parameter& p) { return std::string(prefix) + p.name; }

}  // namespace

std::string digest_of_model(const std::string& path) {
  const ckpt::Checkpoint c = ckpt::Checkpoint::open(path);
  if (!c.is_folder()) return h5::read_user_block(path, "fp8-checkpoint").digest;
  const std::string manifest = read_text_file(path + "/manifest.json", std::uint64_t{1} << 30);
  return digest_of(std::as_bytes(std::span(manifest))).hex();
}

hf::Config trainable_config(const ckpt::Checkpoint& checkpoint) {
  if (checkpoint.kind() == ckpt::Kind::quantized)
    throw Error(checkpoint.path() + ": holds quantized weights, which cannot be trained; undo it first: fp8-quantize " +
                checkpoint.path() + " --dequantize -o model.h5");
  return hf::parse_config(checkpoint.config(), checkpoint.path());
}

void check_trainable(const ckpt::Checkpoint& checkpoint, const std::vector<model::Parameter>& table) {
  model::check_weights(checkpoint, table);
  for (const model::Parameter& p : table) {
    const DType type = checkpoint.at(section(ckpt::kWeights, p)).dtype;
    if (type != DType::f32 && type != DType::bf16)
      throw Error(checkpoint.path() + ": " + p.name + ": stored as " + std::string(dtype::name_of(type)) +
                  ", which cannot be trained");
  }
}

void check_moments(const ckpt::Checkpoint& checkpoint, const std::vector<model::Parameter>& table) {
  for (const model::Parameter& p : table) {
    for (const std::string_view prefix : {ckpt::kMomentM, ckpt::kMomentV}) {
      const ckpt::TensorMeta& moment = checkpoint.at(section(prefix, p));
      const std::string what = checkpoint.path() + ": /" + moment.name;
      if (moment.shape != p.shape) throw Error(what + ": its shape is not that of the weight");
      if (moment.dtype != DType::f32 && moment.dtype != DType::bf16)
        throw Error(what + ": stored as " + std::string(dtype::name_of(moment.dtype)) + ", not f32 or bf16");
    }
  }
}

void load(const Context& ctx, const ckpt::Checkpoint& checkpoint, const ParameterStore& store, bool moments) {
  for (const OwnParameter& o : store.own()) {
    const model::Parameter& p = store.table()[static_cast<std::size_t>(o.number)];
    read_own(ctx, checkpoint, section(ckpt::kWeights, p), o.rows, o.master);
    if (!moments) continue;
    read_own(ctx, checkpoint, section(ckpt::kMomentM, p), o.rows, o.m);
    read_own(ctx, checkpoint, section(ckpt::kMomentV, p), o.rows, o.v);
  }
}

std::uint64_t shard_bytes(const std::vector<OwnParameter>& own) {
  std::uint64_t n = 1 << 16;
  for (const OwnParameter& o : own) n += o.master.bytes() + o.m.bytes() + o.v.bytes() + 4096;
  return n;
}

// Weights, first moments, second moments, each in the order of the table.
ckpt::FileEntry write_shard(const std::vector<OwnParameter>& own, const std::vector<model::Parameter>& table,
                            const Documents& documents, const std::string& folder, int rank, int world,
                            const std::atomic<bool>& cancelled) {
  ckpt::ShardWriter writer(folder, rank, world, ckpt::Kind::training);
  if (rank == 0) {
    writer.document("config", documents.config);
    writer.document("train", documents.train);
    writer.document("provenance", documents.provenance);
    if (documents.tokenizer) writer.tokenizer(*documents.tokenizer);
  }
  const auto write = [&](std::string_view prefix, const OwnParameter& o, const View& v, bool with_fate) {
    if (cancelled) throw Error(folder + ": given up");
    const model::Parameter& p = table[static_cast<std::size_t>(o.number)];
    ckpt::TensorMeta meta{section(prefix, p), v.dtype, p.shape, {}, {}, {}};
    if (with_fate) meta.fate = std::string(p.fate()), meta.reason = p.reason;
    writer.tensor(meta, o.rows.begin, o.rows.end, bytes_of(v));
  };
  for (const OwnParameter& o : own) write(ckpt::kWeights, o, o.master, true);
  for (const OwnParameter& o : own) write(ckpt::kMomentM, o, o.m, false);
  for (const OwnParameter& o : own) write(ckpt::kMomentV, o, o.v, false);
  return writer.finish();
}

}  // namespace fp8::train
