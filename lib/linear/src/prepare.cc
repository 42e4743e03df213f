// Prepares the weight of a linear layer for a pass: quantizes its FP8 parts, or takes their codes as they are.
#include <algorithm>

#include "fp8/base/round.h"
#include "fp8/linear/linear.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"
#include "fp8/quant/fold.h"
#include "fp8/quant/fp4.h"
#include "fp8/quant/groups.h"
#include "fp8/quant/scale.h"
#include "precision.h"

namespace fp8::linear {
namespace {

using dtype::DType;
using quant::Cast;
using quant::ContractionAxis;
using quant::Quantized;

constexpr std::int64_t kSquare = quant::block_extent(quant::Granularity::block128x128).across;

// The precision in a pass; recomputed GEMMs are not observed again.
LinearPrecision precision_in(LinearPrecision precision, Pass pass) {
  if (pass == Pass::recompute) precision.observer = nullptr;
  return precision;
}

// The part of a projection's weight.
quant::Split of_weight(const LinearPrecision& precision, const Part& part) {
  return precision.tensor_parallel.axis == 1 ? by_columns(precision) : by_rows(precision, part, 0);
}

// Adjacent parts that are in high precision in the pass as one part.
std::vector<Part> parts_of_gemms(const std::vector<Part>& parts, bool any_fp8, Pass pass) {
  std::vector<Part> out;
  for (Part p : parts) {
    p.fp8 = fp8_in(p, pass) && any_fp8;
    if (!out.empty() && !p.fp8 && !out.back().fp8) {
      out.back().end = p.end;
    } else {
      out.push_back(p);
    }
  }
  return out;
}

const Cast& weight_cast(const quant::Recipe& recipe, Pass pass) {
  return pass == Pass::backward ? recipe.dgrad.w : recipe.forward.w;
}

ContractionAxis weight_contraction(Pass pass) {
  return pass == Pass::backward ? ContractionAxis::first : ContractionAxis::last;
}

// Scales of blocks of several weights, contiguous f32 [weights, rows, columns], of each in the layout of
// Quantized::scale: on a device adjacent along the contracted dimension, the other stride a multiple of 4.
View for_blocks(const Context& ctx, const View& scales, Pass pass) {
  constexpr std::int64_t kStep = 4;
  const bool turned = weight_contraction(pass) == ContractionAxis::first;
  const auto [weights, rows, columns, unused] = scales.shape;
  if (ctx.device == device::DeviceType::host || (!turned && columns % kStep == 0)) return scales;
  const std::int64_t lines = turned ? columns : rows, step = round_up(turned ? rows : columns, kStep);
  View to = tensor::allocate(ctx, DType::f32, {weights, lines, step}, "fp8 codes");
  to.shape = scales.shape;
  to.stride = turned ? std::array<std::int64_t, 4>{lines * step, 1, step, 0}
                     : std::array<std::int64_t, 4>{lines * step, step, 1, 0};
  ops::copy(ctx, scales, to);
  return to;
}

// The codes of forward for dgrad.
Operand single_copy(const Context& ctx, const View& matrix, const Part& part, const LinearPrecision& precision) {
  quant::CastOptions options = cast_options(precision, {});
  options.emulate = false;
  options.split = of_weight(precision, part);
  const Quantized rows = quant::quantize(ctx, matrix, precision.recipe->forward.w, ContractionAxis::last, options);
  return {part, quant::without_scales(ctx, rows, precision.options.emulate), rows.inverse_scale, matrix};
}

// The matrix with its columns divided by their factors.
View divide_columns(const Context& ctx, const View& matrix, const LinearPrecision& precision) {
  return quant::scale_columns(ctx, matrix, quant::reciprocals(ctx, factors_of(precision, matrix.shape[1])));
}

// Whether the weight of a part is cast in a pass.
bool is_cast(const Part& part, Pass pass) { return part.fp8 && (pass != Pass::backward || part.gemms.dgrad); }

// The operands of FP4 codes, which are the same for both GEMMs.
std::vector<Operand> packed_operands(const Context& ctx, const Codes& codes, const std::vector<Part>& parts,
                                     Pass pass) {
  std::vector<Operand> operands;
  std::int64_t first = 0;
  for (std::int64_t i = 0; i < std::ssize(parts); ++i) {
    const Part& part = parts[static_cast<std::size_t>(i)];
    const std::int64_t last = first + divide_up(part.end - part.begin, quant::kFp4Block);
    operands.push_back({part,
                        quant::from_packed(ctx, codes.bytes.rows(part.begin, part.end), codes.scales.rows(first, last),
                                           codes.inverse_scales.rows(i, i + 1), weight_contraction(pass)),
                        {},
                        codes.source.empty() ? View{} : codes.source.rows(part.begin, part.end)});
    first = last;
  }
  return operands;
}

// The parts of several weights as the GEMMs of a pass read them.
struct GroupParts {
  std::span<const GroupWeight> weights;
  std::vector<std::vector<Part>> of_gemms{};
  std::int64_t rows;  // of a weight

