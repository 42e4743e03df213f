// Checkpoints of a run: checks, verification, loading and writing of parameters, moments and counters. Private to the
// crate.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/ckpt/run_folder.h"
#include "fp8/ckpt/writer.h"
#include "fp8/train/config.h"
#include "fp8/train/sharded_model.h"
#include "lora.h"

namespace fp8::train {

using ckpt::Position;

// The checkpoint's configuration. Throws Error if the checkpoint is quantized and has no adapters, unless it gets new
// `adapters`.
hf::ModelConfig config_to_train(const ckpt::Checkpoint& checkpoint, bool adapters = false);

// Throws Error unless the checkpoint's weights are those of the table, in a format that can be trained. Adapters are
// not looked for if its model has none. Sets Parameter::stored.
void check_trainable(const ckpt::Checkpoint& checkpoint, std::vector<model::Parameter>& table);

// Throws Error unless both moments of every weight are present, in its shape, as f32 or bf16.
void check_moments(const ckpt::Checkpoint& checkpoint, const std::vector<model::Parameter>& table);

// Compares every byte of a checkpoint with its digests; ranks divide the files. Returns why it is damaged, the same on
// every rank; nothing if it is not. Collective.
std::optional<std::string> verify(comm::Communicator& host_comm, const ckpt::Checkpoint& checkpoint);

// Reads this rank's rows of every weight, and of the optimizer state when `moments`, from any number of shards, and the
// delayed scales and histories that the checkpoint has, does what verify() does in the same pass, and refreshes the
// compute weights. Adapters that the checkpoint does not have get the values of `adapters`. A value that
// ckpt::values_of() forbids is damage too. Returns why the checkpoint is damaged, the same on every rank; the model's
// values are undefined then. Collective.
std::optional<std::string> load(ShardedModel& model, comm::Communicator& host_comm, const ckpt::Checkpoint& checkpoint,
                                bool moments, const AdapterValues& adapters = {});

// What a save writes besides the tensors.
struct Documents {
  json::Value config, train, provenance, mesh;
  std::optional<std::string> tokenizer = {};            // text of tokenizer.json
  std::optional<std::string> tokenizer_id = {};         // if there is no tokenizer.json
  std::map<std::string, std::string> huggingface = {};  // see ckpt::Checkpoint::huggingface()
};

// Upper bound of the bytes that write_shard() writes.
std::uint64_t shard_bytes(const std::vector<StateTensor>& tensors);

// Writes the file of rank `rank` of `ranks` of a checkpoint to `folder`, with the precisions of `table`; `tensors` may
// be a snapshot. Throws Error of status diverged for a value that ckpt::values_of() forbids. Writes and reads back
// through `runner`. Not collective; any thread.
ckpt::FileEntry write_shard(const std::vector<StateTensor>& tensors, const std::vector<model::Parameter>& table,
                            const Documents& documents, const std::string& folder, int rank, int ranks,
                            const PieceRunner& runner);

}  // namespace fp8::train
