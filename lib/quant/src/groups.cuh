// Kernels that cast groups of rows, each as if it were a matrix alone, and their launches. A block finds its group, and
// then computes a tile as the kernels of one matrix do.
#pragma once

#include "amax.cuh"
#include "cast_block.h"
#include "fold.cuh"
#include "fp8/quant/block_scale.cuh"
#include "group_cast.h"

namespace fp8::quant {

// The group of a block, and its tile in it.
struct OwnGroup : GroupStart {
  std::int64_t rows, first_row;  // rows of the group; first row of the tile in the group

  // Tiles are numbered like GroupUnit::tile. A group may have one tile more than rows for it.
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
  // Whether the tile has rows; the same for all threads of a block.
  __device__ bool any() const { return first_row < rows; }
  template <class T>
  __device__ Source<T> of(const Source<T>& x) const {
    return {x.data + row * x.stride, rows, x.cols, x.stride};
  }
};

// Scales of blocks: lines of them are padded by group.
__device__ inline ScaleGrid grid_of(ScaleGrid grid, const GroupStep& step, std::int64_t rows) {
  if (grid.along_shift == 0) return grid;
  if (step.unit == GroupUnit::line) grid.along_stride = (rows + kDeviceRows - 1) / kDeviceRows * kDeviceRows;
  if (step.unit == GroupUnit::four_tiles) grid.line_stride = ((rows + kTile - 1) / kTile + 3) / 4 * 4;
  return grid;
}

// Codes of all groups by rows, of `each` bytes; or by columns, of which each group has `each`; codes null: not wanted.
// Pointers that are chosen between two are generic for the compiler, which then needs fewer registers than with zero
// steps, and no local memory.
struct GroupTarget {
  std::uint8_t* codes;
  std::int64_t each;
  bool by_column;
  const float* scale;
  ScaleGrid grid;
  GroupStep step;

