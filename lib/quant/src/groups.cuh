// Kernels that compute amaxes and scales of groups of rows and move their codes, and launches of their casts.
#pragma once

#include "amax.cuh"
#include "fold.cuh"
#include "fp8/quant/group_tile.cuh"

namespace fp8::quant {

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

template <class T>
Source<T> group_source(const View& x) {
  return {x.as<T>(), x.shape[0], x.shape[1], x.stride[0]};
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
  launch("amax", group_grid(c.x.shape[1], c.first, kAmaxColumns), dim3(kCastThreads),
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

template <class Launcher>
void quantize_groups_cuda(const Context& ctx, const GroupCast& c, const CastOptions& options) {
  const Launcher launch(ctx);
  if (!c.scales.empty()) launch_group_scales(launch, c, options);
  const Source<dtype::Bf16> x = group_source<dtype::Bf16>(c.x);
  const bool both = c.last.cast.fp8() && c.of_first.cast.fp8();
  if (!both || c.last.cast.format == c.of_first.cast.format)
    return launch_group_cast(launch, "cast", x, c, c.last, c.of_first, options);
  launch_group_cast(launch, "cast", x, c, c.last, {}, options);
  GroupCast without_amax = c;
  without_amax.known_amax = {};
  launch_group_cast(launch, "cast", x, without_amax, {}, c.of_first, options);
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
    launch("amax", group_grid(x.shape[1], first, kAmaxColumns), dim3(kCastThreads), amax_groups_kernel<T, false>,
           row_groups(first), group_source<T>(x), amaxes);
  });
}

template <class Launcher>
void groups_to_bytes_cuda(const Context& ctx, const View& x, std::span<const std::int64_t> first, dtype::DType format,
                          const View& scales, const View& codes, CastCounts* counts) {
  const bool of_columns = scales.size() != groups_of(first);
  const auto cast = [&]<class T, class Grid, bool kCounted>() {
    Launcher{ctx}(
        "cast", group_grid(x.shape[1], first, kTile), dim3(kCastThreads),
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
  Launcher{ctx}("codes", group_grid(codes.shape[1], first, kTile), dim3(kCastThreads),
                repack_groups_kernel<std::uint8_t>, row_groups(first), group_source<std::uint8_t>(codes),
                GroupTarget{to.as<std::uint8_t>(), codes.shape[1], true, nullptr, {}, {}});
}

}  // namespace fp8::quant
