/// The all-gather of a unit's weights. The weights of the next unit are gathered while a unit computes. With one rank
/// in a group the buffer of the group is the rank's own memory, and nothing is gathered.
#pragma once

#include <array>
#include <vector>

#include "fp8/comm/mesh.h"
#include "fp8/shard/own_rows.h"

namespace fp8::shard {

/// Gathers the weights of one rank's units into buffers, which layers share if they are gathered again for backward.
class WeightGatherer {
 public:
  /// Allocates the buffers from the context's arena. The arguments outlive the gatherer. Not collective.
  WeightGatherer(const Context& ctx, const comm::Mesh& mesh, const Layout& layout, const OwnRows& own);

  /// Starts the all-gather of a unit, unless its buffer has the unit or the rank has no such unit. Collective.
  void prefetch(int unit);
  /// Gathers a unit, which may have been started, and waits until its weights are valid. Collective.
  void unshard(const Context& ctx, int unit);
  /// The whole weight of a slot, codes or compute weights, until another unit takes the buffer; empty if the slot is.
  View weight(int unit, std::size_t slot) const;
  /// f32 [rows]: the scales of the rows of that weight, with WeightForm::single_copy.
  View row_scales(int unit, std::size_t slot) const;
  /// The own rows have changed, so that units are gathered again; their frozen weights only if `frozen`.
  void discard(bool frozen);

  /// The whole weight of a slot in format `type`, from the masters, in memory from the context's arena. Collective.
  View gather_masters(const Context& ctx, const SlotLayout& s, DType type) const;

 private:
  /// Whole matrices of one unit, valid or being gathered.
  struct Buffer {
    int unit = -1;
    int frozen = -1;  // unit whose frozen parameters are valid
    std::array<View, model::kSlots> weight, row_scales;
    std::vector<Pending> pending;  // for all of them, one for each group of ranks
  };
  std::size_t index(int unit) const;
  void count(const comm::Communicator& group, const Sharded& tensor) const;

  Context ctx_;
  comm::Mesh mesh_;
  const Layout& layout_;
  const OwnRows& own_;
  std::vector<Buffer> buffers_;
};

}  // namespace fp8::shard