  __device__ CodeLines lines_of(const OwnGroup& g) const {
    if (codes == nullptr) return {nullptr, 0};
    const std::int64_t padded = (g.rows + kGroupLines - 1) / kGroupLines * kGroupLines;
    return {codes + each * g.at(GroupUnit::line), by_column ? padded : each};
  }
  __device__ Target of(const OwnGroup& g) const {
    if (codes == nullptr) return {{nullptr, 0}, nullptr, {}};
    return {lines_of(g), scale + step.before(g), grid_of(grid, step, g.rows)};
  }
};

template <class T, class Grid, bool kCounted>
__global__ void cast_groups_kernel(RowGroups groups, Source<T> x, GroupTarget row, GroupTarget column, bool shared,
                                   unsigned* amax, std::int64_t amax_step, unsigned long long* counts) {
  const OwnGroup own(groups);
  if (!own.any()) return;
  cast_tile<Grid, kCounted>(own.of(x), PatchPlace(own.first_row), row.of(own), column.of(own), GivenScales{}, shared,
                            amax != nullptr ? amax + own.group * amax_step : nullptr, counts);
}

// Casts tiles in blocks, whose scales it computes: `scales` has those of all groups.
template <class T, class Grid, bool kCounted>
__global__ void block_cast_groups_kernel(RowGroups groups, Source<T> x, GroupTarget row, GroupTarget column,
                                         TileScales scales, bool shared, unsigned* amax, std::int64_t amax_step,
                                         unsigned long long* counts) {
  const OwnGroup own(groups);
  if (!own.any()) return;
  const auto of_group = [&own](const BlockScales& all, const GroupTarget& to) {
    if (all.scale == nullptr) return all;
    const std::int64_t before = to.step.before(own);
    return BlockScales{all.scale + before, all.inverse + before, grid_of(to.grid, to.step, own.rows), all.rule};
  };
  cast_tile<Grid, kCounted>(own.of(x), PatchPlace(own.first_row), row.of(own), column.of(own),
                            TileScales{of_group(scales.row, row), of_group(scales.column, column)}, shared,
                            amax != nullptr ? amax + own.group * amax_step : nullptr, counts);
}

// Codes of contiguous rows without padding.
template <class T, class Grid, bool kCounted>
__global__ void groups_to_bytes_kernel(RowGroups groups, Source<T> x, const float* scales, std::uint8_t* codes,
                                       unsigned long long* counts) {
  const OwnGroup own(groups);
  if (!own.any()) return;
  cast_tile<Grid, kCounted>(own.of(x), PatchPlace(own.first_row),
                            Target{{codes + own.row * x.cols, x.cols}, scales + own.group, {}},
                            Target{{nullptr, 0}, nullptr, {}}, GivenScales{}, false, nullptr, counts);
}

// The same with a scale for each column of each group.
template <class T, class Grid, bool kCounted>
__global__ void columns_of_groups_to_bytes_kernel(RowGroups groups, Source<T> x, const float* scales,
                                                  std::uint8_t* codes, unsigned long long* counts) {
  const OwnGroup own(groups);
  if (!own.any()) return;
  cast_columns_tile<Grid, kCounted>(own.of(x), PatchPlace(own.first_row), scales + own.group * x.cols,
                                    CodeLines{codes + own.row * x.cols, x.cols}, counts);
}

template <class Code>
__global__ void repack_groups_kernel(RowGroups groups, Source<Code> codes, GroupTarget column) {
  const OwnGroup own(groups);
  if (!own.any()) return;
  repack_tile(own.of(codes), PatchPlace(own.first_row), CodeLines{nullptr, 0}, column.lines_of(own));
}

// Where maxima of all groups are, and elements from those of one group to the next; null and 0: not wanted.
struct GroupAmaxes {
  AmaxBits to;
  std::int64_t all, lines, columns;  // for each group, line and group
};

template <class T, bool kSkipNan>
__global__ void amax_groups_kernel(RowGroups groups, Source<T> x, GroupAmaxes amaxes) {
  static_assert(kAmaxRows == kTile, "tiles of amaxes and casts have the same rows");
  const OwnGroup own(groups);
  if (!own.any() || groups.known.has(own.group)) return;
  const Source<T> source = own.of(x);
  const AmaxBits& to = amaxes.to;
  amax_tile<T, kSkipNan>(source.data, source.rows, source.cols, source.stride, own.first_row,
                         {to.all + own.group * amaxes.all, to.of_row + own.at(GroupUnit::line) * amaxes.lines,
                          to.of_column + own.group * amaxes.columns});
}

// Scales of groups, each `step` elements from that of the group before.
struct ScalesOfGroups {
  const float *scale, *inverse;
  std::int64_t step;
};

// The amaxes in `scale` become scales, and those of groups that are known are copied.
template <class F>
__global__ void group_scale_kernel(RowGroups groups, ScalesOfGroups known, F max, ScaleRule rule, bool power_of_2,
                                   F* scale, F* inverse) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= groups.count) return;
  const bool copied = groups.known.has(i);
  const F own = copied ? known.scale[i * known.step] : scale_by_rule(rule, scale[i], max, power_of_2);
  scale[i] = own;
  inverse[i] = copied ? known.inverse[i * known.step] : 1.0f / own;
}

// --- launches ---

inline RowGroups row_groups(std::span<const std::int64_t> first, const GroupBits& known = {}) {
  RowGroups groups{};
  groups.known = known;
  groups.count = static_cast<std::int32_t>(groups_of(first));
  std::ranges::transform(first, groups.first, [](std::int64_t row) { return static_cast<std::int32_t>(row); });
  return groups;
}

inline dim3 group_grid(const View& x, std::span<const std::int64_t> first, std::int64_t columns) {
  const GroupStart end{groups_of(first), first.back()};
  return dim3(blocks_for(x.shape[1], columns), static_cast<unsigned>(end.at(GroupUnit::tile)));
}

template <class T>
Source<T> group_source(const View& x) {
  return {x.as<T>(), x.shape[0], x.shape[1], x.stride[0]};
}

