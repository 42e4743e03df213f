// What a run reads and writes as a checkpoint: parameters, moments, counters. Private to the crate. Collective where it
// says so.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/ckpt/run_folder.h"
#include "fp8/ckpt/writer.h"
#include "fp8/train/config.h"

namespace fp8::train {

// Where a run stands; all of it is in /train.
using Position = ckpt::Counters;

// The checkpoint's configuration; throws Error when it is of a kind that cannot be `used` ("trained", "scored").
hf::ModelConfig config_of(const ckpt::Checkpoint& checkpoint, std::string_view used);

// Throws Error unless the checkpoint's weights are those of the table, in a format that can be trained.
void check_trainable(const ckpt::Checkpoint& checkpoint, const std::vector<model::Parameter>& table);

// Throws Error unless both moments of every weight are there, of its shape, in a format that a run keeps them in.
void check_moments(const ckpt::Checkpoint& checkpoint, const std::vector<model::Parameter>& table);

// Reads every byte of a checkpoint against its digests; the ranks share its files. Returns why it is damaged, the same
// on every rank; nothing where it is whole. Collective.
std::optional<std::string> verify(comm::Communicator& world, const ckpt::Checkpoint& checkpoint);

// Own rows of every weight (and of both moments when `moments`), from any number of shards, and verify(), in one go: a
// file that holds what its reader owns is read once. A value that ckpt::values_of() forbids is damage too. After damage
// the store's memory is not to be believed. Collective.
std::optional<std::string> load(const Context& ctx, comm::Communicator& world, const ckpt::Checkpoint& checkpoint,
                                const ParameterStore& store, bool moments);

// What a save writes besides the tensors.
struct Documents {
  json::Value config, train, provenance, mesh;
  std::optional<std::string> tokenizer = {};     // text of tokenizer.json
  std::optional<std::string> tokenizer_id = {};  // what stands for it
};

// Bytes that write_shard() takes on the disk, at most.
std::uint64_t shard_bytes(const std::vector<ParameterShard>& own);

// Writes rank `rank` of `world`'s file of a checkpoint to `folder`, with the precisions of `table`; `own` may be a copy
// of what the store owns. Throws Error of status diverged for a value that ckpt::values_of() forbids. Ends by an Error
// between two tensors once `cancelled` is set. Not collective; any thread.
ckpt::FileEntry write_shard(const std::vector<ParameterShard>& own, const std::vector<model::Parameter>& table,
                            const Documents& documents, const std::string& folder, int rank, int world,
                            const std::atomic<bool>& cancelled);

}  // namespace fp8::train