  GroupParts(std::span<const GroupWeight> all, bool any_fp8, Pass pass)
      : weights(all), rows(all.front().parts.back().end) {
    for (const GroupWeight& w : all) of_gemms.push_back(parts_of_gemms(w.parts, any_fp8, pass));
  }
  // Whether every part is cast in the pass, and all weights have the same.
  bool all_cast(Pass pass) const {
    return std::ranges::all_of(of_gemms, [&](const std::vector<Part>& parts) {
      return std::ranges::equal(parts, of_gemms.front(), [pass](const Part& a, const Part& b) {
        return a.begin == b.begin && a.end == b.end && a.gemms == b.gemms && is_cast(a, pass) && is_cast(b, pass);
      });
    });
  }
  // Known scales of all parts; none if there are none.
  std::vector<quant::KnownScale> known() const {
    std::vector<quant::KnownScale> scales;
    for (std::size_t g = 0; g < weights.size(); ++g)
      for (const Part& part : of_gemms[g])
        if (!weights[g].known.w.empty()) scales.push_back(known_for(weights[g].known.w, weights[g].parts, part.begin));
    return scales;
  }
  // First rows of the parts of all weights, and the end.
  std::vector<std::int64_t> first_rows() const {
    std::vector<std::int64_t> first;
    for (std::int64_t g = 0; g < std::ssize(weights); ++g)
      for (const Part& part : of_gemms.front()) first.push_back(g * rows + part.begin);
    first.push_back(std::ssize(weights) * rows);
    return first;
  }
  // The rows of weight g in an array that has `each` for a weight.
  static View of(const View& v, std::size_t g, std::int64_t each) {
    const auto begin = static_cast<std::int64_t>(g) * each;
    return v.empty() ? v : v.rows(begin, begin + each);
  }
  // The weights with the operands `codes`, one after the other.
  std::vector<Weight> with(const LinearPrecision& precision, std::span<const Quantized> codes,
                           const View& source) const {
    std::vector<Weight> all;
    auto next = codes.begin();
    for (std::size_t g = 0; g < weights.size(); ++g) {
      Weight w{{}, precision, {}, weights[g].parts, weights[g].known};
      const View own = of(source, g, rows);
      for (const Part& part : of_gemms[g])
        w.operands.push_back({part, *next++, {}, own.empty() ? own : own.rows(part.begin, part.end)});
      all.push_back(std::move(w));
    }
    return all;
  }
};

}  // namespace

Weight prepare(const Context& ctx, const View& matrix, const View& bias, const std::vector<Part>& parts,
               const LinearPrecision& precision, Pass pass, const KnownScales& known) {
  Weight w{bias, precision_in(precision, pass), {}, parts, known};
  for (const Part& part : parts_of_gemms(parts, precision.recipe != nullptr, pass)) {
    const bool fp8 = is_cast(part, pass);
    if (fp8 && precision.recipe->single_copy && pass == Pass::backward) {
      w.operands.push_back(single_copy(ctx, matrix.rows(part.begin, part.end), part, precision));
      continue;
    }
    const Cast cast = fp8 ? weight_cast(*precision.recipe, pass) : Cast{};
    const bool multiplied = fp8 && multiplies_columns(precision, pass == Pass::backward);
    View rows = matrix.rows(part.begin, part.end);
    if (multiplied) rows = divide_columns(ctx, rows, precision);
    const quant::KnownScale scale = multiplied ? quant::KnownScale{} : known_for(known.w, parts, part.begin);
    quant::CastOptions options = cast_options(precision, scale);
    options.split = of_weight(precision, part);
    w.operands.push_back({part, quant::quantize(ctx, rows, cast, weight_contraction(pass), options), {}, rows});
  }
  return w;
}

std::int64_t block_rows(const std::vector<Part>& parts, std::int64_t extent) {
  std::int64_t rows = 0;
  for (const Part& p : parts) rows += divide_up(p.end - p.begin, extent);
  return rows;
}

std::int64_t scale_count(const quant::Recipe& recipe, Pass pass, std::int64_t rows, std::int64_t columns) {
  if (weight_cast(recipe, pass).granularity != quant::Granularity::row) return 1;
  return pass == Pass::backward && !recipe.single_copy ? columns : rows;
}

Weight prepare_codes(const Context& ctx, const Codes& codes, const View& bias, const std::vector<Part>& parts,
                     const LinearPrecision& precision, Pass pass, const KnownScales& known) {
  Weight w{bias, precision_in(precision, pass), {}, parts, known};
  const Cast& cast = weight_cast(*precision.recipe, pass);
  if (dtype::is_fp4(cast.format)) {
    w.operands = packed_operands(ctx, codes, parts, pass);
    return w;
  }
  const bool blocks = codes.scales.rank == 2,
             folds = precision.recipe->single_copy && !blocks && pass == Pass::backward;
  std::int64_t first = 0;
  for (const Part& part : parts) {
    const std::int64_t n = part.end - part.begin,
                       last = first + (blocks ? divide_up(n, kSquare)
                                              : scale_count(*precision.recipe, pass, n, codes.bytes.shape[1]));
    const View inverse = codes.inverse_scales.rows(first, last), one = folds ? quant::unit_scale(ctx) : View{};
    const auto laid_out = [&](const View& scales) {
      if (!blocks) return scales;
      View to = for_blocks(ctx, scales.reshaped({1, scales.shape[0], scales.shape[1]}), pass);
      to.rank = 2;
      to.shape = scales.shape;
      to.stride = {to.stride[1], to.stride[2], 0, 0};
      return to;
    };
    w.operands.push_back(
        {part,
         quant::from_bytes(ctx, codes.bytes.rows(part.begin, part.end), cast.format, weight_contraction(pass),
                           folds ? one : laid_out(codes.scales.rows(first, last)), folds ? one : laid_out(inverse),
                           precision.options.emulate),
         folds ? inverse : View{}, codes.source.empty() ? View{} : codes.source.rows(part.begin, part.end)});
    const quant::CastOptions options = cast_options(precision, {});
    if (blocks && codes.fold && options.fold && options.power_of_2) quant::fold_blocks(ctx, w.operands.back().codes);
    first = last;
  }
  return w;
}

std::vector<Weight> prepare_groups(const Context& ctx, const View& matrix, std::span<const GroupWeight> weights,
                                   const LinearPrecision& precision, Pass pass) {
  if (weights.empty()) return {};
  const GroupParts parts(weights, precision.recipe != nullptr, pass);
  const bool backward = pass == Pass::backward;
  const bool same = precision.recipe != nullptr && parts.all_cast(pass) &&
                    !(backward && precision.recipe->single_copy) && !multiplies_columns(precision, backward) &&
                    precision.tensor_parallel.ranks == nullptr;
  const Cast cast = same ? weight_cast(*precision.recipe, pass) : Cast{};
  const quant::CastPair casts{backward ? Cast{} : cast, backward ? cast : Cast{}};
  const quant::CastOptions options = cast_options(precision, {});
  const std::vector<quant::KnownScale> known = parts.known();
  if (!same || !quant::casts_groups(ctx, matrix.dtype, matrix.shape[1], casts, options, known)) {
    std::vector<Weight> all;
    for (std::size_t g = 0; g < weights.size(); ++g)
      all.push_back(
          prepare(ctx, GroupParts::of(matrix, g, parts.rows), {}, weights[g].parts, precision, pass, weights[g].known));
    return all;
  }
  std::vector<Quantized> codes;
  for (const quant::QuantizedPair& pair :
       quant::quantize_groups(ctx, matrix, parts.first_rows(), casts, options, known))
    codes.push_back(backward ? pair.first : pair.last);
  return parts.with(precision_in(precision, pass), codes, matrix);
}

std::vector<Weight> prepare_codes_groups(const Context& ctx, const Codes& codes, std::span<const GroupWeight> weights,
                                         const LinearPrecision& precision, Pass pass) {
  if (weights.empty()) return {};
  std::vector<Weight> all;
  if (!quant::moves_groups(ctx, codes.bytes.shape[1])) {
    const std::int64_t rows = weights.front().parts.back().end, n = codes.scales.shape[0] / std::ssize(weights);
    for (std::size_t g = 0; g < weights.size(); ++g)
      all.push_back(
          prepare_codes(ctx,
                        {GroupParts::of(codes.bytes, g, rows), GroupParts::of(codes.scales, g, n),
                         GroupParts::of(codes.inverse_scales, g, n), GroupParts::of(codes.source, g, rows), codes.fold},
                        {}, weights[g].parts, precision, pass, weights[g].known));
    return all;
  }
  GroupParts parts(weights, true, pass);
  for (std::size_t g = 0; g < weights.size(); ++g) parts.of_gemms[g] = weights[g].parts;  // all have codes
  const auto laid_out = [&](const View& scales) {
    const std::int64_t groups = std::ssize(weights) * std::ssize(weights.front().parts);
    return scales.rank == 1
               ? scales
               : for_blocks(ctx, scales.reshaped({groups, scales.shape[0] / groups, scales.shape[1]}), pass);
  };
  const std::vector<Quantized> moved = quant::from_bytes_groups(
      ctx, codes.bytes, parts.first_rows(), weight_cast(*precision.recipe, pass).format, weight_contraction(pass),
      laid_out(codes.scales), laid_out(codes.inverse_scales), precision.options.emulate);
  return parts.with(precision_in(precision, pass), moved, codes.source);
}

}  // namespace fp8::linear
