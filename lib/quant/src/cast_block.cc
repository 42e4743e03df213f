// A tile of the matrix is read twice, for the amaxes of its blocks and for its codes, the second time from a cache.
// Blocks along rows: a tile is one row. Blocks along columns and squares: a tile is as many rows as a block has.
#include "cast_block.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "fp8/dtype/dispatch.h"
#include "fp8/quant/row_groups.h"
#include "fp8/quant/scale.h"
#include "matrix.h"

namespace fp8::quant {
namespace {

using dtype::DType;

constexpr std::int64_t kWidest = 2048;  // columns of a tile, whole blocks

// Scales of one tile, in the L1 cache.
struct TileFactors {
  std::array<float, kWidest> scale, inverse, fold;
};

// Inverse scales with which every product of a code is zero or a normal BF16.
struct FoldRange {
  float least, greatest;
};
template <class Grid>
constexpr FoldRange fold_range() {
  constexpr std::uint32_t kSmallest = Grid::kMinExponent - Grid::kFractionBits;  // exponent field of the smallest code
  constexpr float kLargestProduct = 0x1p127f;
  return {std::bit_cast<float>((128u - kSmallest) << 23), kLargestProduct / Grid::kMax};
}

constexpr BlockExtent kSquare = block_extent(Granularity::block128x128);

// Codes of the rows [first, end) of x, which are of one row of blocks, and the scales of these, with `down` rows of
// blocks before them.
template <class Grid, class T>
RowCounts cast_row_of_squares(const MatrixRows<T>& x, const Quantized& q, const BlockRule& rule, std::int64_t down) {
  const std::int64_t first = down * kSquare.along, end = std::min(x.count, first + kSquare.along);
  std::vector<Magnitude<T>> largest(static_cast<std::size_t>(x.length));
  std::vector<float> scales(largest.size());
  for (std::int64_t r = first; r < end; ++r) row_loops<T>().amax_into_but_nan(x.row(r), largest.data(), x.length);
  for (std::int64_t begin = 0, b = down * q.scale.stride[0]; begin < x.length; begin += kSquare.across, ++b) {
    const std::int64_t n = std::min(kSquare.across, x.length - begin);
    const auto [scale, inverse] =
        rule(from_magnitude(*std::max_element(largest.begin() + begin, largest.begin() + begin + n)));
    q.scale.as<float>()[b] = scale;
    q.inverse_scale.as<float>()[b] = inverse;
    std::fill_n(scales.begin() + begin, n, scale);
  }
  RowCounts counts;
  for (std::int64_t r = first; r < end; ++r)
    counts += cast_row<Grid>(x.row(r), scales.data(), q.codes.as<std::uint8_t>() + r * x.length, x.length);
  return counts;
}

// One cast of a matrix.
template <class Grid, class T>
struct BlockCast {
  MatrixRows<T> rows;
  const Quantized& q;
  BlockRule rule;
  BlockExtent block;
  bool fold;

  // Scales of n amaxes; returns whether every product with its amax is within the format. `foldable` becomes false if
  // a code does not fold.
  bool scales_of(const Magnitude<T>* amaxes, std::int64_t n, TileFactors& f, bool& foldable) const {
    constexpr FoldRange kRange = fold_range<Grid>();
    float *const scales = f.scale.data(), *const inverses = f.inverse.data(), *const folded = f.fold.data();
    std::uint32_t fits = 1, folds = 1;
#pragma omp simd reduction(& : fits, folds)
    for (std::int64_t i = 0; i < n; ++i) {
      const float amax = from_magnitude(amaxes[i]);
      const auto [scale, inverse] = rule(amax);
      scales[i] = scale;
      inverses[i] = inverse;
      folded[i] = fold ? inverse : 1.0f;
      fits &= static_cast<std::uint32_t>(scale > 0) & static_cast<std::uint32_t>(amax * scale <= Grid::kMax);
      folds &= static_cast<std::uint32_t>(amax == 0) | (static_cast<std::uint32_t>(inverse >= kRange.least) &
                                                        static_cast<std::uint32_t>(inverse <= kRange.greatest));
    }
    foldable = foldable && folds != 0;
    return fits != 0;
  }

  // Stores the scales of n blocks, `step` elements apart from `first` on.
  void store(const TileFactors& f, std::int64_t n, std::int64_t first, std::int64_t step) const {
    float *const scale = q.scale.as<float>() + first, *const inverse = q.inverse_scale.as<float>() + first;
    for (std::int64_t i = 0; i < n; ++i) {
      scale[i * step] = f.scale[static_cast<std::size_t>(i)];
      inverse[i * step] = f.inverse[static_cast<std::size_t>(i)];
    }
  }

