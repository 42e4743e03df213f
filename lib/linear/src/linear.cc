// Casts of the operands by the recipe's table, and the three GEMMs of a linear layer. The loops of casts are in quant,
// those of GEMMs in gemm.
#include "fp8/linear/linear.h"

#include <algorithm>

#include "adapter.h"
#include "fp8/base/round.h"
#include "fp8/device/profile.h"
#include "fp8/linear/codes.h"
#include "fp8/linear/observer.h"
#include "fp8/linear/produced.h"
#include "fp8/ops/elementwise.h"
#include "fp8/ops/norm.h"
#include "fp8/quant/fold.h"
#include "fp8/quant/groups.h"
#include "fp8/quant/scale.h"
#include "layers.h"
#include "operands.h"
#include "precision.h"

namespace fp8::linear {
namespace {

using dtype::DType;
using quant::Cast;
using quant::ContractionAxis;
using quant::Quantized;

// An operand of the engine. With f32 activations and f32 accumulation on the host, FP8 values are divided by their
// scale in f32 before the GEMM, like in PyTorch's emulation: scaling the sums of codes differs in the last digits, and
// a rounding tie turns that into another code in a later layer. FP4 codes are multiplied, as its definition has
// it. Memory from the arena.
gemm::Operand operand(const Call& call, const Quantized& q) {
  const bool emulates_torch = q.granularity != quant::Granularity::none && call.activation == DType::f32 &&
                              call.precision.accumulation == gemm::Accumulation::f32 && !is_fp4(q.format);
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

// dy of a part for dgrad and wgrad, and the matrix that was cast for dgrad.
struct Gradient {
  View dy, dgrad_source;
  quant::QuantizedPair codes;
};

Gradient cast_gradient(const Context& ctx, const LinearPrecision& precision, const View& dy, const Operand& w,
                       const quant::CastPair& casts, const quant::KnownScale& known, const View& amax) {
  quant::CastOptions options = activation_options(ctx, precision, dy, casts.last.fp8() ? casts.last : casts.first,
                                                  known, amax, by_rows(precision, w.part, 1));
  options.random.stream += 2 * static_cast<std::uint64_t>(std::max(w.part.number, 0));
  if (w.folded.empty() || !casts.last.fp8()) return {dy, dy, quant::quantize_both(ctx, dy, casts, options)};
  const View folded = quant::scale_columns(ctx, dy, w.folded);
  quant::CastOptions of_folded = options;
  of_folded.amax = {};
  return {dy,
          folded,
          {quant::quantize(ctx, folded, casts.last, ContractionAxis::last, of_folded),
           quant::quantize(ctx, dy, casts.first, ContractionAxis::first, options)}};
}

// Passes the FP8 GEMMs of one call to the observer, if there is one.
class Observation {
 public:
  Observation(const Call& call, const View& x) : call_(call), x_(x), observer_(active_observer(call.precision)) {}

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

// The GEMMs of a part, and their options.
gemm::Product forward_product(const Call& call, const Quantized& x, const Operand& w, const View& bias, const View& y) {
  return {operand(call, x), transposed(operand(call, w.codes)), y, bias};
}
gemm::Product dgrad_product(const Call& call, const Quantized& dy, const Operand& w, const View& dx) {
  return {operand(call, dy), operand(call, w.codes), dx};
}
gemm::Product wgrad_product(const Call& call, const Quantized& dy, const Quantized& x, const View& dw,
                            std::int64_t rows) {
  return {transposed(operand(call, dy)), operand(call, x), dw, {}, dy.codes.shape[0] - rows};
}
gemm::MatmulOptions options_of(const Call& call, gemm::GemmRole role, const Part& part, bool accumulate) {
  const bool fast = role == gemm::GemmRole::forward && part.fp8 && recipe_of(call.precision).fast_accumulation;
  return {
      .role = role, .accumulate = accumulate, .fast_accumulation = fast, .accumulation = call.precision.accumulation};
}

}  // namespace

void multiply_again(const Call& call, const ObservedGemm& gemm, const View& product) {
  gemm::Product again{operand(call, gemm.a), operand(call, gemm.b), product};
  if (gemm.role == gemm::GemmRole::forward) again.b = transposed(again.b);
  if (gemm.role == gemm::GemmRole::wgrad) again.a = transposed(again.a);
  call.engine.matmul(call.ctx, std::span(&again, 1), options_of(call, gemm.role, gemm.weight.part, false));
}

namespace {

// The rows of one layer in forward: x as its GEMMs read it, x itself (empty if they read codes alone), y, and the bias
// that is added to it.
struct ForwardRows {
  const Weight* weight;
  PassInput input;
  View x, y, bias;
};

// y of all parts of all layers.
void forward_parts(const Call& call, std::span<const ForwardRows> layers) {
  Observation observation(call, layers.front().x);
  for (std::size_t i = 0; i < layers.front().weight->operands.size(); ++i) {
    const device::Scope part_scope(*call.ctx.arena);
    std::vector<gemm::Product> products;
    for (const ForwardRows& l : layers) {
      const Operand& w = l.weight->operands[i];
      const View bias = l.bias.empty() ? View{} : l.bias.rows(w.part.begin, w.part.end);
      products.push_back(forward_product(call, l.input.of(w.part), w, bias, l.y.columns(w.part.begin, w.part.end)));
    }
    const Part& part = layers.front().weight->operands[i].part;
    call.engine.matmul(call.ctx, products, options_of(call, gemm::GemmRole::forward, part, false));
    for (std::size_t l = 0; l < layers.size(); ++l)
      observation.forward(layers[l].input.of(part), layers[l].weight->operands[i],
                          products[l].bias.empty() ? products[l].c : View{});
  }
}

}  // namespace

void forward_codes(const Context& ctx, gemm::Engine& engine, const Weight& weight, const InputCodes& x, const View& y) {
  const device::Scope scope(*ctx.arena);
  forward(ctx, engine, weight, input_of_codes(ctx, weight, x, Pass::forward), y);
}

void forward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const Input& x, const View& y,
             const ForwardOptions& options) {
  const device::Scope scope(*ctx.arena);
  const View bias = options.bias ? weight.bias : View{};
  const bool casts = x.rows.codes.empty() && !x.values.empty();
  const Input input = casts ? cast_input(ctx, weight, x.values, options, nullptr) : x;
  const ForwardRows rows{&weight, {ctx, input, Pass::forward}, x.values, y, bias};
  forward_parts({ctx, engine, weight.precision, x.activation}, std::span(&rows, 1));
  for (const Adapter& adapter : weight.adapters) add_adapter(ctx, engine, adapter, x.values, y);
}

void forward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const View& x, const View& y,
             const ForwardOptions& options) {
  forward(ctx, engine, weight, values_of(x), y, options);
}

namespace {

// Known scales of one operand of all groups; empty if there are none.
template <class Of>
std::vector<quant::KnownScale> known_of(const Groups& groups, Of of) {
  std::vector<quant::KnownScale> known;
  for (const Weight& weight : groups.weights) known.push_back(of(weight));
  if (known.front().scale.empty()) known.clear();
  return known;
}

// Whether casts of several layers can be those of groups. Calls of their observer, and of reducers of amaxes, are for
// one layer.
bool casts_together(const Context& ctx, const Groups& groups, const View& rows) {
  const LinearPrecision& precision = groups.weights.front().precision;
  return groups.weights.size() > 1 && ctx.device == device::DeviceType::cuda && rows.dtype == DType::bf16 &&
         active_observer(precision) == nullptr && precision.amax_reducer == nullptr &&
         precision.tensor_parallel.ranks == nullptr;
}

// Number of the group of a layer.
template <class Layer>
std::size_t group_of(const Groups& groups, const Layer& l) {
  return static_cast<std::size_t>(l.weight - groups.weights.data());
}

}  // namespace

std::vector<quant::KnownScale> known_x(const Groups& groups) {
  return known_of(groups, [](const Weight& weight) { return weight.known.x; });
}

std::vector<quant::KnownScale> known_dy(const Groups& groups, const Part& part) {
  return known_of(groups, [&](const Weight& w) { return known_for(w.known.dy, w.parts, part.begin); });
}

std::vector<quant::KnownScale> known_later(const Context& ctx, const Groups& groups, const Part& part) {
  std::vector<quant::KnownScale> known = known_dy(groups, part);
  if (device::plans_memory(ctx))
    for (quant::KnownScale& k : known) k.own_amax = false;
  return known;
}

bool forward_runs_together(const Context& ctx, const Groups& groups, const View& x) {
  if (groups.weights.empty() || !casts_together(ctx, groups, x)) return false;
  const Weight& weight = groups.weights.front();
  const Cast cast = cast_of_x(weight, Pass::forward);
  return !(cast.fp8() && multiplies_columns(weight.precision, false)) &&
         quant::casts_groups(ctx, x.dtype, x.shape[1], {.last = cast, .first = {}}, cast_options(weight.precision, {}),
                             known_x(groups));
}

bool keeps_codes(const Context& ctx, std::span<const Weight> weights, const View& x) {
  const Groups groups{weights, {}};
  if (weights.empty() || !casts_together(ctx, groups, x)) return false;
  const Weight& weight = weights.front();
  return std::ranges::all_of(weights, [&](const Weight& w) { return forms_kept(ctx, w, x).columns; }) &&
         quant::keeps_groups(ctx, x, std::ssize(weights), casts_of_x(weight, true), cast_options(weight.precision, {}),
                             known_x(groups));
}

std::vector<quant::QuantizedPair> cast_groups(const Context& ctx, const Groups& groups, const View& x,
                                              const quant::KeptGroups& keep) {
  const Weight& first = groups.weights.front();
  return quant::quantize_groups(ctx, x, groups.first, casts_of_x(first, keep.memory != nullptr),
                                cast_options(first.precision, {}), known_x(groups), keep);
}

void forward_layers(const Context& ctx, gemm::Engine& engine, const Groups& groups,
                    std::span<const ForwardLayer> layers, std::span<const quant::QuantizedPair> codes) {
  if (layers.empty()) return;
  const device::Scope scope(*ctx.arena);
  std::vector<ForwardRows> rows;
  for (const ForwardLayer& l : layers) {
    if (l.weight->precision.recipe == nullptr) calibrate(ctx, l.x, l.weight->known.x);
    const Input input{l.x, codes[group_of(groups, l)].last};
    rows.push_back({l.weight, {ctx, input, Pass::forward}, l.x, l.y, l.weight->bias});
  }
  forward_parts({ctx, engine, layers.front().weight->precision, layers.front().y.dtype}, rows);
  for (const ForwardLayer& l : layers)
    for (const Adapter& adapter : l.weight->adapters) add_adapter(ctx, engine, adapter, l.x, l.y);
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

// The rows of one layer in backward: x as wgrad reads it, x itself (empty if there are codes alone), dy, the results,
// and dx as the GEMMs write it.
struct BackwardRows {
  const Weight* weight;
  PassInput input;
  View x, dy;
  Gradients gradients;
  KnownAmaxes amaxes{};
  View dx{};
  std::span<const quant::ProducedCodes>
      codes{};  // of dy for each part, which then has a shape alone; empty: dy is cast

  bool want_dx() const { return !gradients.dx.empty(); }
  bool want_dw() const { return !gradients.dw.empty(); }
  // dx is the sum of the dgrads of parts and adapters, in f32 whatever its type.
  bool sums_apart() const {
    return want_dx() && weight->operands.size() + weight->adapters.size() > 1 && gradients.dx.dtype != DType::f32;
  }
};

// Records amaxes without casts.
void begin_backward(const Context& ctx, const BackwardRows& l) {
  const KnownScales& known = l.weight->known;
  if (l.weight->precision.recipe != nullptr) return;
  for (std::size_t p = 0; p < known.dy.size(); ++p)
    calibrate(ctx, l.dy.columns(l.weight->parts[p].begin, l.weight->parts[p].end), known.dy[p]);
  calibrate(ctx, l.x, known.x);
}

// dy of part i.
Gradient cast_part(const Context& ctx, const BackwardRows& l, std::size_t i) {
  const Weight& weight = *l.weight;
  const Operand& w = weight.operands[i];
  if (!l.codes.empty()) return {{}, {}, l.codes[i].codes};
  return cast_gradient(ctx, precision_of_dy(weight, w.part, l.gradients), l.dy.columns(w.part.begin, w.part.end), w,
                       casts_of_dy(weight, w.part, l.gradients), known_for(weight.known.dy, weight.parts, w.part.begin),
                       amax_of(l.amaxes.dy, weight.parts, w.part.begin));
}

// Layers that have groups of the rows of dy, or of its codes for each part.
struct GroupedGradient {
  const Groups& groups;
  View dy;
  std::span<const quant::ProducedGroups> codes;

  // dy of part i of the layers.
  std::vector<Gradient> cast_part(const Context& ctx, std::span<const BackwardRows> layers, std::size_t i) const {
    std::vector<Gradient> all;
    if (!codes.empty()) {
      for (const BackwardRows& l : layers) all.push_back({{}, {}, codes[i].codes[group_of(groups, l)]});
      return all;
    }
    const BackwardRows& one = layers.front();
    const Part& part = one.weight->operands[i].part;
    const std::vector<quant::QuantizedPair> cast = quant::quantize_groups(
        ctx, dy.columns(part.begin, part.end), groups.first, casts_of_dy(*one.weight, part, one.gradients),
        cast_options(precision_of_dy(*one.weight, part, one.gradients), {}), known_dy(groups, part));
    for (const BackwardRows& l : layers) {
      const View own = l.dy.columns(part.begin, part.end);
      all.push_back({own, own, cast[group_of(groups, l)]});
    }
    return all;
  }
};

// The GEMMs of part i of all layers, which are one layer or have groups.
void backward_part(const Call& call, std::span<const BackwardRows> layers, const GroupedGradient* grouped,
                   std::size_t i, Observation& observation) {
  const Part& part = layers.front().weight->operands[i].part;
  const bool add = i > 0, accumulate = layers.front().gradients.accumulate;
  const std::vector<Gradient> gradients = grouped != nullptr ? grouped->cast_part(call.ctx, layers, i)
                                                             : std::vector{cast_part(call.ctx, layers.front(), i)};
  std::vector<gemm::Product> dgrads, wgrads;
  for (std::size_t g = 0; g < layers.size(); ++g) {
    const BackwardRows& l = layers[g];
    if (l.want_dx()) dgrads.push_back(dgrad_product(call, gradients[g].codes.last, l.weight->operands[i], l.dx));
    if (l.want_dw())
      wgrads.push_back(wgrad_product(call, gradients[g].codes.first, l.input.of(part),
                                     l.gradients.dw.rows(part.begin, part.end), l.dy.shape[0]));
  }
  call.engine.matmul(call.ctx, dgrads, options_of(call, gemm::GemmRole::dgrad, part, add));
  for (std::size_t g = 0; g < dgrads.size(); ++g)
    observation.dgrad(gradients[g], layers[g].weight->operands[i], add ? View{} : dgrads[g].c);
  call.engine.matmul(call.ctx, wgrads, options_of(call, gemm::GemmRole::wgrad, part, accumulate));
  for (std::size_t g = 0; g < wgrads.size(); ++g)
    observation.wgrad(gradients[g], layers[g].input.of(part), layers[g].weight->operands[i],
                      accumulate ? View{} : wgrads[g].c);
}

// Memory for dx of all layers, whose rows are adjacent. Returns the sums of all of them, or nothing if the GEMMs write
// Gradients::dx.
View provide_dx(const Context& ctx, std::span<BackwardRows> layers) {
  if (!layers.front().sums_apart()) {
    for (BackwardRows& l : layers) l.dx = l.gradients.dx;
    return {};
  }
  std::int64_t rows = 0;
  for (const BackwardRows& l : layers) rows += l.dy.shape[0];
  const View sums = tensor::allocate(ctx, DType::f32, {rows, layers.front().gradients.dx.shape[1]}, "scratch");
  std::int64_t begin = 0;
  for (BackwardRows& l : layers) {
    l.dx = sums.rows(begin, begin + l.dy.shape[0]);
    begin += l.dy.shape[0];
  }
  return sums;
}

// Rounds the sums of all layers.
void round_dx(const Context& ctx, const View& sums, std::span<const BackwardRows> layers) {
  if (sums.rank == 0) return;
  View dx = layers.front().gradients.dx;
  dx.shape[0] = sums.shape[0];
  ops::copy(ctx, sums, dx);
}

void backward_parts(const Call& call, std::span<BackwardRows> layers, const GroupedGradient* grouped) {
  const Context& ctx = call.ctx;
  const View sums = provide_dx(ctx, layers);
  for (const BackwardRows& l : layers) begin_backward(ctx, l);
  Observation observation(call, layers.front().x);
  for (std::size_t i = 0; i < layers.front().weight->operands.size(); ++i) {
    const device::Scope part_scope(*ctx.arena);
    backward_part(call, layers, grouped, i, observation);
  }
  for (const BackwardRows& l : layers) {
    backward_adapters(ctx, call.engine, l.weight->adapters, l.x, l.dy, l.dx, l.gradients);
    if (!l.gradients.db.empty()) ops::bias_backward(ctx, l.dy, l.gradients.db);
  }
  round_dx(ctx, sums, layers);
}

// The cast of x for wgrad in groups.
Cast cast_for_wgrad(const Weight& weight, const Gradients& wanted) {
  return wanted.dw.empty() ? Cast{} : cast_of_x(weight, Pass::backward);
}

// The rows of one layer, with the cast of x for wgrad if it has not been cast before.
BackwardRows backward_rows(const Context& ctx, const Weight& weight, const Input& x, const View& dy,
                           const Gradients& gradients, const KnownAmaxes& amaxes) {
  Input input = x;
  if (!gradients.dw.empty() && x.columns.codes.empty() && !x.values.empty())
    input.columns = cast_for_wgrad(ctx, weight, x.values, amaxes.x);
  return {&weight, {ctx, input, Pass::backward}, x.values, dy, gradients, amaxes};
}

}  // namespace

void backward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const View& x, const View& dy,
              const Gradients& gradients, const KnownAmaxes& amaxes) {
  backward(ctx, engine, weight, values_of(x), dy, gradients, amaxes);
}

