/// Kernels that cast groups of rows, each as if it were a matrix alone, and their launches. A block finds its group,
/// and then casts a tile as the kernels of one matrix do.
#pragma once

#include <algorithm>
#include <span>
#include <type_traits>

#include "fp8/quant/block_scale.cuh"
#include "fp8/quant/group_cast.h"

namespace fp8::quant {

/// The group of a block, and its tile in it.
struct OwnGroup : GroupStart {
  std::int64_t rows, first_row;  ///< rows of the group; first row of the tile in the group

  /// Tiles are numbered like GroupUnit::tile. A group may have one tile more than rows for it.
  __device__ explicit OwnGroup(const RowGroups& groups) {
    const auto y = static_cast<std::int64_t>(blockIdx.y);
    int low = 0, high = groups.count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      const bool below = GroupStart{middle, groups.first[middle]}.at(GroupUnit::tile) <= y;
      (below ? low : high) = middle;
    }
    group = low;
    row = groups.first[low];
    rows = groups.first[low + 1] - row;
    first_row = (y - at(GroupUnit::tile)) * kTile;
  }
  /// Whether the tile has rows; the same for all threads of a block.
  __device__ bool any() const { return first_row < rows; }
  /// The rows of the group in a source of all.
  template <class From>
  __device__ From of(const From& x) const {
    return x.part(row, rows);
  }
};

/// Scales of blocks: lines of them are padded by group.
__device__ inline ScaleGrid grid_of(ScaleGrid grid, const GroupStep& step, std::int64_t rows) {
  if (grid.along_shift == 0) return grid;
  if (step.unit == GroupUnit::line) grid.along_stride = (rows + kDeviceRows - 1) / kDeviceRows * kDeviceRows;
  if (step.unit == GroupUnit::four_tiles) grid.line_stride = ((rows + kTile - 1) / kTile + 3) / 4 * 4;
  return grid;
}

/// Codes of all groups by rows, of `each` bytes; or by columns, of which each group has `each`; codes null: not wanted.
/// Pointers that are chosen between two are generic for the compiler, which then needs fewer registers than with zero
/// steps, and no local memory.
struct GroupTarget {
  std::uint8_t* codes;
  std::int64_t each;
  bool by_column;
  const float* scale;
  ScaleGrid grid;
  GroupStep step;

  /// Lines of codes of a group.
  __device__ CodeLines lines_of(const OwnGroup& g) const {
    if (codes == nullptr) return {nullptr, 0};
    const std::int64_t padded = (g.rows + kGroupLines - 1) / kGroupLines * kGroupLines;
    return {codes + each * g.at(GroupUnit::line), by_column ? padded : each};
  }
  /// Codes and scales of a group.
  __device__ Target of(const OwnGroup& g) const {
    if (codes == nullptr) return {{nullptr, 0}, nullptr, {}};
    return {lines_of(g), scale + step.before(g), grid_of(grid, step, g.rows)};
  }
  /// The scales of blocks of a group, of those of all groups.
  __device__ BlockScales of(const OwnGroup& g, const BlockScales& all) const {
    if (all.scale == nullptr) return all;
    const std::int64_t before = step.before(g);
    return {all.scale + before, all.inverse + before, grid_of(grid, step, g.rows), all.rule};
  }
};

/// Where the casts of all groups go, and the scales that they compute: GivenScales or TileScales.
template <class Scales>
struct GroupTargets {
  GroupTarget row, column;
  Scales scales;
  unsigned* amax;          ///< of the first group; null: not wanted
  std::int64_t amax_step;  ///< elements from it to that of the next group

  /// The scales of a group.
  __device__ Scales scales_of(const OwnGroup& g) const {
    if constexpr (std::is_same_v<Scales, TileScales>)
      return {row.of(g, scales.row), column.of(g, scales.column)};
    else
      return scales;
  }
  /// The amax of a group.
  __device__ unsigned* amax_of(const OwnGroup& g) const {
    return amax != nullptr ? amax + g.group * amax_step : nullptr;
  }
};

/// Casts a tile of a group.
template <class From, class Grid, bool kCounted, class Scales>
__global__ void cast_groups_kernel(RowGroups groups, From x, GroupTargets<Scales> to, bool shared,
                                   unsigned long long* counts) {
  const OwnGroup own(groups);
  if (!own.any()) return;
  const Scales scales = to.scales_of(own);  // found before the targets, which saves registers
  cast_tile<Grid, kCounted>(own.of(x), PatchPlace(own.first_row), to.row.of(own), to.column.of(own), scales, shared,
                            to.amax_of(own), counts);
}