  Bf16* out(std::int64_t row, std::int64_t column) const {
    return q.codes.as<Bf16>() + row * q.codes.stride[0] + column;
  }

  // Blocks along row r.
  RowCounts along(std::int64_t r, bool& foldable) const {
    const auto& loops = row_loops<T>();
    RowCounts counts;
    TileFactors f;
    std::array<Magnitude<T>, kWidest> amaxes;
    const std::int64_t widest = kWidest * block.along;
    for (std::int64_t begin = 0; begin < rows.length; begin += widest) {
      const std::int64_t n = std::min(widest, rows.length - begin), blocks = divide_up(n, block.along);
      const T* const x = rows.row(r) + begin;
      (rule.mx ? loops.amax_of_blocks : loops.amax_of_blocks_but_nan)(x, block.along, amaxes.data(), n);
      const bool fits = scales_of(amaxes.data(), blocks, f, foldable);
      store(f, blocks, r * q.scale.stride[0] + begin / block.along * q.scale.stride[1], q.scale.stride[1]);
      counts += grid_loops<Grid, T>().blocks(x, block.along, {f.scale.data(), f.fold.data(), fits}, out(r, begin), n);
    }
    return counts;
  }

  // Replaces the amaxes of n columns by one for each square.
  void combine_columns(Magnitude<T>* amaxes, std::int64_t n) const {
    for (std::int64_t begin = 0, b = 0; begin < n; begin += block.across, ++b)
      amaxes[b] = *std::max_element(amaxes + begin, amaxes + std::min(n, begin + block.across));
  }

  // Repeats the factors of squares for each of n columns.
  void repeat_columns(TileFactors& f, std::int64_t n) const {
    for (std::int64_t i = n - 1; i >= 0; --i) {
      const auto at = static_cast<std::size_t>(i), from = static_cast<std::size_t>(i / block.across);
      f.scale[at] = f.scale[from];
      f.fold[at] = f.fold[from];
    }
  }

  // Blocks along columns, or squares: columns [begin, begin + n) of the `block.along` rows from `first` on.
  RowCounts stripe(std::int64_t first, std::int64_t begin, std::int64_t n, bool& foldable) const {
    const auto& loops = row_loops<T>();
    const std::int64_t end = std::min(rows.count, first + block.along), down = first / block.along;
    TileFactors f;
    std::array<Magnitude<T>, kWidest> amaxes{};
    for (std::int64_t r = first; r < end; ++r)
      (rule.mx ? loops.amax_into : loops.amax_into_but_nan)(rows.row(r) + begin, amaxes.data(), n);
    const bool squares = block.across > 1;
    if (squares) combine_columns(amaxes.data(), n);
    const std::int64_t scales = divide_up(n, block.across);
    const bool fits = scales_of(amaxes.data(), scales, f, foldable);
    store(f, scales, down * q.scale.stride[0] + begin / block.across * q.scale.stride[1], q.scale.stride[1]);
    if (squares) repeat_columns(f, n);
    RowCounts counts;
    for (std::int64_t r = first; r < end; ++r)
      counts +=
          grid_loops<Grid, T>().columns(rows.row(r) + begin, {f.scale.data(), f.fold.data(), fits}, out(r, begin), n);
    return counts;
  }

