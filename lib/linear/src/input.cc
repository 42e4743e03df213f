// Which forms of x the passes of a weight read, and the casts that make them.
#include "fp8/linear/input.h"

#include <algorithm>

#include "fp8/linear/observer.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"
#include "fp8/quant/fold.h"
#include "fp8/quant/keep.h"
#include "fp8/quant/scale.h"
#include "operands.h"
#include "precision.h"

namespace fp8::linear {
namespace {

using dtype::DType;
using quant::Cast;
using quant::ContractionAxis;

// The amax of x; of the whole if tensor parallelism divides x.
void measure(const Context& ctx, const Weight& weight, const View& x, const View& amax, bool skip_nan) {
  quant::amax(ctx, x, quant::Granularity::tensor, ContractionAxis::last, amax, skip_nan);
  const quant::Split split = by_columns(weight.precision);
  if (split.ranks != nullptr) split.ranks->reduce(ctx, amax);
}

// Codes for both GEMMs, of which those for wgrad are in memory of `kept`.
Input cast_both(const Context& ctx, const Weight& weight, const View& x, const View& amax, device::PooledMemory& kept) {
  const quant::Recipe& recipe = *weight.precision.recipe;
  const quant::QuantizedPair pair =
      quant::quantize_keeping(ctx, x, {.last = recipe.forward.x, .first = recipe.wgrad.x},
                              activation_options(ctx, weight.precision, x, recipe.forward.x, weight.known.x, amax,
                                                 by_columns(weight.precision)),
                              kept);
  return {x, pair.last, pair.first, x.dtype};
}

// Codes for the GEMM forward.
Input cast_for_forward(const Context& ctx, const Weight& weight, const View& x, const View& amax) {
  const LinearPrecision& precision = weight.precision;
  const Cast& cast = recipe_of(precision).forward.x;
  if (!reads_codes_of_x(weight, Pass::forward)) return values_of(x);
  const bool multiplied = multiplies_columns(precision, false);
  const View from = multiplied ? quant::scale_columns(ctx, x, factors_of(precision, x.shape[1])) : x;
  return {x,
          quant::quantize(ctx, from, cast, ContractionAxis::last,
                          activation_options(ctx, precision, from, cast, weight.known.x, multiplied ? View{} : amax,
                                             by_columns(precision))),
          {},
          x.dtype};
}

}  // namespace

quant::CastOptions activation_options(const Context& ctx, const LinearPrecision& precision, const View& x,
                                      const Cast& cast, const quant::KnownScale& known, const View& of_x,
                                      const quant::Split& split) {
  quant::CastOptions options = cast_options(precision, known);
  options.amax = of_x;
  options.split = split;
  if (precision.amax_reducer == nullptr || cast.granularity != quant::Granularity::tensor || known.is_known())
    return options;
  const View amax = tensor::allocate(ctx, DType::f32, {1}, "fp8 codes");
  options.known = {tensor::allocate(ctx, DType::f32, {1}, "fp8 codes"),
                   tensor::allocate(ctx, DType::f32, {1}, "fp8 codes"), known.amax};
  if (of_x.empty())
    quant::amax(ctx, x, cast.granularity, ContractionAxis::last, amax, quant::skips_nan(options.rule));
  else
    ops::copy(ctx, of_x, amax);
  precision.amax_reducer->reduce(ctx, amax);
  quant::scales_from_amax(ctx, amax, {cast.format, options.rule, options.power_of_2}, options.known.scale,
                          options.known.inverse_scale);
  return options;
}

void calibrate(const Context& ctx, const View& x, const quant::KnownScale& slot) {
  if (!slot.amax.empty()) quant::record_amax(ctx, x, slot.amax);
}

quant::Quantized cast_for_wgrad(const Context& ctx, const Weight& weight, const View& x, const View& amax) {
  if (!reads_codes_of_x(weight, Pass::backward)) return {};
  const Cast& cast = weight.precision.recipe->wgrad.x;
  return quant::quantize(
      ctx, x, cast, ContractionAxis::first,
      activation_options(ctx, weight.precision, x, cast, weight.known.x, amax, by_columns(weight.precision)));
}

Input input_of_codes(const Context& ctx, const Weight& weight, const InputCodes& x, Pass pass) {
  const bool backward = pass == Pass::backward;
  const quant::Quantized codes =
      quant::from_bytes(ctx, x.bytes, x.format, backward ? ContractionAxis::first : ContractionAxis::last, x.scale,
                        x.inverse_scale, weight.precision.options.emulate);
  return {{}, backward ? quant::Quantized{} : codes, backward ? codes : quant::Quantized{}, x.activation};
}

NeededAmaxes needed_amaxes(const LinearPrecision& precision, const std::vector<Part>& parts, const KnownScales& known) {
  if (precision.recipe == nullptr) return {};
  const quant::Recipe& recipe = *precision.recipe;
  const auto whole = [](const Cast& cast) { return cast.granularity == quant::Granularity::tensor; };
  NeededAmaxes use{.skip_nan = quant::skips_nan(recipe.scale_rule)};
  for (const Part& p : parts) {
    if (!p.fp8) continue;
    use.x = use.x || (p.gemms.forward && whole(recipe.forward.x)) || (p.gemms.wgrad && whole(recipe.wgrad.x));
    use.dy = use.dy || (p.gemms.dgrad && whole(recipe.dgrad.dy)) || (p.gemms.wgrad && whole(recipe.wgrad.dy));
  }
  if (known.x.is_known()) use.x = false;
  if (!known.dy.empty() && std::ranges::all_of(known.dy, &quant::KnownScale::is_known)) use.dy = false;
  return use;
}

NeededAmaxes needed_amaxes(const Weight& weight) { return needed_amaxes(weight.precision, weight.parts, weight.known); }

InputForms forms_read(const Weight& weight, Pass pass) {
  const LinearPrecision& precision = weight.precision;
  if (precision.recipe == nullptr) return {.values = true};
  const bool cast = input_cast(*precision.recipe, pass).fp8();
  const auto codes = [&](const Part& p) { return cast && reads_codes_of_x(p, pass); };
  const bool any = std::ranges::any_of(weight.parts, codes), all = std::ranges::all_of(weight.parts, codes),
             forward = pass != Pass::backward,
             before_casts = precision.amax_reducer != nullptr || multiplies_columns(precision, false);
  return {.values = !all || before_casts || !weight.adapters.empty() || active_observer(precision) != nullptr,
          .rows = forward && any,
          .columns = !forward && any};
}

InputForms forms_kept(const Context& ctx, const Weight& weight, const View& x) {
  const InputForms backward = forms_read(weight, Pass::backward);
  const bool columns = backward.columns && !backward.values && forms_read(weight, Pass::forward).rows &&
                       quant::saves_memory(ctx, x, weight.precision.recipe->wgrad.x, weight.precision.options.emulate);
  return {.values = !columns, .columns = columns};
}

Input cast_input(const Context& ctx, const Weight& weight, const View& x, const ForwardOptions& options,
                 device::PooledMemory* kept) {
  if (const NeededAmaxes use = needed_amaxes(weight); use.x && !options.amax.empty() && !options.amax_known)
    measure(ctx, weight, x, options.amax, use.skip_nan);
  if (kept != nullptr && forms_kept(ctx, weight, x).columns) return cast_both(ctx, weight, x, options.amax, *kept);
  if (weight.precision.recipe == nullptr) calibrate(ctx, x, weight.known.x);
  return cast_for_forward(ctx, weight, x, options.amax);
}

bool reads_codes(const Weight& weight, Pass pass, const View& amax) {
  const InputForms read = forms_read(weight, pass);
  return !read.values && (read.rows || read.columns) &&
         input_cast(*weight.precision.recipe, pass).granularity == quant::Granularity::tensor &&
         (weight.known.x.is_known() || !amax.empty());
}

InputCodes cast_rows(const Context& ctx, const Weight& weight, Pass pass, const View& rows, const View& amax) {
  const LinearPrecision& precision = weight.precision;
  InputCodes codes{tensor::allocate(ctx, DType::u8, {rows.shape[0], rows.shape[1]}, "fp8 codes"), weight.known.x.scale,
                   weight.known.x.inverse_scale, input_cast(*precision.recipe, pass).format, rows.dtype};
  if (!weight.known.x.is_known()) {
    codes.scale = tensor::allocate(ctx, DType::f32, {1}, "fp8 codes");
    codes.inverse_scale = tensor::allocate(ctx, DType::f32, {1}, "fp8 codes");
    quant::scales_from_amax(ctx, amax, {codes.format, precision.recipe->scale_rule, precision.options.power_of_2},
                            codes.scale, codes.inverse_scale);
  }
  if (rows.shape[0] == 0) return codes;
  calibrate(ctx, rows, weight.known.x);
  quant::cast_to_bytes(ctx, rows, codes.format, codes.scale.as<float>(), codes.bytes, precision.options.counts);
  return codes;
}

}  // namespace fp8::linear