// --- launches ---

/// Groups as an argument of kernels; `known` need no amax.
inline RowGroups row_groups(std::span<const std::int64_t> first, const GroupBits& known = {}) {
  RowGroups groups{};
  groups.known = known;
  groups.count = static_cast<std::int32_t>(groups_of(first));
  std::ranges::transform(first, groups.first, [](std::int64_t row) { return static_cast<std::int32_t>(row); });
  return groups;
}

/// Blocks for the tiles of all groups of a matrix with `width` columns, of which a tile has `columns`.
inline dim3 group_grid(std::int64_t width, std::span<const std::int64_t> first, std::int64_t columns) {
  const GroupStart end{groups_of(first), first.back()};
  return dim3(blocks_for(width, columns), static_cast<unsigned>(end.at(GroupUnit::tile)));
}

/// Strides within a group; those that depend on its rows are set by grid_of().
inline ScaleGrid group_scale_grid(const GroupCodes& q) {
  if (q.cast.granularity == Granularity::tensor) return {};
  const BlockExtent block = block_extent(q.cast.granularity);
  if (block.along == 0) return {.line_stride = 1};
  return {.line_stride = q.step.unit == GroupUnit::tile && q.contract == ContractionAxis::last ? q.step.each : 1,
          .along_stride = q.step.unit == GroupUnit::tile && q.contract == ContractionAxis::first ? q.step.each : 1,
          .line_shift = log2_of(block.across),
          .along_shift = log2_of(block.along)};
}

/// Where codes of a matrix with so many columns go.
inline GroupTarget group_target(const GroupCodes& q, std::int64_t columns) {
  if (q.codes.empty()) return {};
  return {static_cast<std::uint8_t*>(q.codes.data),
          columns,
          q.contract == ContractionAxis::first,
          q.scale.as<float>(),
          group_scale_grid(q),
          q.step};
}

/// The scales of blocks of all groups, which the cast computes; none of a cast without blocks.
inline BlockScales group_block_scales(const GroupCodes& q, bool power_of_2) {
  if (q.codes.empty() || block_extent(q.cast.granularity).along == 0) return {};
  return {.scale = q.scale.as<float>(),
          .inverse = q.inverse_scale.as<float>(),
          .rule = block_rule<dtype::Bf16>(q.cast.granularity, dtype::max_of(q.cast.format), power_of_2)};
}

/// Where a cast to codes of one format goes.
template <class Scales>
GroupTargets<Scales> group_targets(const GroupCast& c, const GroupCodes& by_row, const GroupCodes& by_column,
                                   bool power_of_2) {
  GroupTargets<Scales> to{group_target(by_row, c.x.shape[1]), group_target(by_column, c.x.shape[1]), Scales{},
                          static_cast<unsigned*>(c.known_amax.data), c.known_amax.empty() ? 0 : c.known_step};
  if constexpr (std::is_same_v<Scales, TileScales>)
    to.scales = {group_block_scales(by_row, power_of_2), group_block_scales(by_column, power_of_2)};
  return to;
}

/// Whether the cast computes scales of blocks.
inline bool computes_blocks(const GroupCodes& q) { return group_block_scales(q, false).scale != nullptr; }

/// Casts a source of the groups of `c` to codes of one format; without codes of it: not wanted.
template <class Launcher, class From>
void launch_group_cast(const Launcher& launch, const char* name, const From& x, const GroupCast& c,
                       const GroupCodes& by_row, const GroupCodes& by_column, const CastOptions& options) {
  const Cast& cast = by_row.cast.fp8() ? by_row.cast : by_column.cast;
  dtype::with_fp8_grid(cast.format, [&]<class Grid>() {
    const auto go = [&]<class Scales>(const GroupTargets<Scales>& to) {
      launch(name, group_grid(x.cols, c.first, kTile), dim3(kCastThreads),
             options.counts != nullptr ? cast_groups_kernel<From, Grid, true, Scales>
                                       : cast_groups_kernel<From, Grid, false, Scales>,
             row_groups(c.first), x, to, c.shared, reinterpret_cast<unsigned long long*>(options.counts));
    };
    if (computes_blocks(by_row) || computes_blocks(by_column))
      go(group_targets<TileScales>(c, by_row, by_column, options.power_of_2));
    else
      go(group_targets<GivenScales>(c, by_row, by_column, options.power_of_2));
  });
}

}  // namespace fp8::quant
