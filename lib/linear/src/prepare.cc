// Prepares the weight of a linear layer for a pass: quantizes its FP8 parts, or takes their codes as they are.
#include "fp8/base/round.h"
#include "fp8/linear/linear.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"
#include "fp8/quant/fold.h"
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

// Scales of blocks, contiguous f32 [rows, columns], in the layout of Quantized::scale: on a device adjacent along the
// contracted dimension, the other stride a multiple of 4.
View for_blocks(const Context& ctx, const View& scales, Pass pass) {
  if (ctx.device == device::DeviceType::host) return scales;
  constexpr std::int64_t kStep = 4;
  const bool turned = weight_contraction(pass) == ContractionAxis::first;
  const View from = turned ? scales.transposed() : scales;
  const std::int64_t rows = from.shape[0], columns = from.shape[1];
  View to = tensor::allocate(ctx, DType::f32, {rows, round_up(columns, kStep)}, "fp8 codes").columns(0, columns);
  if (turned) to = to.transposed();
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

}  // namespace

Weight prepare(const Context& ctx, const View& matrix, const View& bias, const std::vector<Part>& parts,
               const LinearPrecision& precision, Pass pass, const KnownScales& known) {
  Weight w{bias, precision_in(precision, pass), {}, parts, known};
  for (const Part& part : parts_of_gemms(parts, precision.recipe != nullptr, pass)) {
    const bool fp8 = part.fp8 && (pass != Pass::backward || part.gemms.dgrad);
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

std::int64_t block_rows(const std::vector<Part>& parts) {
  std::int64_t rows = 0;
  for (const Part& p : parts) rows += divide_up(p.end - p.begin, kSquare);
  return rows;
}

Weight prepare_codes(const Context& ctx, const Codes& codes, const View& bias, const std::vector<Part>& parts,
                     const LinearPrecision& precision, Pass pass, const KnownScales& known) {
  Weight w{bias, precision_in(precision, pass), {}, parts, known};
  const Cast& cast = weight_cast(*precision.recipe, pass);
  const bool blocks = codes.scales.rank == 2, rows = precision.recipe->single_copy && !blocks,
             folds = rows && pass == Pass::backward;
  std::int64_t first = 0;
  for (const Part& part : parts) {
    const std::int64_t n = part.end - part.begin, last = first + (blocks ? divide_up(n, kSquare) : rows ? n : 1);
    const View inverse = codes.inverse_scales.rows(first, last), one = folds ? quant::unit_scale(ctx) : View{};
    const auto laid_out = [&](const View& scales) { return blocks ? for_blocks(ctx, scales, pass) : scales; };
    w.operands.push_back(
        {part,
         quant::from_bytes(ctx, codes.bytes.rows(part.begin, part.end), cast.format, weight_contraction(pass),
                           folds ? one : laid_out(codes.scales.rows(first, last)), folds ? one : laid_out(inverse),
                           precision.options.emulate),
         folds ? inverse : View{}, codes.source.empty() ? View{} : codes.source.rows(part.begin, part.end)});
    first = last;
  }
  return w;
}

}  // namespace fp8::linear
