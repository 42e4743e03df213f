// A part of a matrix is cast with the scales of the whole: amaxes are computed first, reduced over the ranks, and then
// the codes follow. The grid of blocks is that of the whole matrix.
#include "split.h"

#include <algorithm>
#include <vector>

#include "fp8/dtype/dispatch.h"
#include "fp8/quant/scale.h"
#include "matrix.h"

namespace fp8::quant {
namespace {

// Blocks along one dimension of the whole matrix, and this rank's elements of them.
struct Grid1 {
  std::int64_t block, begin, extent,
      count;  // elements of a block; first element and elements here; blocks of the whole
  std::int64_t of(std::int64_t i) const { return (begin + i) / block; }
  // Elements here of block b are [first(b), first(b + 1)).
  std::int64_t first(std::int64_t b) const { return std::clamp<std::int64_t>(b * block - begin, 0, extent); }
};

Grid1 grid_along(std::int64_t block, std::int64_t extent, int axis, const Split& split) {
  if (split.axis != axis || block == 1) return {block, 0, extent, divide_up(extent, block)};
  return {block, split.begin, extent, divide_up(split.whole, block)};
}

// A cast of the part x of a matrix. Rows of blocks in parallel.
template <class Grid, class T>
struct PartCast {
  MatrixRows<T> x;
  Grid1 down, across;
  bool mx;

  // The largest magnitudes here of all blocks of the whole; 0 for those without an element here.
  void amaxes(const View& out) const {
    std::fill_n(out.as<float>(), out.size(), 0.0f);
    const auto larger = mx ? row_loops<T>().amax_into : row_loops<T>().amax_into_but_nan;
#pragma omp parallel for if (x.parallel())
    for (std::int64_t d = 0; d < down.count; ++d) {
      std::vector<Magnitude<T>> of(static_cast<std::size_t>(x.length));
      for (std::int64_t r = down.first(d); r < down.first(d + 1); ++r) larger(x.row(r), of.data(), x.length);
      for (std::int64_t c = 0, end = 0; c < x.length; c = end) {
        const std::int64_t b = across.of(c);
        end = across.first(b + 1);
        out.as<float>()[d * out.stride[0] + b * out.stride[1]] =
            from_magnitude(*std::max_element(of.begin() + c, of.begin() + end));
      }
    }
  }