  // All codes; returns whether all of them fold.
  bool run(CastCounts& counts) const {
    std::int64_t saturated = 0, underflowed = 0;
    bool foldable = true;
    if (block.across == 1 && q.contract == ContractionAxis::last) {
#pragma omp parallel for reduction(+ : saturated, underflowed) reduction(&& : foldable) if (rows.parallel())
      for (std::int64_t r = 0; r < rows.count; ++r) {
        const RowCounts of_row = along(r, foldable);
        saturated += of_row.saturated;
        underflowed += of_row.underflowed;
      }
    } else {
      // Enough tiles for all threads, as wide as possible.
      const std::int64_t stripes = divide_up(rows.count, block.along), threads = omp_get_max_threads();
      const std::int64_t wanted = rows.length * stripes / (2 * threads);
      const std::int64_t width = std::clamp<std::int64_t>(round_up(wanted, 128), 128, kWidest);
      const std::int64_t across = divide_up(rows.length, width);
#pragma omp parallel for collapse(2) reduction(+ : saturated, underflowed) reduction(&& : foldable) if (rows.parallel())
      for (std::int64_t s = 0; s < stripes; ++s) {
        for (std::int64_t c = 0; c < across; ++c) {
          const RowCounts of_tile =
              stripe(s * block.along, c * width, std::min(width, rows.length - c * width), foldable);
          saturated += of_tile.saturated;
          underflowed += of_tile.underflowed;
        }
      }
    }
    counts = {.elements = rows.total, .saturated = saturated, .underflowed = underflowed};
    return foldable;
  }
};

}  // namespace

View allocate_block_scales(const Context& ctx, std::int64_t rows, std::int64_t cols, Granularity granularity,
                           ContractionAxis contract, device::PooledMemory* keep) {
  constexpr std::int64_t kSquares = 4;  // cuBLASLt's alignment of the rows of scales of squares
  const bool reads_more = ctx.device == device::DeviceType::cuda && granularity == Granularity::block1x128;
  const std::int64_t step = reads_more ? kDeviceRows : 1;
  const BlockExtent block = block_extent(granularity);
  const bool last = contract == ContractionAxis::last;
  const std::int64_t others = last ? rows : cols, blocks = divide_up(last ? cols : rows, block.along);
  const auto turned = [](const View& v, bool turn) { return turn ? v.transposed() : v; };
  if (block.across > 1) {
    const std::int64_t squares = divide_up(others, block.across);
    return turned(allocate_for_cast(ctx, keep, DType::f32, {squares, round_up(blocks, kSquares)}).columns(0, blocks),
                  !last);
  }
  // The host writes scales in the order of the matrix.
  if (last && ctx.device == device::DeviceType::host) return allocate_for_cast(ctx, keep, DType::f32, {others, blocks});
  return turned(allocate_for_cast(ctx, keep, DType::f32, {blocks, round_up(others, step)}).columns(0, others), last);
}

bool folds(const Quantized& q, const CastOptions& options) {
  return options.fold && (options.power_of_2 || q.granularity == Granularity::block1x32);
}

CastCounts cast_blocks(const View& x, Quantized& q, const CastOptions& options) {
  CastCounts counts;
  dtype::with_fp8_grid(q.format, [&]<class Grid>() {
    dtype::with_float_type(x.dtype, "quantize", [&]<class T>() {
      BlockCast<Grid, T> cast{rows_of<T>(x), q, block_rule<T>(q.granularity, Grid::kMax, options.power_of_2),
                              block_extent(q.granularity), folds(q, options)};
      q.folded = cast.fold && cast.run(counts);
      if (q.folded) return;
      cast.fold = false;  // or a code did not fold, which is rare: again, without
      cast.run(counts);
    });
  });
  return counts;
}

CastCounts cast_squares_to_bytes(const View& x, const Quantized& q, const CastOptions& options) {
  std::int64_t saturated = 0, underflowed = 0;
  dtype::with_fp8_grid(q.format, [&]<class Grid>() {
    dtype::with_float_type(x.dtype, "cast_blocks_to_bytes", [&]<class T>() {
      const MatrixRows<T> rows = rows_of<T>(x);
      const BlockRule rule = block_rule<T>(q.granularity, Grid::kMax, options.power_of_2);
#pragma omp parallel for reduction(+ : saturated, underflowed) if (rows.parallel())
      for (std::int64_t down = 0; down < q.scale.shape[0]; ++down) {
        const RowCounts counts = cast_row_of_squares<Grid>(rows, q, rule, down);
        saturated += counts.saturated;
        underflowed += counts.underflowed;
      }
    });
  });
  return {.elements = x.size(), .saturated = saturated, .underflowed = underflowed};
}

void fold_squares(Quantized& q) {
  const std::span inverse(q.inverse_scale.as<float>(), static_cast<std::size_t>(q.inverse_scale.size()));
  dtype::with_fp8_grid(q.format, [&]<class Grid>() {
    constexpr FoldRange kRange = fold_range<Grid>();
    q.folded = std::ranges::all_of(inverse, [&](float f) { return f >= kRange.least && f <= kRange.greatest; });
  });
  if (!q.folded) return;
  const std::int64_t cols = q.codes.shape[1];
#pragma omp parallel for if (q.codes.size() >= kParallelElements)
  for (std::int64_t r = 0; r < q.codes.shape[0]; ++r) {
    Bf16* const row = q.codes.as<Bf16>() + r * q.codes.stride[0];
    const float* const of_row = inverse.data() + r / kSquare.along * q.inverse_scale.stride[0];
    for (std::int64_t c = 0; c < cols; ++c)
      row[c] = dtype::from_float<Bf16>(dtype::to_float(row[c]) * of_row[c / kSquare.across]);
  }
}

}  // namespace fp8::quant
