// Checkpoints of a run: own rows in, own rows out. The format and the commit are ckpt's; ranks agree here.
#include "state.h"

#include <algorithm>
#include <map>

#include "fp8/dtype/convert.h"
#include "fp8/model/convert.h"

namespace fp8::train {
namespace {

constexpr std::int64_t kPieceElements = 1 << 20;  // of a tensor being read or converted

std::span<std::byte> bytes_of(const View& v) { return {static_cast<std::byte*>(v.data), v.bytes()}; }

// Rows [begin, end) of a stored tensor into memory of another format, piece by piece.
void read_converted(const ckpt::Checkpoint& checkpoint, const std::string& name, shard::RowRange rows, const View& to) {
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

// Rows that this rank owns of a stored tensor, and where they belong.
struct Own {
  shard::RowRange rows;
  View to;
  std::int64_t taken = 0;  // of the rows, while files were verified

  // Where rows [begin, end), stored as `type`, are to be put: nowhere unless they are own and need no conversion.
  std::span<std::byte> allocate(DType type, std::int64_t begin, std::int64_t end) {
    if (to.device != device::DeviceType::host || type != to.dtype || begin < rows.begin || end > rows.end) return {};
    taken += end - begin;
    return bytes_of(to.rows(begin - rows.begin, end - rows.begin));
  }
};
using Wanted = std::map<std::string, Own, std::less<>>;

void read_own(const Context& ctx, const ckpt::Checkpoint& checkpoint, const std::string& name, const Own& own) {
  if (own.to.device != device::DeviceType::host) {
    const device::Buffer staging(own.to.bytes(), device::DeviceType::host, "a tensor on its way to the GPU");
    Own there = own;
    there.to.device = device::DeviceType::host;
    there.to.data = staging.data();
    read_own(ctx, checkpoint, name, there);
    return tensor::copy_across(ctx, there.to, own.to);
  }
  if (own.taken < own.rows.count()) {
    if (checkpoint.at(name).dtype == own.to.dtype) {
      checkpoint.read_rows(name, own.rows.begin, own.rows.end, bytes_of(own.to));
    } else {
      read_converted(checkpoint, name, own.rows, own.to);
    }
  }
}

std::string section(std::string_view prefix, const model::Parameter& p) { return std::string(prefix) + p.name; }

Wanted wanted_of(const ParameterStore& store, bool moments) {
  Wanted wanted;
  for (const ParameterShard& o : store.shards()) {
    if (o.rows.count() == 0) continue;
    const model::Parameter& p = store.table()[static_cast<std::size_t>(o.number)];
    wanted.emplace(section(ckpt::kWeights, p), Own{o.rows, o.master});
    if (!moments) continue;
    wanted.emplace(section(ckpt::kMomentM, p), Own{o.rows, o.m});
    wanted.emplace(section(ckpt::kMomentV, p), Own{o.rows, o.v});
  }
  return wanted;
}

// Runs `body` on every rank. Returns the first of the reasons why it failed, the same everywhere.
template <class Body>
std::optional<std::string> first_reason(comm::Communicator& world, Body&& body) {
  std::string mine;
  comm::agree(world, [&] {
    try {
      body();
    } catch (const Error& e) {
      mine = e.what();
    }
  });
  for (const std::string& reason : world.all_gather(mine))
    if (!reason.empty()) return reason;
  return std::nullopt;
}

// This rank's share of the files.
void verify_share(const comm::Communicator& world, const ckpt::Checkpoint& checkpoint,
                  const ckpt::Checkpoint::Destination& device) {
  const auto ranks = static_cast<std::size_t>(world.size());
  for (std::size_t i = static_cast<std::size_t>(world.rank()); i < checkpoint.file_count(); i += ranks)
    checkpoint.verify_file(i, device);
}

}  // namespace

hf::ModelConfig config_of(const ckpt::Checkpoint& checkpoint, std::string_view used) {
  if (checkpoint.kind() == ckpt::FileKind::quantized)
    throw Error(checkpoint.path() + ": holds quantized weights, which cannot be " + std::string(used) +
                "; dequantize it first: fp8-quantize " + checkpoint.path() + " --dequantize -o model.h5");
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

std::optional<std::string> verify(comm::Communicator& world, const ckpt::Checkpoint& checkpoint) {
  return first_reason(world, [&] { verify_share(world, checkpoint, {}); });
}

std::optional<std::string> load(const Context& ctx, comm::Communicator& world, const ckpt::Checkpoint& checkpoint,
                                const ParameterStore& store, bool moments) {
  Wanted wanted = wanted_of(store, moments);
  const auto device = [&](const ckpt::TensorMeta& meta, std::int64_t begin, std::int64_t end) {
    const auto it = wanted.find(meta.name);
    return it == wanted.end() ? std::span<std::byte>() : it->second.allocate(meta.dtype, begin, end);
  };
  if (auto reason = first_reason(world, [&] { verify_share(world, checkpoint, device); })) return reason;
  return first_reason(world, [&] {
    for (const auto& [name, own] : wanted) read_own(ctx, checkpoint, name, own);
  });
}

std::uint64_t shard_bytes(const std::vector<ParameterShard>& own) {
  std::uint64_t n = 1 << 16;
  for (const ParameterShard& o : own) n += o.master.bytes() + o.m.bytes() + o.v.bytes() + 4096;
  return n;
}

// Weights, first moments, second moments, each in the order of the table.
ckpt::FileEntry write_shard(const std::vector<ParameterShard>& own, const std::vector<model::Parameter>& table,
                            const Documents& documents, const std::string& folder, int rank, int world,
                            const std::atomic<bool>& cancelled) {
  ckpt::ShardWriter writer(folder, rank, world, ckpt::FileKind::training);
  if (rank == 0) {
    writer.document("config", documents.config);
    writer.document("train", documents.train);
    writer.document("provenance", documents.provenance);
    if (documents.tokenizer) writer.tokenizer(*documents.tokenizer);
    if (documents.tokenizer_id) writer.tokenizer_id(*documents.tokenizer_id);
  }
  const auto write = [&](std::string_view prefix, const ParameterShard& o, const View& v, bool with_precision) {
    if (cancelled) throw Error(folder + ": given up");
    const model::Parameter& p = table[static_cast<std::size_t>(o.number)];
    ckpt::TensorMeta meta{section(prefix, p), v.dtype, p.shape, {}, {}, {}};
    if (with_precision) meta.precision = std::string(p.precision()), meta.reason = p.reason;
    writer.tensor(meta, o.rows.begin, o.rows.end, bytes_of(v));
  };
  for (const ParameterShard& o : own) write(ckpt::kWeights, o, o.master, true);
  for (const ParameterShard& o : own) write(ckpt::kMomentM, o, o.m, false);
  for (const ParameterShard& o : own) write(ckpt::kMomentV, o, o.v, false);
  return writer.finish([](const std::string& reason) { throw Error(reason, Exit::diverged); });
}

}  // namespace fp8::train