// Strides within a group; those that depend on its rows are set by grid_of().
inline ScaleGrid group_scale_grid(const GroupCodes& q) {
  if (q.cast.granularity == Granularity::tensor) return {};
  const BlockExtent block = block_extent(q.cast.granularity);
  if (block.along == 0) return {.line_stride = 1};
  return {.line_stride = q.step.unit == GroupUnit::tile && q.contract == ContractionAxis::last ? q.step.each : 1,
          .along_stride = q.step.unit == GroupUnit::tile && q.contract == ContractionAxis::first ? q.step.each : 1,
          .line_shift = log2_of(block.across),
          .along_shift = log2_of(block.along)};
}

inline GroupTarget group_target(const GroupCodes& q, std::int64_t columns) {
  if (q.codes.empty()) return {};
  return {static_cast<std::uint8_t*>(q.codes.data),
          columns,
          q.contract == ContractionAxis::first,
          q.scale.as<float>(),
          group_scale_grid(q),
          q.step};
}

// Amaxes in the memory of scales, which become scales.
template <class Launcher>
void launch_group_scales(const Launcher& launch, const GroupCast& c, const CastOptions& options) {
  const View& all = c.scales;
  launch("amax: begin", dim3(blocks_for(all.size(), kCastThreads)), dim3(kCastThreads), fill_kernel<unsigned>,
         static_cast<unsigned*>(all.data), all.size(), 0u);
  GroupAmaxes amaxes{};
  for (const GroupCodes* q : {&c.last, &c.of_first}) {
    if (!q->cast.fp8()) continue;
    auto* const bits = static_cast<unsigned*>(q->scale.data);
    if (q->cast.granularity == Granularity::tensor)
      amaxes.to.all = bits, amaxes.all = 1;
    else if (q->contract == ContractionAxis::last)
      amaxes.to.of_row = bits, amaxes.lines = 1;
    else
      amaxes.to.of_column = bits, amaxes.columns = q->step.each;
  }
  launch("amax", group_grid(c.x, c.first, kAmaxColumns), dim3(kCastThreads),
         skips_nan(options.rule) ? amax_groups_kernel<dtype::Bf16, true> : amax_groups_kernel<dtype::Bf16, false>,
         row_groups(c.first, c.known), group_source<dtype::Bf16>(c.x), amaxes);
  const Cast& cast = c.last.cast.fp8() ? c.last.cast : c.of_first.cast;
  if (c.known_scale.empty())
    return launch_scales(launch, all, {cast.format, options.rule, options.power_of_2}, all, c.inverse_scales);
  launch("scale", dim3(blocks_for(all.size(), kCastThreads)), dim3(kCastThreads), group_scale_kernel<float>,
         row_groups(c.first, c.known),
         ScalesOfGroups{c.known_scale.as<float>(), c.known_inverse.as<float>(), c.scale_step},
         dtype::max_of(cast.format), options.rule, options.power_of_2, all.as<float>(), c.inverse_scales.as<float>());
}

// The scales of blocks of all groups, which the cast computes; none of a cast without blocks.
inline BlockScales group_block_scales(const GroupCodes& q, bool power_of_2) {
  if (q.codes.empty() || block_extent(q.cast.granularity).along == 0) return {};
  return {.scale = q.scale.as<float>(),
          .inverse = q.inverse_scale.as<float>(),
          .rule = block_rule<dtype::Bf16>(q.cast.granularity, dtype::max_of(q.cast.format), power_of_2)};
}

