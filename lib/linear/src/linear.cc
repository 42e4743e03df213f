// Casts of the operands by the recipe's table, and the three GEMMs of a linear layer. The loops of casts are in quant,
// those of GEMMs in gemm.
#include "fp8/linear/linear.h"

#include <algorithm>

#include "adapter.h"
#include "fp8/base/error.h"
#include "fp8/base/round.h"
#include "fp8/linear/codes.h"
#include "fp8/linear/observer.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"
#include "fp8/quant/fold.h"
#include "fp8/quant/scale.h"

namespace fp8::linear {
namespace {

using dtype::DType;
using quant::Cast;
using quant::ContractionAxis;
using quant::Quantized;

constexpr std::int64_t kSquare = quant::block_extent(quant::Granularity::block128x128).across;

// The recipe, or if there is none, one that casts nothing.
const quant::Recipe& recipe_of(const LinearPrecision& precision) {
  static constexpr quant::Recipe kHighPrecision{};
  return precision.recipe != nullptr ? *precision.recipe : kHighPrecision;
}

// Options of a cast of its FP8 parts. Codes are multiplied by the scales of their blocks where the GEMM needs no
// scales.
quant::CastOptions cast_options(const LinearPrecision& precision, const quant::KnownScale& known) {
  quant::CastOptions options = precision.options;
  options.fold = precision.accumulation == gemm::Accumulation::f32;
  options.rule = recipe_of(precision).scale_rule;
  options.known = known;
  return options;
}

// Index of the part that begins at row `begin`.
std::int64_t index_of(const std::vector<Part>& parts, std::int64_t begin) {
  return std::ranges::find(parts, begin, &Part::begin) - parts.begin();
}

// The known scale of the part that begins at row `begin`; empty if none is known.
quant::KnownScale known_for(const std::vector<quant::KnownScale>& known, const std::vector<Part>& parts,
                            std::int64_t begin) {
  if (known.empty()) return {};
  return known.at(static_cast<std::size_t>(index_of(parts, begin)));
}

// Whether a cast does not need the amax of its tensor.
bool has_scale(const quant::KnownScale& known) { return !known.scale.empty() && !known.own_amax; }

// The amax among those of dy of the part that begins at row `begin`; empty if none is known.
View amax_of(const View& amaxes, const std::vector<Part>& parts, std::int64_t begin) {
  if (amaxes.empty()) return {};
  const std::int64_t part = index_of(parts, begin);
  if (part >= amaxes.size()) throw Error("linear: fewer amaxes of the gradient than parts");
  return amaxes.rows(part, part + 1);
}

// The observer of the FP8 GEMMs now; null if there is none.
Observer* observer_of(const LinearPrecision& precision) {
  return precision.observer != nullptr && precision.observer->active() ? precision.observer : nullptr;
}

// The precision in a pass; recomputed GEMMs are not observed again.
LinearPrecision precision_in(LinearPrecision precision, Pass pass) {
  if (pass == Pass::recompute) precision.observer = nullptr;
  return precision;
}

// The part of x, or of a weight, that this rank has if tensor parallelism divides columns of the weight.
quant::Split by_columns(const LinearPrecision& precision) {
  const TensorParallel& tp = precision.tensor_parallel;
  return tp.axis == 1 ? quant::Split{tp.ranks, 1, tp.first_column, tp.columns, tp.straddles} : quant::Split{};
}

// The part of a projection's weight (axis 0), or of its dy (axis 1), if tensor parallelism divides rows of the weight.
quant::Split by_rows(const LinearPrecision& precision, const Part& part, int axis) {
  const TensorParallel& tp = precision.tensor_parallel;
  return tp.axis == 0 ? quant::Split{tp.ranks, axis, part.whole_begin, part.whole_rows, tp.straddles} : quant::Split{};
}

// The part of a projection's weight.
quant::Split of_weight(const LinearPrecision& precision, const Part& part) {
  return precision.tensor_parallel.axis == 1 ? by_columns(precision) : by_rows(precision, part, 0);
}

// Options of the cast of an activation, or gradient: with the scale of the amax of all ranks if there is a
// reducer. `of_x` is the amax of x if it is known, else empty.
quant::CastOptions activation_options(const Context& ctx, const LinearPrecision& precision, const View& x,
                                      const Cast& cast, const quant::KnownScale& known, const View& of_x,
                                      const quant::Split& split) {
  quant::CastOptions options = cast_options(precision, known);
  options.amax = of_x;
  options.split = split;
  if (precision.amax_reducer == nullptr || cast.granularity != quant::Granularity::tensor || has_scale(known))
    return options;
  const View amax = tensor::allocate(ctx, DType::f32, {1}, "fp8 codes");
  options.known = {tensor::allocate(ctx, DType::f32, {1}, "fp8 codes"),
                   tensor::allocate(ctx, DType::f32, {1}, "fp8 codes"), known.amax};
  if (of_x.empty())
    quant::amax(ctx, x, cast.granularity, ContractionAxis::last, amax, quant::skips_nan(options.rule));
  else
    ops::copy(ctx, of_x, amax);
  if (!ctx.dry) precision.amax_reducer->reduce(ctx, amax);
  quant::scales_from_amax(ctx, amax, {cast.format, options.rule, options.power_of_2}, options.known.scale,
                          options.known.inverse_scale);
  return options;
}

// Records an amax without a cast.
void calibrate(const Context& ctx, const View& x, const quant::KnownScale& slot) {
  if (!slot.amax.empty()) quant::record_amax(ctx, x, slot.amax);
}

gemm::ScaleBlocks blocks_of(quant::Granularity granularity) {
  switch (granularity) {
    case quant::Granularity::block1x128:
      return gemm::ScaleBlocks::block1x128;
    case quant::Granularity::block128x128:
      return gemm::ScaleBlocks::block128x128;
    case quant::Granularity::block1x32:
      return gemm::ScaleBlocks::block1x32;
    case quant::Granularity::none:
    case quant::Granularity::tensor:
    case quant::Granularity::row:
      break;
  }
  return gemm::ScaleBlocks::none;
}

// An operand of the engine. With f32 activations and f32 accumulation on the host, FP8 values are divided by their
// scale in f32 before the GEMM, like in PyTorch's emulation: scaling the sums of codes differs in the last digits, and
// a rounding tie turns that into another code in a later layer. Memory from the arena.
gemm::Operand operand(const Call& call, const Quantized& q) {
  const bool emulates_torch = q.granularity != quant::Granularity::none && call.activation == DType::f32 &&
                              call.precision.accumulation == gemm::Accumulation::f32;
  if (emulates_torch && call.ctx.device == device::DeviceType::host)
    return {quant::dequantize(call.ctx, q), q.format, {}};
  if (q.folded) return {q.codes, q.format, {}};
  const gemm::ScaleBlocks blocks = blocks_of(q.granularity);
  const bool turned = blocks != gemm::ScaleBlocks::none && q.contract == ContractionAxis::first;
  return {q.codes, q.format, turned ? q.inverse_scale.transposed() : q.inverse_scale, blocks};
}

gemm::Operand transposed(gemm::Operand o) {
  o.matrix = o.matrix.transposed();
  return o;
}

// Whether a GEMM of this part in the pass is FP8.
bool fp8_in(const Part& p, Pass pass) {
  return p.fp8 && (pass == Pass::backward ? p.gemms.dgrad || p.gemms.wgrad : p.gemms.forward);
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

// dy of a part for dgrad and wgrad, and the matrix that was cast for dgrad.
struct Gradient {
  View dy, dgrad_source;
  quant::QuantizedPair codes;
};

Gradient cast_gradient(const Context& ctx, const LinearPrecision& precision, const View& dy, const Operand& w,
                       const quant::CastPair& casts, const quant::KnownScale& known, const View& amax) {
  const quant::CastOptions options = activation_options(ctx, precision, dy, casts.last.fp8() ? casts.last : casts.first,
                                                        known, amax, by_rows(precision, w.part, 1));
  if (w.folded.empty() || !casts.last.fp8()) return {dy, dy, quant::quantize_both(ctx, dy, casts, options)};
  const View folded = quant::scale_columns(ctx, dy, w.folded);
  quant::CastOptions of_folded = options;
  of_folded.amax = {};
  return {dy,
          folded,
          {quant::quantize(ctx, folded, casts.last, ContractionAxis::last, of_folded),
           quant::quantize(ctx, dy, casts.first, ContractionAxis::first, options)}};
}

// The factors of n columns of x and of the weight.
View factors_of(const LinearPrecision& precision, std::int64_t n) {
  const TensorParallel& tp = precision.tensor_parallel;
  const std::int64_t first = tp.axis == 1 ? tp.first_column : 0;
  return precision.column_factors.rows(first, first + n);
}

// The matrix with its columns divided by their factors.
View divide_columns(const Context& ctx, const View& matrix, const LinearPrecision& precision) {
  return quant::scale_columns(ctx, matrix, quant::reciprocals(ctx, factors_of(precision, matrix.shape[1])));
}

// Whether the casts of forward are of matrices whose columns were multiplied.
bool multiplies_columns(const LinearPrecision& precision, bool backward) {
  return !backward && !precision.column_factors.empty();
}

// x for the GEMMs of all parts: cast once for those that are FP8 in the GEMM forward or wgrad, itself for the others.
class Input {
 public:
  Input(const Context& ctx, const Weight& weight, const View& x, const Cast& cast, ContractionAxis contract,
        const View& amax)
      : backward_(contract == ContractionAxis::first), high_{}, fp8_{} {
    if (x.empty()) return;
    fp8_ = high_ = quant::quantize(ctx, x, {}, contract, {});
    if (std::ranges::none_of(weight.operands, [this](const Operand& o) { return casts(o.part); })) return;
    const LinearPrecision& precision = weight.precision;
    const bool multiplied = multiplies_columns(precision, backward_);
    const View from = multiplied ? quant::scale_columns(ctx, x, factors_of(precision, x.shape[1])) : x;
    fp8_ = quant::quantize(ctx, from, cast, contract,
                           activation_options(ctx, precision, from, cast, weight.known.x, multiplied ? View{} : amax,
                                              by_columns(precision)));
  }
  // x that was cast before; all parts read the codes.
  Input(const Context& ctx, const Weight& weight, const InputCodes& x, ContractionAxis contract)
      : backward_(contract == ContractionAxis::first),
        high_{},
        fp8_(quant::from_bytes(ctx, x.bytes, x.format, contract, x.scale, x.inverse_scale,
                               weight.precision.options.emulate)) {}
  const Quantized& of(const Part& part) const { return casts(part) ? fp8_ : high_; }

 private:
  bool casts(const Part& part) const { return part.fp8 && (backward_ ? part.gemms.wgrad : part.gemms.forward); }
  bool backward_;
  Quantized high_, fp8_;
};

// The amax of x; of the whole if tensor parallelism divides x.
void measure(const Context& ctx, const Weight& weight, const View& x, const View& amax, bool skip_nan) {
  quant::amax(ctx, x, quant::Granularity::tensor, ContractionAxis::last, amax, skip_nan);
  const quant::Split split = by_columns(weight.precision);
  if (split.ranks != nullptr && !ctx.dry) split.ranks->reduce(ctx, amax);
}

// Passes the FP8 GEMMs of one call to the observer, if there is one.
class Observation {
 public:
  Observation(const Call& call, const View& x) : call_(call), x_(x), observer_(observer_of(call.precision)) {}

  // `result` as in ObservedGemm.
  void forward(const Quantized& x, const Operand& w, const View& result) {
    observe({gemm::GemmRole::forward, w, x, x_, w.codes, w.source, x_, result, repeats_});
    repeats_ = true;
  }
  void dgrad(const Gradient& dy, const Operand& w, const View& result) const {
    observe({gemm::GemmRole::dgrad, w, dy.codes.last, dy.dgrad_source, w.codes, w.source, dy.dy, result});
  }
  void wgrad(const Gradient& dy, const Quantized& x, const Operand& w, const View& result) {
    observe({gemm::GemmRole::wgrad, w, dy.codes.first, dy.dy, x, x_, dy.dy, result, repeats_});
    repeats_ = true;
  }

 private:
  void observe(const ObservedGemm& gemm) const {
    const bool fp8 = gemm.a.granularity != quant::Granularity::none && gemm.b.granularity != quant::Granularity::none;
    if (observer_ == nullptr || !fp8) return;
    const device::Scope scope(*call_.ctx.arena);
    observer_->observe(call_, gemm);
  }
  const Call& call_;
  View x_;
  Observer* observer_;
  bool repeats_ = false;  // x was observed in this call
};

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

void forward(const Call& call, const Quantized& x, const Operand& w, const View& bias, const View& y) {
  const bool fast = w.part.fp8 && recipe_of(call.precision).fast_accumulation;
  call.engine.matmul(call.ctx, operand(call, x), transposed(operand(call, w.codes)), y,
                     {.role = gemm::GemmRole::forward,
                      .fast_accumulation = fast,
                      .bias = bias,
                      .accumulation = call.precision.accumulation});
}

void dgrad(const Call& call, const Quantized& dy, const Operand& w, const View& dx, bool accumulate) {
  call.engine.matmul(
      call.ctx, operand(call, dy), operand(call, w.codes), dx,
      {.role = gemm::GemmRole::dgrad, .accumulate = accumulate, .accumulation = call.precision.accumulation});
}

void wgrad(const Call& call, const Quantized& dy, const Quantized& x, const View& dw, bool accumulate) {
  call.engine.matmul(
      call.ctx, transposed(operand(call, dy)), operand(call, x), dw,
      {.role = gemm::GemmRole::wgrad, .accumulate = accumulate, .accumulation = call.precision.accumulation});
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
  if (has_scale(known.x)) use.x = false;
  if (!known.dy.empty() && std::ranges::all_of(known.dy, has_scale)) use.dy = false;
  return use;
}

NeededAmaxes needed_amaxes(const Weight& weight) { return needed_amaxes(weight.precision, weight.parts, weight.known); }

namespace {

// y of all parts.
void forward_parts(const Call& call, const Weight& weight, const Input& input, const View& x, const View& y) {
  Observation observation(call, x);
  for (const Operand& w : weight.operands) {
    const device::Scope part_scope(*call.ctx.arena);
    const View bias = weight.bias.empty() ? View{} : weight.bias.rows(w.part.begin, w.part.end);
    const View part_y = y.columns(w.part.begin, w.part.end);
    forward(call, input.of(w.part), w, bias, part_y);
    observation.forward(input.of(w.part), w, bias.empty() ? part_y : View{});
  }
}

const Cast& input_cast(const quant::Recipe& recipe, Pass pass) {
  return pass == Pass::backward ? recipe.wgrad.x : recipe.forward.x;
}

}  // namespace

bool reads_codes(const Weight& weight, Pass pass, const View& amax) {
  const LinearPrecision& precision = weight.precision;
  if (precision.recipe == nullptr || precision.amax_reducer != nullptr || observer_of(precision) != nullptr ||
      !precision.column_factors.empty() || !weight.adapters.empty())
    return false;
  const auto reads = [pass](const Part& p) {
    return p.fp8 && (pass == Pass::backward ? p.gemms.wgrad : p.gemms.forward);
  };
  return input_cast(*precision.recipe, pass).granularity == quant::Granularity::tensor &&
         (has_scale(weight.known.x) || !amax.empty()) && std::ranges::all_of(weight.parts, reads);
}

namespace {

// Whether the results need no more than x, dy and the weight of the rows and GEMMs at hand.
bool is_plain(const Weight& weight) {
  const LinearPrecision& precision = weight.precision;
  return weight.adapters.empty() && observer_of(precision) == nullptr && precision.amax_reducer == nullptr &&
         precision.column_factors.empty();
}

// Whether a scale is known before a cast: by itself or by the amax.
bool scale_is_given(const quant::KnownScale& known, const View& amax) {
  return has_scale(known) || (known.scale.empty() && !amax.empty());
}

// Whether all FP8 parts have given scales of dy.
bool scales_of_dy_are_given(const Weight& weight, const View& amax) {
  return std::ranges::all_of(weight.parts, [&](const Part& p) {
    return !fp8_in(p, Pass::backward) || scale_is_given(known_for(weight.known.dy, weight.parts, p.begin), amax);
  });
}

}  // namespace

bool rows_are_apart(const Weight& weight, Pass pass, const View& amax) {
  const TensorParallel& tp = weight.precision.tensor_parallel;
  const bool backward = pass == Pass::backward, divided = tp.ranks != nullptr && (tp.axis == 1) != backward;
  if (!is_plain(weight) || divided) return false;
  const quant::Recipe& recipe = recipe_of(weight.precision);
  const quant::Granularity granularity = (backward ? recipe.dgrad.dy : recipe.forward.x).granularity;
  if (granularity != quant::Granularity::tensor) return quant::block_extent(granularity).across <= 1;
  return backward ? scales_of_dy_are_given(weight, amax) : scale_is_given(weight.known.x, amax);
}

bool gemms_are_apart(const Weight& weight, const View& amax_of_dy) {
  const quant::Recipe& recipe = recipe_of(weight.precision);
  const bool calibrates = weight.precision.recipe == nullptr && !weight.known.x.amax.empty();  // reads x
  const bool one_scale = recipe.dgrad.dy.granularity == quant::Granularity::tensor ||
                         recipe.wgrad.dy.granularity == quant::Granularity::tensor;
  return is_plain(weight) && !calibrates && (!one_scale || scales_of_dy_are_given(weight, amax_of_dy));
}

InputCodes cast_rows(const Context& ctx, const Weight& weight, Pass pass, const View& rows, const View& amax) {
  const LinearPrecision& precision = weight.precision;
  InputCodes codes{tensor::allocate(ctx, DType::u8, {rows.shape[0], rows.shape[1]}, "fp8 codes"), weight.known.x.scale,
                   weight.known.x.inverse_scale, input_cast(*precision.recipe, pass).format, rows.dtype};
  if (!has_scale(weight.known.x)) {
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

void forward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const InputCodes& x, const View& y) {
  const device::Scope scope(*ctx.arena);
  forward_parts({ctx, engine, weight.precision, x.activation}, weight, {ctx, weight, x, ContractionAxis::last}, {}, y);
}

void forward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const View& x, const View& y,
             const StoredAmax& amax) {
  const device::Scope scope(*ctx.arena);
  const Call call{ctx, engine, weight.precision, x.dtype};
  if (const NeededAmaxes use = needed_amaxes(weight); use.x && !amax.value.empty() && !amax.known)
    measure(ctx, weight, x, amax.value, use.skip_nan);
  const Input input(ctx, weight, x, recipe_of(weight.precision).forward.x, ContractionAxis::last, amax.value);
  if (weight.precision.recipe == nullptr) calibrate(ctx, x, weight.known.x);
  forward_parts(call, weight, input, x, y);
  for (const Adapter& adapter : weight.adapters) forward(ctx, engine, adapter, x, y);
}

namespace {

// The precision for the cast of dy of a part. If dgrad and wgrad read the same codes, calls for dx have counted them.
LinearPrecision precision_of_dy(const Weight& weight, const Part& part, const Gradients& gradients) {
  LinearPrecision precision = weight.precision;
  const quant::Recipe& recipe = recipe_of(precision);
  const bool shared = part.fp8 && part.gemms.dgrad && quant::CastPair{recipe.dgrad.dy, recipe.wgrad.dy}.shared();
  if (gradients.after_dx && shared) precision.options.counts = nullptr;
  return precision;
}

// Gradients with x for wgrad as `input`; x itself is empty if it came as codes.
void backward_parts(const Context& ctx, gemm::Engine& engine, const Weight& weight, const Input& input, const View& x,
                    const View& dy, const Gradients& gradients, const KnownAmaxes& amaxes) {
  const Call call{ctx, engine, weight.precision, dy.dtype};
  const quant::Recipe& recipe = recipe_of(weight.precision);
  const bool want_dx = !gradients.dx.empty(), want_dw = !gradients.dw.empty();
  // dx is the sum of the dgrads of parts and adapters, in f32 whatever its type.
  const bool sum_apart =
      want_dx && weight.operands.size() + weight.adapters.size() > 1 && gradients.dx.dtype != DType::f32;
  const View dx =
      sum_apart ? tensor::allocate(ctx, DType::f32, {dy.shape[0], gradients.dx.shape[1]}, "scratch") : gradients.dx;
  const KnownScales& known = weight.known;
  for (std::size_t p = 0; p < known.dy.size() && weight.precision.recipe == nullptr; ++p)
    calibrate(ctx, dy.columns(weight.parts[p].begin, weight.parts[p].end), known.dy[p]);
  if (weight.precision.recipe == nullptr) calibrate(ctx, x, known.x);
  const auto dy_casts = [&](const Part& part) {
    const bool dgrad = want_dx && part.fp8 && part.gemms.dgrad, wgrad = want_dw && part.fp8 && part.gemms.wgrad;
    return quant::CastPair{dgrad ? recipe.dgrad.dy : Cast{}, wgrad ? recipe.wgrad.dy : Cast{}};
  };
  Observation observation(call, x);
  for (const Operand& w : weight.operands) {
    const device::Scope part_scope(*ctx.arena);
    const Gradient gradient = cast_gradient(
        ctx, precision_of_dy(weight, w.part, gradients), dy.columns(w.part.begin, w.part.end), w, dy_casts(w.part),
        known_for(known.dy, weight.parts, w.part.begin), amax_of(amaxes.dy, weight.parts, w.part.begin));
    if (want_dx) {
      const bool add = &w != weight.operands.data();
      dgrad(call, gradient.codes.last, w, dx, add);
      observation.dgrad(gradient, w, add ? View{} : dx);
    }
    if (want_dw) {
      const View dw = gradients.dw.rows(w.part.begin, w.part.end);
      wgrad(call, gradient.codes.first, input.of(w.part), dw, gradients.accumulate);
      observation.wgrad(gradient, input.of(w.part), w, gradients.accumulate ? View{} : dw);
    }
  }
  backward_adapters(ctx, engine, weight.adapters, x, dy, dx, gradients);
  if (sum_apart) ops::copy(ctx, dx, gradients.dx);
  if (!gradients.db.empty()) ops::bias_backward(ctx, dy, gradients.db);
}

}  // namespace

void backward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const View& x, const View& dy,
              const Gradients& gradients, const KnownAmaxes& amaxes) {
  const device::Scope scope(*ctx.arena);
  const Cast cast = gradients.dw.empty() ? Cast{} : recipe_of(weight.precision).wgrad.x;
  backward_parts(ctx, engine, weight, {ctx, weight, x, cast, ContractionAxis::first, amaxes.x}, x, dy, gradients,
                 amaxes);
}

void backward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const InputCodes& x, const View& dy,
              const Gradients& gradients, const KnownAmaxes& amaxes) {
  const device::Scope scope(*ctx.arena);
  backward_parts(ctx, engine, weight, {ctx, weight, x, ContractionAxis::first}, {}, dy, gradients, amaxes);
}

gemm::Count planned_fp8(const std::vector<Part>& parts, std::int64_t k, const quant::Recipe& recipe, std::int64_t m,
                        bool backward) {
  gemm::Count count;
  for (const Part& p : parts) {
    if (!p.fp8) continue;
    const int each = recipe.fp8_gemms(backward ? p.gemms : quant::GemmSet{p.gemms.forward, false, false});
    count.gemms += each;
    count.flops += 2.0 * each * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(p.end - p.begin);
  }
  return count;
}

}  // namespace fp8::linear
