/// The tensors that a checkpoint of a run holds, as one list. Saving, loading, resharding, the snapshot of an
/// asynchronous save, the size of a save and the checks of a checkpoint are derived from it: a new kind of state is a
/// new entry of this list. Not the format of the file (ckpt) and not the arithmetic on the tensors (store.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fp8/device/device.h"
#include "fp8/model/parameters.h"
#include "fp8/shard/shard.h"

namespace fp8::shard {

using device::Context;

class ParameterStore;  // store.h

/// One tensor of a run's state.
struct StateTensor {
  std::string name;                 ///< name in the file: section and name of the parameter
  std::vector<std::int64_t> shape;  ///< shape of the whole tensor
  int parameter = 0;                ///< number in the parameter table
  bool weight =
      false;       ///< whether every checkpoint has it; otherwise it is optimizer state, in training checkpoints only
  RowRange rows;   ///< rows that this rank holds; all of them if the tensor is not sharded
  RowRange saved;  ///< the rows that this rank saves: every row is saved by one rank
  View values;     ///< the rows that it holds, in the type they are saved in; empty without a store
  std::int64_t scale_slot = -1;  ///< slot of a delayed scale or history
  bool history = false;          ///< whether it is a history
  RowRange columns{};            ///< columns of these rows that it holds and saves; empty: all of them

  /// The values of the rows that this rank saves.
  View saved_values() const {
    return values.empty() ? View{} : values.rows(saved.begin - rows.begin, saved.end - rows.begin);
  }
};

/// Weights, first moments of trainable ones, second moments of those that AdamW updates, factors of stored codes, and
/// scales and histories of a delayed recipe, each in the order of the table, with the rows that this rank holds and
/// saves. Without a store those that follow from the table alone, with names and shapes.
std::vector<StateTensor> state_tensors(const std::vector<model::Parameter>& table,
                                       const ParameterStore* store = nullptr);
/// The same with the rows of the store.
std::vector<StateTensor> state_tensors(const ParameterStore& store);

/// A copy of what a rank saves in host memory; frozen parameters on the host are referred to. An asynchronous save
/// reads it while steps change the original, and every save of a device reads it.
class Snapshot {
 public:
  /// Allocates the copy, without values: on the host from the context's arena under "snapshot", otherwise outside of
  /// it. A dry context allocates nothing outside of its arena.
  Snapshot(const Context& ctx, const ParameterStore& store);
  /// Copies the state of the store.
  void copy(const Context& ctx, const ParameterStore& store);
  /// The copied tensors, in the order of state_tensors(); each holds the rows that it saves.
  const std::vector<StateTensor>& tensors() const { return tensors_; }

 private:
  std::vector<device::Buffer> memory_;  // memory of the copies of a device's tensors
  std::vector<StateTensor> tensors_;
};

}  // namespace fp8::shard