  // Codes times their inverse scales, which have the layout of the scales. `fits` as in BlockFactors.
  CastCounts codes(const View& scale, const View& inverse, bool fits, const View& out) const {
    std::int64_t saturated = 0, underflowed = 0;
#pragma omp parallel for reduction(+ : saturated, underflowed) if (x.parallel())
    for (std::int64_t d = 0; d < down.count; ++d) {
      std::vector<float> scales(static_cast<std::size_t>(x.length)), folds(scales.size());
      for (std::int64_t c = 0; c < x.length; ++c) {
        const std::int64_t at = d * scale.stride[0] + across.of(c) * scale.stride[1];
        scales[static_cast<std::size_t>(c)] = scale.as<float>()[at];
        folds[static_cast<std::size_t>(c)] = inverse.as<float>()[at];
      }
      for (std::int64_t r = down.first(d); r < down.first(d + 1); ++r) {
        const RowCounts of_row = grid_loops<Grid, T>().columns(x.row(r), {scales.data(), folds.data(), fits},
                                                               out.as<Bf16>() + r * out.stride[0], x.length);
        saturated += of_row.saturated;
        underflowed += of_row.underflowed;
      }
    }
    return {.elements = x.total, .saturated = saturated, .underflowed = underflowed};
  }
};

// The amaxes in `scale` become scales; returns whether they fit all elements, as in BlockFactors.
bool scales_from(const BlockRule& rule, std::int64_t n, float* scale, float* inverse) {
  bool fits = true;
  for (std::int64_t i = 0; i < n; ++i) {
    const float amax = scale[i];
    const ScaleFactors factors = rule(amax);
    fits = fits && factors.scale > 0 && amax * factors.scale <= rule.max;
    scale[i] = factors.scale;
    inverse[i] = factors.inverse;
  }
  return fits;
}

bool contracts_split(ContractionAxis contract, const Split& split) {
  return (contract == ContractionAxis::last) == (split.axis == 1);
}

}  // namespace

bool covers_ranks(const Cast& cast, ContractionAxis contract, const Split& split) {
  if (split.ranks == nullptr || !cast.fp8()) return false;
  const bool contracted = contracts_split(contract, split);
  switch (cast.granularity) {
    case Granularity::tensor:
    case Granularity::block1x16:
    case Granularity::block16x16:
      return true;  // all have a scale of the whole tensor
    case Granularity::row:
      return contracted;
    case Granularity::block128x128:
      return split.straddles;
    case Granularity::block1x128:
    case Granularity::block1x32:
      return contracted && split.straddles;
    case Granularity::none:
      break;
  }
  return false;
}

void require_split(const Context& ctx, const Cast& cast, ContractionAxis contract, const CastOptions& options) {
  const BlockExtent block = block_extent(cast.granularity);
  const Split& split = options.split;
  if (split.ranks == nullptr || block.along == 0) return;
  if (is_fp4(cast.format) && split.straddles)
    throw Error("blocks of " + std::to_string(block.along) + " elements are on several ranks of tensor parallelism " +
                "(--tp), which recipe nvfp4 does not support");
  const bool powers = options.power_of_2 || cast.granularity == Granularity::block1x32;
  const char* const missing = on_device(ctx)  ? "casts on the host"
                              : !options.fold ? "sums in f32 (--accumulate f32)"
                              : !powers       ? "scales that are powers of two (--power-of-2-scales)"
                                              : nullptr;
  if (!is_fp4(cast.format) && covers_ranks(cast, contract, split) && missing != nullptr)
    throw Error("blocks of " + std::to_string(block.along) +
                " elements are on several ranks of tensor parallelism (--tp), which needs " + missing);
  const std::int64_t divides = contracts_split(contract, split) ? block.along : block.across;
  if (!split.straddles && split.begin % divides != 0)
    throw Error("quantize: element " + std::to_string(split.begin) + " of the whole is inside of a block of " +
                std::to_string(divides));
}

void reduce(const Context& ctx, const Split& split, const View& amaxes) {
  if (amaxes.size() > 0) split.ranks->reduce(ctx, amaxes);
}

CastOptions with_whole_amax(const Context& ctx, const View& x, const CastPair& casts, CastOptions options) {
  const bool tensor = casts.last.granularity == Granularity::tensor || casts.first.granularity == Granularity::tensor;
  const bool known = !options.known.scale.empty() && !options.known.own_amax;
  if (options.split.ranks == nullptr || !tensor || known || !options.amax.empty()) return options;
  options.amax = tensor::allocate(ctx, dtype::DType::f32, {1}, "fp8 codes");
  amax(ctx, x, Granularity::tensor, ContractionAxis::last, options.amax, skips_nan(options.rule));
  reduce(ctx, options.split, options.amax);
  return options;
}

CastCounts cast_straddling(const Context& ctx, const View& x, Quantized& q, const CastOptions& options,
                           device::PooledMemory* keep) {
  const BlockExtent block = block_extent(q.granularity);
  const bool last = q.contract == ContractionAxis::last;
  const Grid1 down = grid_along(last ? block.across : block.along, x.shape[0], 0, options.split),
              across = grid_along(last ? block.along : block.across, x.shape[1], 1, options.split);
  // Blocks along the ranks' dimension are adjacent, which is the same order of amaxes whichever stride of x is 1: that
  // may differ between ranks, as a part with one column has it in both dimensions.
  const bool columns = options.split.axis == 1;
  const std::int64_t blocks = down.count * across.count;
  for (View* v : {&q.scale, &q.inverse_scale}) {
    *v = allocate_for_cast(ctx, keep, dtype::DType::f32,
                           columns ? tensor::Shape{down.count, across.count} : tensor::Shape{across.count, down.count});
    if (!columns) *v = v->transposed();
  }
  q.folded = true;
  CastCounts counts;
  const View amaxes = (columns ? q.scale : q.scale.transposed()).reshaped({blocks});
  if (ctx.dry) reduce(ctx, options.split, amaxes);
  if (ctx.dry) return counts;
  dtype::with_fp8_grid(q.format, [&]<class Grid>() {
    dtype::with_float_type(x.dtype, "quantize", [&]<class T>() {
      const BlockRule rule = block_rule<T>(q.granularity, Grid::kMax, options.power_of_2);
      const PartCast<Grid, T> cast{rows_of<T>(x), down, across, rule.mx};
      cast.amaxes(q.scale);
      reduce(ctx, options.split, amaxes);
      const bool fits = scales_from(rule, blocks, q.scale.as<float>(), q.inverse_scale.as<float>());
      counts = cast.codes(q.scale, q.inverse_scale, fits, q.codes);
    });
  });
  return counts;
}

}  // namespace fp8::quant
