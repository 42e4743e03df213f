// Casts of groups of rows on a device: their memory, the parts of it that belong to each group, and what a profile
// records. The launches are in groups.cuh.
#include "fp8/quant/groups.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "cast_block.h"
#include "cuda.h"
#include "device_cast.h"
#include "fp8/base/error.h"
#include "fp8/base/round.h"
#include "fp8/device/profile.h"
#include "fp8/quant/fold.h"
#include "fp8/quant/producer.h"
#include "fp8/quant/scale.h"
#include "matrix.h"

namespace fp8::quant {
namespace {

using dtype::DType;

// Elements from the scale of a group to that of the next, if these are equally far apart; else empty.
std::optional<std::int64_t> distance(std::span<const KnownScale> known, View KnownScale::*member) {
  if (known.size() < 2) return 0;
  const auto at = [&](std::size_t g) { return reinterpret_cast<std::intptr_t>((known[g].*member).data); };
  const std::intptr_t bytes = at(1) - at(0);
  for (std::size_t g = 1; g < known.size(); ++g)
    if (at(g) - at(g - 1) != bytes) return std::nullopt;
  return bytes / static_cast<std::intptr_t>(sizeof(float));
}

bool has_blocks(const Cast& cast) { return block_extent(cast.granularity).along > 0; }

// Whether some scales are not known.
bool any_unknown(std::span<const KnownScale> known) {
  return known.empty() || !std::ranges::all_of(known, &KnownScale::is_known);
}

// Whether scales of the cast follow from amaxes that a kernel of its own computes.
bool from_amaxes(const Cast& cast, std::span<const KnownScale> known) {
  return cast.fp8() && !has_blocks(cast) && any_unknown(known);
}

// Scales of a cast of groups of rows with so many columns.
GroupStep step_of(const Cast& cast, ContractionAxis contract, std::int64_t columns) {
  constexpr std::int64_t kSquares = 4, kAligned = 4;
  const bool last = contract == ContractionAxis::last;
  const BlockExtent block = block_extent(cast.granularity);
  if (cast.granularity == Granularity::tensor) return {GroupUnit::group, 1};
  if (block.along == 0)
    return last ? GroupStep{GroupUnit::line, 1} : GroupStep{GroupUnit::group, round_up(columns, kAligned)};
  const std::int64_t blocks = divide_up(columns, kTile);
  if (block.across > 1)
    return last ? GroupStep{GroupUnit::tile, round_up(blocks, kSquares)} : GroupStep{GroupUnit::four_tiles, blocks};
  return last ? GroupStep{GroupUnit::line, blocks} : GroupStep{GroupUnit::tile, round_up(columns, kDeviceRows)};
}

View flat(const Context& ctx, DType type, std::int64_t n, device::PooledMemory* keep = nullptr) {
  return allocate_for_cast(ctx, keep, type, {n});
}

// A matrix in a flat array.
View part_of(const View& array, std::int64_t offset, std::int64_t rows, std::int64_t columns, std::int64_t row_stride,
             std::int64_t column_stride) {
  View part = array;
  part.data = static_cast<std::byte*>(array.data) + offset * static_cast<std::int64_t>(dtype::size_of(array.dtype));
  part.rank = 2;
  part.shape = {rows, columns, 0, 0};
  part.stride = {row_stride, column_stride, 0, 0};
  return part;
}

// The scales of a group of `rows` rows.
View scales_of(const View& all, const GroupCodes& q, const GroupStart& start, std::int64_t rows, std::int64_t columns) {
  const std::int64_t before = q.step.before(start);
  const bool last = q.contract == ContractionAxis::last;
  if (q.cast.granularity == Granularity::tensor) return part_of(all, before, 1, 1, 1, 1).reshaped({1});
  if (!has_blocks(q.cast)) {
    const std::int64_t n = last ? rows : columns;
    return part_of(all, before, n, 1, 1, 1).reshaped({n});
  }
  const std::int64_t down = divide_up(rows, kTile), across = divide_up(columns, kTile);
  if (q.cast.granularity == Granularity::block128x128)
    return last ? part_of(all, before, down, across, q.step.each, 1)
                : part_of(all, before, down, across, 1, round_up(down, std::int64_t{4}));
  return last ? part_of(all, before, rows, across, 1, round_up(rows, kDeviceRows))
              : part_of(all, before, down, columns, q.step.each, 1);
}

// The codes of a group of `rows` rows.
View codes_of(const View& all, ContractionAxis contract, const GroupStart& start, std::int64_t rows,
              std::int64_t columns) {
  const std::int64_t before = columns * start.at(GroupUnit::line);
  return contract == ContractionAxis::last ? part_of(all, before, rows, columns, columns, 1)
                                           : part_of(all, before, rows, columns, 1, round_up(rows, kGroupLines));
}

Quantized group_of(const GroupCodes& q, const GroupStart& start, std::int64_t rows, std::int64_t columns) {
  return {.codes = codes_of(q.codes, q.contract, start, rows, columns),
          .format = q.cast.format,
          .granularity = q.cast.granularity,
          .contract = q.contract,
          .scale = scales_of(q.scale, q, start, rows, columns),
          .inverse_scale = scales_of(q.inverse_scale, q, start, rows, columns)};
}

// What a cast has of known scales.
void set_known(GroupCast& c, std::span<const KnownScale> known) {
  if (known.empty()) return;
  c.known_amax = known.front().amax;
  c.known_step = *distance(known, &KnownScale::amax);
  c.known_scale = known.front().scale;
  c.known_inverse = known.front().inverse_scale;
  c.scale_step = *distance(known, &KnownScale::scale);
  for (std::size_t g = 0; g < known.size(); ++g)
    if (known[g].is_known()) c.known.set(static_cast<std::int64_t>(g));
}

// Memory for the scales of both casts that follow from amaxes, which are computed together: all of it is kept if some
// of it is, which adds 8 bytes a row to the codes that are kept.
void allocate_computed(const Context& ctx, GroupCast& c, std::span<const KnownScale> known, const GroupStart& end,
                       const KeptGroups& keep) {
  const bool one_scale =
      CastPair{c.last.cast, c.of_first.cast}.shared() && c.last.cast.granularity == Granularity::tensor;
  const auto computes = [&](const GroupCodes& q) { return from_amaxes(q.cast, known); };
  const auto size_of = [&](const GroupCodes& q, const GroupStart& of) {
    return round_up(q.step.before(of), std::int64_t{4});
  };
  const auto size = [&](const GroupStart& of) {
    return (computes(c.last) ? size_of(c.last, of) : 0) +
           (computes(c.of_first) && !one_scale ? size_of(c.of_first, of) : 0);
  };
  const std::int64_t all = size(end);
  if (all == 0) return;
  const std::int64_t most = keep.memory != nullptr ? size({end.group, keep.rows}) : all;
  c.scales = flat(ctx, DType::f32, most, keep.memory).rows(0, all);
  c.inverse_scales = flat(ctx, DType::f32, most, keep.memory).rows(0, all);
  std::int64_t before = 0;
  for (GroupCodes* q : {&c.last, &c.of_first}) {
    if (!computes(*q)) continue;
    if (one_scale) before = 0;
    q->scale = c.scales.rows(before, all);
    q->inverse_scale = c.inverse_scales.rows(before, all);
    before += size_of(*q, end);
  }
}

// Memory of a cast. `counts_both`: elements are counted for each result.
GroupCast allocate(const Context& ctx, const View& x, std::span<const std::int64_t> first, const CastPair& casts,
                   std::span<const KnownScale> known, const KeptGroups& keep, bool counts_both) {
  const std::int64_t columns = x.shape[1];
  const GroupStart end{groups_of(first), first.back()};
  GroupCast c{
      x, {first.begin(), first.end()}, {casts.last, ContractionAxis::last}, {casts.first, ContractionAxis::first}};
  c.shared = casts.shared() && !counts_both;
  set_known(c, known);
  for (GroupCodes* q : {&c.last, &c.of_first}) {
    if (!q->cast.fp8()) continue;
    device::PooledMemory* const memory = q == &c.of_first ? keep.memory : nullptr;
    const GroupStart room = memory != nullptr ? GroupStart{end.group, keep.rows} : end;
    q->codes = flat(ctx, DType::u8, columns * room.at(GroupUnit::line), memory);
    q->step = step_of(q->cast, q->contract, columns);
    if (!any_unknown(known)) {
      q->scale = c.known_scale;
      q->inverse_scale = c.known_inverse;
      q->step.each = c.scale_step;
    } else if (has_blocks(q->cast)) {
      q->scale = flat(ctx, DType::f32, q->step.before(room), memory).rows(0, q->step.before(end));
      q->inverse_scale = flat(ctx, DType::f32, q->step.before(room), memory).rows(0, q->step.before(end));
    }
  }
  allocate_computed(ctx, c, known, end, keep);
  return c;
}

// Bytes that are written and read for scales: of amaxes zeros, amaxes, scales and reciprocals.
double bytes_of_scales(const GroupCast& c) {
  double blocks = 0;
  for (const GroupCodes* q : {&c.last, &c.of_first})
    if (has_blocks(q->cast)) blocks += static_cast<double>(q->scale.size());
  return kBytesOfRowScale * static_cast<double>(c.scales.size()) + 12.0 * blocks;
}

device::Span span_of_groups(const GroupCast& c, const CastOptions& options) {
  const auto size = static_cast<double>(c.x.size());
  int launches = 0, reads = 0, casts = 0;
  double of_codes = 0;
  if (!c.scales.empty()) launches += 3, ++reads;
  for (const GroupCodes* q : {&c.last, &c.of_first}) {
    if (!q->cast.fp8()) continue;
    if (casts == 0 || c.last.cast.format != c.of_first.cast.format) ++casts;
    of_codes += size * (options.emulate ? 4 : 1);
    launches += options.emulate ? 1 : 0;
  }
  return {.work = device::Work::cast,
          .name = "quantize",
          .bytes = (reads + casts) * tensor::bytes_of(c.x) + of_codes + bytes_of_scales(c),
          .flops = 2 * size,
          .launches = launches + casts};
}

void require_groups(const Context& ctx, const View& x, std::span<const std::int64_t> first, const char* what) {
  require_device(ctx, x, what);
  if (first.empty() || first.front() != 0 || !std::ranges::is_sorted(first) || first.back() != x.shape[0] ||
      first.back() > std::numeric_limits<std::int32_t>::max())
    throw Error(std::string(what) + ": the groups do not divide the rows of the matrix");
}

// Whether scales [groups, down, across] are those of the blocks of 128 x 128 of groups that have whole ones.
bool are_blocks(const View& scales, std::span<const std::int64_t> first, std::int64_t columns) {
  if (scales.shape[0] != groups_of(first) || scales.shape[2] != divide_up(columns, kTile)) return false;
  for (std::size_t g = 0; g < first.size(); ++g)
    if (first[g] != static_cast<std::int64_t>(g) * scales.shape[1] * kTile) return false;
  return true;
}

// Matrix g of a view of three dimensions.
View matrix_of(const View& all, std::int64_t g) {
  return part_of(all, g * all.stride[0], all.shape[1], all.shape[2], all.stride[1], all.stride[2]);
}

// The codes of each group; none of a cast that is not wanted.
std::vector<QuantizedPair> codes_of_groups(const GroupCast& c) {
  std::vector<QuantizedPair> all(c.first.size() - 1);
  for (std::size_t g = 0; g < all.size(); ++g) {
    const GroupStart start{static_cast<std::int64_t>(g), c.first[g]};
    const std::int64_t rows = c.first[g + 1] - start.row;
    if (c.last.cast.fp8()) all[g].last = group_of(c.last, start, rows, c.x.shape[1]);
    if (c.of_first.cast.fp8()) all[g].first = group_of(c.of_first, start, rows, c.x.shape[1]);
  }
  return all;
}

// Throws Error unless the functions below have the cast, and can keep its codes if they should.
void require_cast(const Context& ctx, const View& x, std::span<const std::int64_t> first, const CastPair& casts,
                  const CastOptions& options, std::span<const KnownScale> known, const KeptGroups& keep) {
  require_matrix(ctx, x, "quantize_groups");
  require_groups(ctx, x, first, "quantize_groups");
  if (!casts_groups(ctx, x.dtype, x.shape[1], casts, options, known) || x.stride[1] != 1)
    throw Error("quantize_groups: these casts of groups are not supported");
  View room = x;
  room.shape[0] = keep.rows;
  if (keep.memory != nullptr &&
      (x.shape[0] > keep.rows || !keeps_groups(ctx, room, groups_of(first), casts, options, known)))
    throw Error("quantize_groups: codes of these casts of groups cannot be kept");
}

// Calls `part(rows, first rows, first group)` for at most kMostGroups groups at a time.
template <class Part>
void for_parts(const View& x, std::span<const std::int64_t> first, Part part) {
  constexpr std::int64_t kMost = kMostGroups;
  for (std::int64_t begin = 0; begin < groups_of(first); begin += kMost) {
    const std::int64_t n = std::min(kMost, groups_of(first) - begin);
    std::vector<std::int64_t> own(first.begin() + begin, first.begin() + begin + n + 1);
    const View rows = x.rows(own.front(), own.back());
    for (std::int64_t& row : own) row -= first[static_cast<std::size_t>(begin)];
    part(rows, std::span<const std::int64_t>(own), begin);
  }
}

}  // namespace

bool casts_groups(const Context& ctx, DType type, std::int64_t columns, const CastPair& casts,
                  const CastOptions& options, std::span<const KnownScale> known) {
  if (!on_device(ctx) || type != DType::bf16) return false;
  if (!casts.last.fp8() && !casts.first.fp8()) return true;
  if (columns % kGroupLines != 0 || options.split.ranks != nullptr) return false;
  for (const Cast& cast : {casts.last, casts.first})
    if (is_fp4(cast.format) || (has_blocks(cast) && (options.emulate || cast.granularity == Granularity::block1x32)))
      return false;
  const bool both = from_amaxes(casts.last, known) && from_amaxes(casts.first, known);
  if (both && (casts.last.format != casts.first.format || (!known.empty() && !casts.shared()))) return false;
  const auto has_scale = [](const KnownScale& k) { return !k.scale.empty(); };
  return std::ranges::all_of(known, has_scale) && distance(known, &KnownScale::scale) &&
         distance(known, &KnownScale::inverse_scale) == distance(known, &KnownScale::scale) &&
         distance(known, &KnownScale::amax);
}

bool keeps_groups(const Context& ctx, const View& x, std::int64_t groups, const CastPair& casts,
                  const CastOptions& options, std::span<const KnownScale> known) {
  if (!casts_groups(ctx, x.dtype, x.shape[1], casts, options, known) || !casts.last.fp8() || !casts.first.fp8() ||
      options.emulate || groups > kMostGroups)
    return false;
  const GroupStart end{groups, x.shape[0]};
  std::int64_t scales = step_of(casts.first, ContractionAxis::first, x.shape[1]).before(end);
  if (!has_blocks(casts.last)) scales += step_of(casts.last, ContractionAxis::last, x.shape[1]).before(end);
  return static_cast<std::size_t>(x.shape[1] * end.at(GroupUnit::line) + 8 * scales) < x.bytes();
}

bool moves_groups(const Context& ctx, std::int64_t columns) { return on_device(ctx) && columns % kGroupLines == 0; }

std::vector<QuantizedPair> quantize_groups(const Context& ctx, const View& x, std::span<const std::int64_t> first,
                                           const CastPair& casts, const CastOptions& options,
                                           std::span<const KnownScale> known, const KeptGroups& keep) {
  require_cast(ctx, x, first, casts, options, known, keep);
  std::vector<QuantizedPair> all;
  for_parts(x, first, [&](const View& rows, std::span<const std::int64_t> own, std::int64_t begin) {
    const auto of_part = known.empty() ? known : known.subspan(static_cast<std::size_t>(begin), own.size() - 1);
    GroupCast c = allocate(ctx, rows, own, casts, of_part, keep, keep.memory != nullptr && options.counts != nullptr);
    const bool fp8 = casts.last.fp8() || casts.first.fp8();
    if (fp8 && rows.size() > 0) {
      const device::Timer timer(ctx, span_of_groups(c, options));
      if (!ctx.dry) cuda::quantize_groups(ctx, c, options);
      for (GroupCodes* q : {&c.last, &c.of_first})
        if (options.emulate && q->cast.fp8())
          q->codes = upcast(ctx, q->codes.reshaped({1, q->codes.size()}), q->cast.format);
    }
    std::vector<QuantizedPair> codes = codes_of_groups(c);
    for (std::size_t g = 0; g < codes.size(); ++g) {
      const View matrix = rows.rows(own[g], own[g + 1]);
      if (!casts.last.fp8()) codes[g].last = high_precision(matrix, ContractionAxis::last);
      if (!casts.first.fp8()) codes[g].first = high_precision(matrix, ContractionAxis::first);
      all.push_back(codes[g]);
    }
  });
  return all;
}

bool can_produce_groups(const Context& ctx, std::int64_t columns, std::int64_t groups, const CastPair& casts,
                        const CastOptions& options, std::span<const KnownScale> known) {
  const bool both = casts.last.fp8() && casts.first.fp8();
  return (casts.last.fp8() || casts.first.fp8()) && casts_groups(ctx, DType::bf16, columns, casts, options, known) &&
         !options.emulate && groups <= kMostGroups && (!both || casts.last.format == casts.first.format) &&
         !from_amaxes(casts.last, known) && !from_amaxes(casts.first, known);
}

ProducedGroups begin_produced_groups(const Context& ctx, const View& x, std::span<const std::int64_t> first,
                                     const CastPair& casts, const CastOptions& options,
                                     std::span<const KnownScale> known, const KeptGroups& keep) {
  require_cast(ctx, x, first, casts, options, known, keep);
  if (!can_produce_groups(ctx, x.shape[1], groups_of(first), casts, options, known))
    throw Error("begin_produced_groups: an operation cannot write the codes of these casts");
  const bool counts_both = keep.memory != nullptr && options.counts != nullptr;
  const GroupCast c = allocate(ctx, x, first, casts, known, keep, counts_both);
  return {c, codes_of_groups(c), options};
}

double bytes_of_produced(const ProducedGroups& to) {
  double bytes = 0;
  for (const GroupCodes* q : {&to.cast.last, &to.cast.of_first})
    if (q->cast.fp8())
      bytes += static_cast<double>(to.cast.x.size()) + (has_blocks(q->cast) ? 2 * tensor::bytes_of(q->scale) : 0);
  return bytes;
}

void amax_groups(const Context& ctx, const View& x, std::span<const std::int64_t> first, Granularity granularity,
                 const View& out) {
  require_groups(ctx, x, first, "amax_groups");
  const std::int64_t each = granularity == Granularity::tensor ? 1 : x.shape[1];
  if (!unit_columns(x) || !out.contiguous() || out.size() != groups_of(first) * each)
    throw Error("amax_groups: matrix and result do not have the layout of groups");
  if (!moves_groups(ctx, x.shape[1])) {
    for (std::int64_t g = 0; g < groups_of(first); ++g) {
      const auto at = static_cast<std::size_t>(g);
      amax(ctx, x.rows(first[at], first[at + 1]), granularity, ContractionAxis::first,
           out.rows(g * each, (g + 1) * each));
    }
    return;
  }
  for_parts(x, first, [&](const View& rows, std::span<const std::int64_t> own, std::int64_t begin) {
    const device::Timer timer(ctx, device::Work::cast, "amax", tensor::bytes_of(rows), static_cast<double>(rows.size()),
                              2);
    if (!ctx.dry)
      cuda::amax_groups(ctx, rows, own, granularity, out.rows(begin * each, (begin + groups_of(own)) * each));
  });
}

void cast_groups_to_bytes(const Context& ctx, const View& x, std::span<const std::int64_t> first, DType format,
                          const View& scales, const View& codes, CastCounts* counts) {
  require_groups(ctx, x, first, "cast_groups_to_bytes");
  const bool of_columns = scales.size() != groups_of(first);
  const std::int64_t each = of_columns ? x.shape[1] : 1;
  if (!x.contiguous() || !codes.contiguous() || codes.size() != x.size() || !scales.contiguous() ||
      scales.size() != groups_of(first) * each)
    throw Error("cast_groups_to_bytes: matrix, codes and scales do not have the layout of groups");
  dtype::max_of(format);  // throws unless FP8
  if (!moves_groups(ctx, x.shape[1])) {
    for (std::int64_t g = 0; g < groups_of(first); ++g) {
      const std::int64_t row = first[static_cast<std::size_t>(g)], end = first[static_cast<std::size_t>(g) + 1];
      if (row == end) continue;
      const View from = x.rows(row, end), to = codes.rows(row, end), own = scales.rows(g * each, (g + 1) * each);
      of_columns ? cast_columns_to_bytes(ctx, from, format, own, to, counts)
                 : cast_to_bytes(ctx, from, format, own.as<float>(), to, counts);
    }
    return;
  }
  for_parts(x, first, [&](const View& rows, std::span<const std::int64_t> own, std::int64_t begin) {
    if (rows.size() == 0) return;
    const std::int64_t row = first[static_cast<std::size_t>(begin)];
    const View to = codes.rows(row, row + rows.shape[0]),
               of_part = scales.rows(begin * each, (begin + groups_of(own)) * each);
    const device::Timer timer(ctx, device::Work::cast, "cast to bytes",
                              tensor::bytes_of(rows, to) + (of_columns ? tensor::bytes_of(of_part) : 0),
                              static_cast<double>(rows.size()));
    if (!ctx.dry) cuda::cast_groups_to_bytes(ctx, rows, own, format, of_part, to, counts);
  });
}

std::vector<Quantized> from_bytes_groups(const Context& ctx, const View& codes, std::span<const std::int64_t> first,
                                         DType format, ContractionAxis contract, const View& scale,
                                         const View& inverse_scale, bool emulate) {
  require_groups(ctx, codes, first, "from_bytes_groups");
  const std::int64_t columns = codes.shape[1];
  const bool blocks = scale.rank == 3, repacks = contract == ContractionAxis::first,
             by_line = !blocks && scale.size() != groups_of(first);
  const std::int64_t lines = repacks ? groups_of(first) * columns : codes.shape[0];
  if (!moves_groups(ctx, columns) || codes.rank != 2 || !codes.contiguous() || (by_line && scale.size() != lines) ||
      inverse_scale.size() != scale.size() || (blocks && (emulate || !are_blocks(scale, first, columns))))
    throw Error("from_bytes_groups: the codes or scales do not have the layout of groups");
  dtype::max_of(format);  // throws unless FP8
  const auto of_group = [&](const View& scales, std::int64_t g) {
    if (blocks) return matrix_of(scales, g);
    if (!by_line) return scales.rows(g, g + 1);
    const auto at = static_cast<std::size_t>(g);
    return repacks ? scales.rows(g * columns, (g + 1) * columns) : scales.rows(first[at], first[at + 1]);
  };
  std::vector<Quantized> all;
  for_parts(codes, first, [&](const View& rows, std::span<const std::int64_t> own, std::int64_t begin) {
    const GroupStart all_of_part{groups_of(own), own.back()};
    const device::Timer timer(ctx, device::Work::cast, "decode",
                              ((repacks ? 2 : 0) + (emulate ? 3 : 0)) * tensor::bytes_of(rows), 0,
                              (repacks ? 1 : 0) + (emulate ? 1 : 0));
    View to = repacks ? flat(ctx, DType::u8, columns * all_of_part.at(GroupUnit::line)) : rows.reshaped({rows.size()});
    if (repacks && !ctx.dry && rows.size() > 0) cuda::repack_groups(ctx, rows, own, to);
    if (emulate) to = upcast(ctx, to.reshaped({1, to.size()}), format);
    for (std::int64_t g = 0; g < groups_of(own); ++g) {
      const GroupStart start{g, own[static_cast<std::size_t>(g)]};
      const std::int64_t end = own[static_cast<std::size_t>(g) + 1];
      all.push_back({.codes = repacks ? codes_of(to, contract, start, end - start.row, columns)
                                      : part_of(to, start.row * columns, end - start.row, columns, columns, 1),
                     .format = format,
                     .granularity = blocks    ? Granularity::block128x128
                                    : by_line ? Granularity::row
                                              : Granularity::tensor,
                     .contract = contract,
                     .scale = of_group(scale, begin + g),
                     .inverse_scale = of_group(inverse_scale, begin + g)});
    }
  });
  return all;
}

}  // namespace fp8::quant
