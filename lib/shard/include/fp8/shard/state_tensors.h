/// The tensors that a checkpoint of a run holds, as one list. Saving, loading, resharding, the snapshot of an
/// asynchronous save, the size of a save and the checks of a checkpoint are derived from it: a new kind of state is a
/// new entry of this list. Not the format of the file (ckpt) and not the arithmetic on the tensors (store.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8/shard/store.h"

namespace fp8::shard {

/// One tensor of a run's state.
struct StateTensor {
  std::string name;                 ///< name in the file: section and name of the parameter
  std::vector<std::int64_t> shape;  ///< shape of the whole tensor
  int parameter = 0;                ///< number in the parameter table
  bool weight =
      false;      ///< whether every checkpoint has it; otherwise it is optimizer state, in training checkpoints only
  RowRange rows;  ///< rows that this rank saves
  View values;    ///< these rows, in the type they are saved in; empty without a shard
  std::int64_t scale_slot = -1;  ///< slot of a delayed scale or history
  bool whole = false;            ///< every rank has it whole in `values`, and rank 0 saves it
};

/// Weights and moments of a run in the order of the file: weights, then the first and the second moments of trainable
/// ones, each in the order of `table`. Without `shards`, which have the same order, `rows` and `values` are empty.
std::vector<StateTensor> state_tensors(const std::vector<model::Parameter>& table,
                                       std::span<const ParameterShard> shards = {});

/// The tensors of a store: weights and moments, then factors of stored codes, and scales and histories of a delayed
/// recipe.
std::vector<StateTensor> state_tensors(const ParameterStore& store);

/// A copy of a rank's state in host memory; frozen parameters on the host are referred to. An asynchronous save reads
/// it while steps change the original, and every save of a device reads it.
class Snapshot {
 public:
  /// Allocates the copy, without values: on the host from the context's arena under "snapshot", otherwise outside of
  /// it. A dry context allocates nothing outside of its arena.
  Snapshot(const Context& ctx, const ParameterStore& store);
  /// Copies the state of the store.
  void copy(const Context& ctx, const ParameterStore& store);
  /// The copied tensors, in the order of state_tensors().
  const std::vector<StateTensor>& tensors() const { return tensors_; }

 private:
  std::vector<device::Buffer> memory_;  // memory of the copies of a device's tensors
  std::vector<StateTensor> tensors_;
};

}  // namespace fp8::shard
