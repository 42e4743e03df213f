/// The all-gather of a unit's weights. The weights of the next unit are gathered while a unit computes. With one rank
/// in a group the buffer of the group is the rank's own memory, and nothing is gathered. Weights that are gathered as
/// codes of a pass have a buffer for the codes of forward and, in training, one for those of dgrad; each rank casts its
/// rows into the buffer when the gather begins, so that the codes of the own rows take no memory of their own. Own rows
/// of experts are cast together, whatever their number, into memory that all layers share and from which they are sent.
#pragma once

#include <array>
#include <vector>

#include "fp8/comm/mesh.h"
#include "fp8/shard/dgrad_scales.h"

namespace fp8::shard {

/// Gathers the weights of one rank's units into buffers, which layers share if they are gathered again for backward.
class WeightGatherer {
 public:
  /// Allocates the buffers from the context's arena. The arguments outlive the gatherer. Not collective.
  WeightGatherer(const Context& ctx, const comm::Mesh& mesh, const Layout& layout, const OwnRows& own,
                 const DgradScales& dgrad);

  /// Whether casts from here on add to CastOptions::counts, as at first.
  void count_casts(bool on) { counts_casts_ = on; }
  /// Starts the all-gather of a unit for a pass, unless its buffer has the unit or the rank has no such unit. The layer
  /// of the gather of experts that began before, if it was for the same pass, must have been unsharded. Collective.
  void prefetch(int unit, linear::Pass pass);
  /// Gathers a unit, which may have been started, and waits until its weights are valid for the pass. Collective.
  void unshard(const Context& ctx, int unit, linear::Pass pass);
  /// The whole weight of a slot, codes of the pass or compute weights, until another unit takes the buffer; empty if
  /// the slot is.
  View weight(int unit, std::size_t slot, linear::Pass pass) const;
  /// f32 [rows]: the scales of the rows of that weight, with SlotLayout::gathers_row_scales(); in backward not those of
  /// WeightForm::pass_codes.
  View row_scales(int unit, std::size_t slot) const;
  /// f32 [rows / 128, ceil(cols / 128)]: the scales of the blocks of that weight, with WeightForm::block_codes.
  View block_scales(int unit, std::size_t slot) const { return of_blocks(unit, slot, &Buffer::block_scales); }
  /// Their reciprocals.
  View inverse_block_scales(int unit, std::size_t slot) const {
    return of_blocks(unit, slot, &Buffer::inverse_block_scales);
  }
  /// The own rows have changed, so that units are gathered again; their frozen weights only if `frozen`.
  void discard(bool frozen);

  /// The whole weight of a slot in format `type`, from the masters, in memory from the context's arena. Collective.
  View gather_masters(const Context& ctx, const SlotLayout& s, DType type) const;

 private:
  /// The weights of a unit that are gathered together: those that serve every pass, codes of forward, codes of dgrad.
  enum Use : std::uint8_t { every_pass, of_forward, of_dgrad };
  /// Which weights of one use are valid or being gathered.
  struct Valid {
    bool all = false, frozen = false;
  };
  /// Matrices of the slots of a unit and their scales, or those of the own rows. Dgrad has row_scales of forward.
  struct Matrices {
    std::array<View, model::kSlots> weight, dgrad_codes, row_scales, block_scales, inverse_block_scales;
  };
  /// Whole matrices of one unit.
  struct Buffer : Matrices {
    int unit = -1;
    std::array<Valid, 3> valid;    // by Use
    std::vector<Pending> pending;  // for all of them, one for each group of ranks
  };
  std::size_t index(int unit) const;
  View of_blocks(int unit, std::size_t slot, std::array<View, model::kSlots> Buffer::*scales) const;
  static Use use_of(const SlotLayout& s, linear::Pass pass);
  /// Codes of some rows, and those of their scales that are gathered with them.
  struct Coded {
    View codes, row_scales{}, block_scales{}, inverse_block_scales{};
    Coded rows(std::int64_t begin, std::int64_t end) const;
  };
  static Coded coded(const Matrices& all, const SlotLayout& s, std::size_t slot, Use use);
  void allocate(Matrices& to, std::size_t slot, const SlotLayout& s, DType type, std::int64_t rows) const;
  quant::CastOptions options_of(const SlotLayout& s) const;
  void cast_for_dgrad(const ParameterShard& o, const SlotLayout& s, const View& codes) const;
  void cast(const View& rows, const SlotLayout& s, const Coded& to) const;
  void cast_together(const SlotLayout& s, std::size_t slot, Use use) const;
  std::vector<Sharded> tensors_of(const Buffer& b, std::size_t slot, int number, std::int64_t first,
                                  linear::Pass pass) const;
  void count(const comm::Communicator& group, const Sharded& tensor) const;

  Context ctx_;
  comm::Mesh mesh_;
  const Layout& layout_;
  const OwnRows& own_;
  const DgradScales& dgrad_;
  std::vector<Buffer> buffers_;
  Matrices sent_;  // codes of the own rows of slots that are cast together, and their scales
  bool counts_casts_ = true;
};

}  // namespace fp8::shard
