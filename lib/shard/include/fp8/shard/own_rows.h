/// The memory of the rows that one rank has of the parameters: master weights, moments, gradients and compute weights.
/// The rows of the parameters of a slot are adjacent, so that with one rank they are the whole matrix of the slot.
#pragma once

#include <string_view>
#include <vector>

#include "fp8/shard/layout.h"

namespace fp8::shard {

using device::Context;

/// One rank's shard of one parameter. Views are [own rows, cols] (vectors: [own rows]; packed codes: [own rows, cols /
/// 2]).
struct ParameterShard {
  int number = 0;         ///< number in the parameter table
  RowRange rows{};        ///< rows of the block of Parameter::shape
  View master{};          ///< in the master format; in that of the file if it is frozen
  View m{}, v{};          ///< empty unless training with updates and trainable; v also empty under Muon
  View gradient{};        ///< f32; empty unless training and trainable
  View compute_weight{};  ///< weight in the compute format: the master itself if that has it; empty with FP8 all-gather
  View codes{};           ///< u8; empty without FP8 all-gather; the master itself if that is stored as codes
  View factors{};     ///< f32, of FP4 e4m3, of the whole parameter: factors of stored codes, in the shape of the file
  View amax{};        ///< f32 [1] of the whole parameter, for stored FP4 codes; else empty
  View row_scales{};  ///< f32 [own rows] of codes with a scale for each row; else empty
};

/// The shards of one rank, in the order of the table.
struct OwnRows {
  /// Allocates them from the context's arena and zeroes the moments.
  OwnRows(const Context& ctx, const Layout& layout);

  std::vector<ParameterShard> parameters;  ///< by number

  /// The shard of the parameter with this number.
  const ParameterShard& of(int number) const { return parameters[static_cast<std::size_t>(number)]; }
  /// A member of the shards of all parameters of a slot that is present, as one view.
  View of(const SlotLayout& s, View ParameterShard::*values) const;
  /// First of the rows of each parameter in that view, and the end.
  std::vector<std::int64_t> first_rows(const SlotLayout& s) const;
};

/// A matrix, or the vector [rows], from the context's arena.
View allocate_matrix(const Context& ctx, DType dtype, const model::Extent& extent, bool vector,
                     std::string_view category);

}  // namespace fp8::shard
