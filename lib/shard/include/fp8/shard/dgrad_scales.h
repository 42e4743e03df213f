/// The scales with which the codes of dgrad are cast of weights that are gathered as codes of a pass: one for each
/// column of a part, or one for a part, by the recipe. Their amaxes cover the rows of all ranks, so that they are
/// measured and reduced once after each update. Scales of forward are those of rows, which are whole on a rank; the
/// gather computes them (gather.h).
#pragma once

#include "fp8/comm/mesh.h"
#include "fp8/shard/own_rows.h"

namespace fp8::shard {

/// Scales and their reciprocals, at the places of DgradScaleNumbers.
class DgradScales {
 public:
  /// Allocates them from the context's arena, undefined. The arguments outlive the scales. Not collective.
  DgradScales(const Context& ctx, const comm::Mesh& mesh, const Layout& layout, const OwnRows& own);

  /// Computes all scales from the compute weights of all ranks. Collective; no result depends on the number of ranks.
  void renew(const Context& ctx);

  /// f32 [SlotLayout::dgrad_scales()]: the scales of the part that the parameter with this number belongs to.
  View of(int number) const;
  /// f32 [parts of the slot on this rank, SlotLayout::dgrad_scales()] as one vector.
  View of(const SlotLayout& s) const;
  /// f32 [parts of the linear, SlotLayout::dgrad_scales()] as one vector.
  View of(const SlotLayout& s, const SlotLinear& l) const { return of_linear(scales_, s, l); }
  /// Their reciprocals.
  View inverse(const SlotLayout& s, const SlotLinear& l) const { return of_linear(inverse_scales_, s, l); }

 private:
  static View of_parts(const View& all, const SlotLayout& s, std::size_t first, std::size_t last);
  static View of_linear(const View& all, const SlotLayout& s, const SlotLinear& l) {
    return of_parts(all, s, l.first_part, l.last_part);
  }
  void measure(const Context& ctx, const SlotLayout& s);
  void reduce(const Context& ctx) const;

  comm::Mesh mesh_;
  const Layout& layout_;
  const OwnRows& own_;
  View scales_, inverse_scales_;  // f32 [DgradScaleNumbers::count]; amaxes come first into the memory of scales
};

}  // namespace fp8::shard
