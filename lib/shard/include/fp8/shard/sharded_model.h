/// A model on one rank of a job: arena, GEMM engine, decoder and this rank's shard of the parameters. Training,
/// evaluation and tests assemble it here. The plan of its memory is a dry run of the same assembly and of one
/// micro-batch, so that the two cannot differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/data/sampler.h"
#include "fp8/device/arena.h"
#include "fp8/gemm/gemm.h"
#include "fp8/json/value.h"
#include "fp8/shard/expert_load.h"
#include "fp8/shard/state_tensors.h"
#include "fp8/shard/store.h"

namespace fp8::shard {

/// The parts of a ShardedModel.
struct ModelSpec {
  hf::ModelConfig config;               ///< sizes
  std::vector<model::Parameter> table;  ///< parameters with their compute precisions
  StoreOptions store;                   ///< how parameters are kept and gathered
  model::Execution execution{};         ///< how the decoder computes
  int micro_batches = 1;                ///< micro-batches of a step on each rank
  bool snapshot = false;                ///< whether the model has a Snapshot
  bool gathers_gradients = false;       ///< whether GradientReducer::visit() will be called
  bool measures_updates = false;        ///< whether ParameterStore::update() will measure changes

  /// The execution with activations of the type StoreOptions::compute, and blocks of logits of so many bytes.
  model::Execution decoder(std::int64_t logit_bytes) const {
    model::Execution decoder = execution;
    decoder.activation = store.compute;
    decoder.logit_bytes = logit_bytes;
    return decoder;
  }
};

/// Memory of a rank, from a dry run.
struct MemoryPlan {
  std::size_t bytes = 0;             ///< size of the arena
  std::size_t scratch = 0;           ///< scratch of the GEMM engine, outside of the arena
  std::size_t program = 0;           ///< on the host what is resident before the arena is allocated: code, libraries,
                                     ///< MPI; on a GPU an assumption of what CUDA, NCCL and loaded modules take
  std::vector<device::Usage> usage;  ///< use of the arena at its peak, by category, largest first
  device::DeviceType device = device::DeviceType::host;  ///< device of the memory
  std::int64_t logit_bytes = model::kLeastLogits;        ///< size of a block of logits, which is part of `bytes`

  /// Bytes of all.
  std::size_t total() const { return bytes + scratch + program; }
  /// Bytes by category, for the record of a run.
  json::Value to_json() const;
  /// A table with a line for each category.
  std::string to_text() const;
  /// Bytes of a category; 0 if there is none.
  std::size_t bytes_of(std::string_view category) const;
  /// The total and the three largest categories: "704 GiB on each rank: activations 600 GiB, moments 978 KiB, gradients
  /// 489 KiB".
  std::string largest_users() const;
  /// The setting that reduces the largest category: "use --moments bf16 or more ranks".
  std::string remedy() const;
  /// The arena. Throws Error with the largest categories and the remedy when memory is insufficient.
  device::Arena allocate() const;
};

/// Sizes of a batch on one rank.
struct BatchShape {
  std::int64_t sequences = 0;      ///< B
  std::int64_t length = 0;         ///< T
  data::DocumentBounds documents;  ///< 0 if documents are joined
};

/// The batch with its views copied to the device of `ctx`, in memory from its arena.
model::Batch on_device(const Context& ctx, const model::Batch& batch);
/// The same in memory from `memory`.
model::Batch on_device(const Context& ctx, const model::Batch& batch, device::PooledMemory& memory);

/// Assembles `spec` dry on the device of `at` and runs a forward pass over a batch of the shape `evaluated`, a pass to
/// the logits of one row of a batch of the shape `sampled`, unless it is empty, and, when training, forward and
/// backward of micro-batches of the shape `trained` in the order of this rank's stage, without computing. Throws Error
/// naming a GEMM or an attention that the library of the device does not offer. Host memory of a run on a GPU is not in
/// the plan. The memory for a block of logits is that of plan_fitting(), whatever the spec says. Collective over
/// mesh.all(): an Error of some ranks is an AgreedError of all.
MemoryPlan plan_memory(const Context& at, const comm::Mesh& mesh, const ModelSpec& spec, const BatchShape& trained,
                       const BatchShape& evaluated, const BatchShape& sampled = {});

/// plan_memory() of one rank with the block of logits that the spec has, not collective: `mesh` may be imagined.
MemoryPlan plan_rank(const Context& at, const comm::Mesh& mesh, const ModelSpec& spec, const BatchShape& trained,
                     const BatchShape& evaluated, const BatchShape& sampled = {});

/// plan_with(bytes for a block of logits): model::kLeastLogits on the host; on a GPU model::kMostLogits, or the first
/// of its half, quarter and so on whose total is at most `gpu_memory` (0: unknown), but at least model::kLeastLogits.
/// The ranks of `all` have different plans and memory, and get the smallest block of them: under tensor parallelism
/// they exchange maxima and sums of each block, so that their numbers of blocks must be equal. Collective; an Error of
/// `plan_with` on some ranks is an AgreedError of all.
MemoryPlan plan_fitting(comm::Communicator& all, device::DeviceType device, std::size_t gpu_memory,
                        const std::function<MemoryPlan(std::int64_t)>& plan_with);

/// The model on one rank.
struct ShardedModel {
  /// Assembles `spec` on the device of `at` in the arena `memory`, or dry when `memory` is dry. Master weights are
  /// undefined, moments zero. The groups of `mesh` move memory of that device between the ranks and outlive the model.
  /// Not collective.
  ShardedModel(const Context& at, const comm::Mesh& mesh, const ModelSpec& spec, device::Arena memory);
  /// A model in the memory of the plan of `spec`, with the plan's block of logits. Throws as MemoryPlan::allocate().
  ShardedModel(const Context& at, const comm::Mesh& mesh, const ModelSpec& spec, const MemoryPlan& plan);
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  device::Arena arena;                ///< memory of the parameters and of a step
  Context ctx;                        ///< context of the device, with the arena
  gemm::Engine engine;                ///< engine with the counts of GEMMs that ran
  model::Decoder decoder;             ///< forward and backward
  ParameterStore store;               ///< this rank's parameters
  std::optional<Snapshot> snapshot;   ///< snapshot, if the spec has one
  std::optional<ExpertLoad> experts;  ///< observer of the routers, if the model has experts
};

}  // namespace fp8::shard