void backward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const Input& x, const View& dy,
              const Gradients& gradients, const KnownAmaxes& amaxes) {
  const device::Scope scope(*ctx.arena);
  BackwardRows rows = backward_rows(ctx, weight, x, dy, gradients, amaxes);
  backward_parts({ctx, engine, weight.precision, dy.dtype}, std::span(&rows, 1), nullptr);
}

void backward_codes(const Context& ctx, gemm::Engine& engine, const Weight& weight, const InputCodes& x, const View& dy,
                    const Gradients& gradients, const KnownAmaxes& amaxes) {
  const device::Scope scope(*ctx.arena);
  backward(ctx, engine, weight, input_of_codes(ctx, weight, x, Pass::backward), dy, gradients, amaxes);
}

void backward(const Context& ctx, gemm::Engine& engine, const Weight& weight, const Input& x,
              std::span<const quant::ProducedCodes> dy, const Gradients& gradients, const KnownAmaxes& amaxes) {
  const device::Scope scope(*ctx.arena);
  const quant::QuantizedPair& first = dy.front().codes;
  const std::int64_t m = (first.last.codes.empty() ? first.first : first.last).codes.shape[0];
  const View shape = tensor::make_view(nullptr, DType::bf16, ctx.device, {m, weight.operands.back().part.end});
  BackwardRows rows = backward_rows(ctx, weight, x, shape, gradients, amaxes);
  rows.codes = dy;
  backward_parts({ctx, engine, weight.precision, DType::bf16}, std::span(&rows, 1), nullptr);
}

