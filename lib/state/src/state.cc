// Loading and saving the own rows of every state tensor. The format and the commit are in ckpt; ranks agree here.
#include "fp8/state/state.h"

#include <algorithm>
#include <map>
#include <set>

#include "fp8/cli/command.h"
#include "fp8/convert/convert.h"
#include "fp8/dtype/convert.h"

namespace fp8::state {
namespace {

constexpr std::int64_t kPieceElements = 1 << 20;  // elements of a piece of a tensor that is read or converted

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

// This rank's rows of a stored tensor, and where they are loaded to.
struct OwnRows {
  shard::RowRange rows, columns;  // no columns: all
  View to;
  std::int64_t loaded = 0;  // rows that verification has read into `to`

  // Where verification reads a block; empty unless it is whole rows, all of them own rows, and needs no conversion.
  std::span<std::byte> destination_of(const ckpt::TensorMeta& meta, const ckpt::Block& block) {
    if (to.device != device::DeviceType::host || meta.dtype != to.dtype || !ckpt::is_whole_rows(meta, block) ||
        columns.count() > 0)
      return {};
    const std::int64_t begin = block.begin_row(), end = block.end_row();
    if (begin < rows.begin || end > rows.end) return {};
    loaded += end - begin;
    return bytes_of(to.rows(begin - rows.begin, end - rows.begin));
  }
};
using OwnTensors = std::map<std::string, OwnRows, std::less<>>;  // rows by name in the file

void read_rest(const Context& ctx, const ckpt::Checkpoint& checkpoint, const std::string& name, const OwnRows& own);

// Reads whole rows, and keeps the own columns.
void read_columns(const Context& ctx, const ckpt::Checkpoint& checkpoint, const std::string& name, const OwnRows& own) {
  const std::int64_t all = checkpoint.at(name).shape.back(), piece = std::max<std::int64_t>(1, kPieceElements / all);
  const tensor::Tensor rows(own.to.dtype, {std::min(piece, own.rows.count()), all});
  for (std::int64_t r = 0; r < own.rows.count(); r += piece) {
    const std::int64_t n = std::min(piece, own.rows.count() - r);
    const View part = rows.view().rows(0, n);
    read_rest(ctx, checkpoint, name, {{own.rows.begin + r, own.rows.begin + r + n}, {}, part});
    const View from = part.columns(own.columns.begin, own.columns.end), to = own.to.rows(r, r + n);
    for (std::int64_t i = 0; i < n; ++i)
      std::ranges::copy(bytes_of(from.rows(i, i + 1)), bytes_of(to.rows(i, i + 1)).begin());
  }
}

// Reads the own rows that verification has not read.
void read_rest(const Context& ctx, const ckpt::Checkpoint& checkpoint, const std::string& name, const OwnRows& own) {
  if (own.to.device != device::DeviceType::host) {
    const device::Buffer staging(own.to.bytes(), device::DeviceType::host, "a tensor on its way to the GPU");
    OwnRows there = own;
    there.to.device = device::DeviceType::host;
    there.to.data = staging.data();
    read_rest(ctx, checkpoint, name, there);
    return tensor::copy_across(ctx, there.to, own.to);
  }
  if (own.columns.count() > 0) return read_columns(ctx, checkpoint, name, own);
  if (own.loaded >= own.rows.count()) return;
  if (checkpoint.at(name).dtype == own.to.dtype) {
    checkpoint.read_rows(name, own.rows.begin, own.rows.end, bytes_of(own.to));
  } else {
    read_converted(checkpoint, name, own.rows, own.to);
  }
}

// Whether the checkpoint has this scale or history. A history of another length is not one of this run.
bool has_scale(const ckpt::Checkpoint& checkpoint, const shard::StateTensor& t) {
  const ckpt::TensorMeta* meta = checkpoint.find(t.name);
  return meta != nullptr && meta->dtype == DType::f32 && meta->shape == t.shape;
}

// Slots of delayed scales of which the checkpoint has scale and history.
std::set<std::int64_t> complete_slots(const ckpt::Checkpoint& checkpoint,
                                      const std::vector<shard::StateTensor>& tensors) {
  std::set<std::int64_t> complete;
  for (const shard::StateTensor& t : tensors)
    if (t.scale_slot >= 0) complete.insert(t.scale_slot);
  for (const shard::StateTensor& t : tensors)
    if (t.scale_slot >= 0 && !has_scale(checkpoint, t)) complete.erase(t.scale_slot);
  return complete;
}

// Some rows of this rank's block of a parameter.
std::vector<float> values_of_block(const model::Parameter& p, shard::RowRange rows,
                                   const settings::AdapterValues& values) {
  model::Parameter all = p;
  all.shape = p.whole_shape();
  const auto width = static_cast<std::size_t>(all.cols()), n = static_cast<std::size_t>(rows.count());
  std::vector<float> whole(n * width), block;
  values(all, {p.first_row() + rows.begin, p.first_row() + rows.end}, whole);
  if (p.cols() == all.cols()) return whole;
  for (std::size_t r = 0; r < n; ++r) {
    const auto first = whole.begin() + static_cast<std::ptrdiff_t>(r * width) + p.first_col();
    block.insert(block.end(), first, first + p.cols());
  }
  return block;
}

// Fills the own rows of adapters that the checkpoint does not have.
void begin_adapters(shard::ShardedModel& model, const ckpt::Checkpoint& checkpoint,
                    const settings::AdapterValues& values) {
  for (const shard::ParameterShard& own : model.store.shards()) {
    const model::Parameter& p = model.store.table()[static_cast<std::size_t>(own.number)];
    if (own.rows.count() == 0 || checkpoint.find(std::string(ckpt::kWeights) + p.name) != nullptr) continue;
    const std::vector<float> floats = values_of_block(p, own.rows, values);
    device::copy_bytes(model.ctx, own.master.data, model.ctx.device, floats.data(), device::DeviceType::host,
                       own.master.bytes());
  }
}

// A history without a scale is that of a run that has not calibrated with its settings yet.
OwnTensors own_tensors(const ckpt::Checkpoint& checkpoint, const std::vector<shard::StateTensor>& tensors,
                       const std::set<std::int64_t>& slots, bool moments) {
  OwnTensors own;
  for (const shard::StateTensor& t : tensors) {
    if (t.scale_slot >= 0 && !slots.contains(t.scale_slot) && !(t.history && has_scale(checkpoint, t))) continue;
    if (t.rows.count() > 0 && (t.weight || t.scale_slot >= 0 || moments))
      own.emplace(t.name, OwnRows{t.rows, t.columns, t.values});
  }
  return own;
}

// Runs `body` on every rank. Returns the first of the reasons why it failed, the same everywhere.
template <class Body>
std::optional<std::string> first_reason(comm::Communicator& host_comm, Body&& body) {
  std::string mine;
  comm::agree(host_comm, [&] {
    try {
      body();
    } catch (const Error& e) {
      mine = e.what();
    }
  });
  for (const std::string& reason : host_comm.all_gather(mine))
    if (!reason.empty()) return reason;
  return std::nullopt;
}

// This rank's share of the files.
void verify_share(const comm::Communicator& host_comm, const ckpt::Checkpoint& checkpoint,
                  const ckpt::Checkpoint::Destination& destination) {
  const auto ranks = static_cast<std::size_t>(host_comm.size());
  for (std::size_t i = static_cast<std::size_t>(host_comm.rank()); i < checkpoint.file_count(); i += ranks)
    checkpoint.verify_file(i, destination);
}

}  // namespace

std::optional<std::string> verify(comm::Communicator& host_comm, const ckpt::Checkpoint& checkpoint) {
  return first_reason(host_comm, [&] { verify_share(host_comm, checkpoint, {}); });
}

std::optional<std::string> load(shard::ShardedModel& model, comm::Communicator& host_comm,
                                const ckpt::Checkpoint& checkpoint, bool moments,
                                const settings::AdapterValues& adapters) {
  std::vector<shard::StateTensor> tensors = shard::state_tensors(model.store);
  const std::set<std::int64_t> slots = complete_slots(checkpoint, tensors);
  if (adapters)
    std::erase_if(tensors, [&](const shard::StateTensor& t) { return t.weight && checkpoint.find(t.name) == nullptr; });
  OwnTensors own = own_tensors(checkpoint, tensors, slots, moments);
  const auto destination = [&](const ckpt::TensorMeta& meta, const ckpt::Block& block) {
    const auto it = own.find(meta.name);
    return it == own.end() ? std::span<std::byte>() : it->second.destination_of(meta, block);
  };
  if (auto reason = first_reason(host_comm, [&] { verify_share(host_comm, checkpoint, destination); })) return reason;
  const auto read = [&] {
    for (const auto& [name, rows] : own) read_rest(model.ctx, checkpoint, name, rows);
    if (adapters) begin_adapters(model, checkpoint, adapters);
  };
  if (auto reason = first_reason(host_comm, read)) return reason;
  for (const std::int64_t slot : slots) model.store.scales().set_history(slot);
  model.store.refresh_compute_weights(model.ctx);
  return std::nullopt;
}

std::uint64_t shard_bytes(const std::vector<shard::StateTensor>& tensors) {
  constexpr std::uint64_t kDocuments = 1 << 16, kOverhead = 1536;  // estimated overhead of a file, and of a tensor
  std::uint64_t n = kDocuments;
  for (const shard::StateTensor& t : tensors) n += t.saved_values().bytes() + kOverhead;
  return n;
}

ckpt::FileEntry write_shard(const std::vector<shard::StateTensor>& tensors, const std::vector<model::Parameter>& table,
                            const Documents& documents, const std::string& folder, int file_number, int file_count,
                            const PieceRunner& runner) {
  ckpt::ShardWriter writer(folder, file_number, file_count, ckpt::FileKind::training, runner);
  if (file_number == 0) {
    writer.document("config", documents.config);
    writer.document("train", documents.train);
    writer.document("provenance", documents.provenance);
    if (documents.tokenizer) writer.tokenizer(*documents.tokenizer);
    if (documents.tokenizer_id) writer.tokenizer_id(*documents.tokenizer_id);
    writer.huggingface(documents.huggingface);
  }
  for (const shard::StateTensor& t : tensors) {
    if (t.saved.count() == 0) continue;
    ckpt::TensorMeta meta{t.name, t.values.dtype, t.shape, {}, {}, {}};
    const model::Parameter& p = table[static_cast<std::size_t>(t.parameter)];
    if (t.weight) meta.precision = std::string(p.precision()), meta.reason = p.reason;
    ckpt::Block block = ckpt::rows_block(meta, t.saved.begin, t.saved.end);
    if (t.columns.count() > 0) block.offset.back() = t.columns.begin, block.extent.back() = t.columns.count();
    writer.tensor(meta, block, bytes_of(t.saved_values()));
  }
  return writer.finish([](const std::string& reason) { throw Error(reason, Exit::diverged); });
}

}  // namespace fp8::state
