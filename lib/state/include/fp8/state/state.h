/// Checkpoints of a run: checks, verification, loading and writing of parameters, moments and counters.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/ckpt/run_folder.h"
#include "fp8/ckpt/writer.h"
#include "fp8/settings/config.h"
#include "fp8/settings/lora.h"
#include "fp8/shard/sharded_model.h"

namespace fp8::state {

using ckpt::Position;
using device::Context;
using dtype::DType;
using tensor::View;

/// Compares every byte of a checkpoint with its digests; ranks divide the files. Returns why it is damaged, the same on
/// every rank; nothing if it is not. Collective.
std::optional<std::string> verify(comm::Communicator& host_comm, const ckpt::Checkpoint& checkpoint);

/// Reads this rank's rows of every weight, and of the optimizer state when `moments`, from any number of shards, and
/// the delayed scales and histories that the checkpoint has, does what verify() does in the same pass, and refreshes
/// the compute weights. Adapters that the checkpoint does not have get the values of `adapters`. A value that
/// ckpt::values_of() forbids is damage too. Returns why the checkpoint is damaged, the same on every rank; the model's
/// values are undefined then. Collective.
std::optional<std::string> load(shard::ShardedModel& model, comm::Communicator& host_comm,
                                const ckpt::Checkpoint& checkpoint, bool moments,
                                const settings::AdapterValues& adapters = {});

/// The documents that a save writes besides the tensors.
struct Documents {
  json::Value config, train, provenance, mesh;
  std::optional<std::string> tokenizer = {};            ///< text of tokenizer.json
  std::optional<std::string> tokenizer_id = {};         ///< identifier of the tokenizer, if there is no tokenizer.json
  std::map<std::string, std::string> huggingface = {};  ///< see ckpt::Checkpoint::huggingface()
};

/// Upper bound of the bytes that write_shard() writes.
std::uint64_t shard_bytes(const std::vector<shard::StateTensor>& tensors);

/// Writes file `file_number` of `file_count` of a checkpoint to `folder`, the rows that this rank saves, with the
/// precisions of `table`; `tensors` may be a snapshot. Throws Error of status diverged for a value that
/// ckpt::values_of() forbids. Writes and reads back through `runner`. Not collective; any thread.
ckpt::FileEntry write_shard(const std::vector<shard::StateTensor>& tensors, const std::vector<model::Parameter>& table,
                            const Documents& documents, const std::string& folder, int file_number, int file_count,
                            const PieceRunner& runner);

}  // namespace fp8::state