bool backward_runs_together(const Context& ctx, const Groups& groups, const GroupInput& x, const View& dy,
                            const Gradients& gradients) {
  if (groups.weights.empty() || !casts_together(ctx, groups, dy)) return false;
  const Weight& weight = groups.weights.front();
  const quant::CastOptions options = cast_options(weight.precision, {});
  const auto casts = [&](std::int64_t columns, const quant::CastPair& pair, std::span<const quant::KnownScale> known) {
    return quant::casts_groups(ctx, dy.dtype, columns, pair, options, known);
  };
  for (const Operand& o : weight.operands)
    if (!o.folded.empty() ||
        !casts(o.part.end - o.part.begin, casts_of_dy(weight, o.part, gradients), known_dy(groups, o.part)))
      return false;
  return gradients.dw.empty() || !x.columns.empty() ||
         casts(gradients.dw.shape[1], {.last = {}, .first = cast_for_wgrad(weight, gradients)}, known_x(groups));
}

void backward_layers(const Context& ctx, gemm::Engine& engine, const Groups& groups, const GroupInput& x,
                     const View& dy, std::span<const BackwardLayer> layers,
                     std::span<const quant::ProducedGroups> codes_of_dy) {
  if (layers.empty()) return;
  const device::Scope scope(*ctx.arena);
  const Weight& first = groups.weights.front();
  std::vector<quant::QuantizedPair> codes;
  if (x.columns.empty())
    codes = quant::quantize_groups(ctx, x.values, groups.first,
                                   {.last = {}, .first = cast_for_wgrad(first, layers.front().gradients)},
                                   cast_options(first.precision, {}), known_x(groups));
  std::vector<BackwardRows> rows;
  for (const BackwardLayer& l : layers) {
    Input input = l.x;
    if (!codes.empty()) input.columns = codes[group_of(groups, l)].first;
    rows.push_back({l.weight, {ctx, input, Pass::backward}, l.x.values, l.dy, l.gradients});
  }
  const GroupedGradient grouped{groups, dy, codes_of_dy};
  backward_parts({ctx, engine, first.precision, dy.dtype}, rows, &grouped);
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