template <class Launcher>
void launch_group_cast(const Launcher& launch, const GroupCast& c, const GroupCodes& by_row,
                       const GroupCodes& by_column, const View& amax, const CastOptions& options) {
  const Cast& cast = by_row.cast.fp8() ? by_row.cast : by_column.cast;
  const TileScales scales{group_block_scales(by_row, options.power_of_2),
                          group_block_scales(by_column, options.power_of_2)};
  const bool counted = options.counts != nullptr;
  dtype::with_fp8_grid(cast.format, [&]<class Grid>() {
    const auto go = [&](auto* kernel, const auto&... of_blocks) {
      launch("cast", group_grid(c.x, c.first, kTile), dim3(kCastThreads), kernel, row_groups(c.first),
             group_source<dtype::Bf16>(c.x), group_target(by_row, c.x.shape[1]), group_target(by_column, c.x.shape[1]),
             of_blocks..., c.shared, static_cast<unsigned*>(amax.data), amax.empty() ? 0 : c.known_step,
             reinterpret_cast<unsigned long long*>(options.counts));
    };
    if (scales.row.scale == nullptr && scales.column.scale == nullptr)
      go(counted ? cast_groups_kernel<dtype::Bf16, Grid, true> : cast_groups_kernel<dtype::Bf16, Grid, false>);
    else
      go(counted ? block_cast_groups_kernel<dtype::Bf16, Grid, true>
                 : block_cast_groups_kernel<dtype::Bf16, Grid, false>,
         scales);
  });
}

template <class Launcher>
void quantize_groups_cuda(const Context& ctx, const GroupCast& c, const CastOptions& options) {
  const Launcher launch(ctx);
  if (!c.scales.empty()) launch_group_scales(launch, c, options);
  const bool both = c.last.cast.fp8() && c.of_first.cast.fp8();
  if (!both || c.last.cast.format == c.of_first.cast.format)
    return launch_group_cast(launch, c, c.last, c.of_first, c.known_amax, options);
  launch_group_cast(launch, c, c.last, {}, c.known_amax, options);
  launch_group_cast(launch, c, {}, c.of_first, {}, options);
}

template <class Launcher>
void amax_groups_cuda(const Context& ctx, const View& x, std::span<const std::int64_t> first, Granularity granularity,
                      const View& out) {
  const Launcher launch(ctx);
  auto* const bits = static_cast<unsigned*>(out.data);
  launch("amax: begin", dim3(blocks_for(out.size(), kCastThreads)), dim3(kCastThreads), fill_kernel<unsigned>, bits,
         out.size(), 0u);
  const bool of_columns = granularity != Granularity::tensor;
  const GroupAmaxes amaxes = of_columns ? GroupAmaxes{{nullptr, nullptr, bits}, 0, 0, x.shape[1]}
                                        : GroupAmaxes{{bits, nullptr, nullptr}, 1, 0, 0};
  dtype::with_float_type(x.dtype, "amax", [&]<class T>() {
    launch("amax", group_grid(x, first, kAmaxColumns), dim3(kCastThreads), amax_groups_kernel<T, false>,
           row_groups(first), group_source<T>(x), amaxes);
  });
}

template <class Launcher>
void groups_to_bytes_cuda(const Context& ctx, const View& x, std::span<const std::int64_t> first, dtype::DType format,
                          const View& scales, const View& codes, CastCounts* counts) {
  const bool of_columns = scales.size() != groups_of(first);
  const auto cast = [&]<class T, class Grid, bool kCounted>() {
    Launcher{ctx}(
        "cast", group_grid(x, first, kTile), dim3(kCastThreads),
        of_columns ? columns_of_groups_to_bytes_kernel<T, Grid, kCounted> : groups_to_bytes_kernel<T, Grid, kCounted>,
        row_groups(first), group_source<T>(x), scales.as<float>(), codes.as<std::uint8_t>(),
        reinterpret_cast<unsigned long long*>(counts));
  };
  dtype::with_float_type(x.dtype, "cast", [&]<class T>() {
    dtype::with_fp8_grid(format, [&]<class Grid>() {
      counts != nullptr ? cast.template operator()<T, Grid, true>() : cast.template operator()<T, Grid, false>();
    });
  });
}

template <class Launcher>
void repack_groups_cuda(const Context& ctx, const View& codes, std::span<const std::int64_t> first, const View& to) {
  Launcher{ctx}("codes", group_grid(codes, first, kTile), dim3(kCastThreads), repack_groups_kernel<std::uint8_t>,
                row_groups(first), group_source<std::uint8_t>(codes),
                GroupTarget{to.as<std::uint8_t>(), codes.shape[1], true, nullptr, {}, {}});
}

}  // namespace fp8::quant
