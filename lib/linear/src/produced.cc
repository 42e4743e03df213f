// Casts of inputs and gradients that operations write as codes.
#include "fp8/linear/produced.h"

#include <algorithm>

#include "fp8/linear/observer.h"
#include "layers.h"
#include "operands.h"
#include "precision.h"

namespace fp8::linear {
namespace {

quant::CastOptions options_of_x(const Weight& weight, const View& amax) {
  quant::CastOptions options = cast_options(weight.precision, weight.known.x);
  options.amax = amax;
  options.split = by_columns(weight.precision);
  return options;
}

quant::CastOptions options_of_dy(const Weight& weight, const Part& part, const View& amaxes) {
  quant::CastOptions options = cast_options(weight.precision, known_for(weight.known.dy, weight.parts, part.begin));
  options.amax = amax_of(amaxes, weight.parts, part.begin);
  options.split = by_rows(weight.precision, part, 1);
  return options;
}

// Whether backward() reads codes alone of dy of all parts.
bool reads_codes_of_dy(const Weight& weight, const Gradients& wanted) {
  const LinearPrecision& precision = weight.precision;
  if (precision.recipe == nullptr || precision.amax_reducer != nullptr || active_observer(precision) != nullptr ||
      !weight.adapters.empty() || !wanted.db.empty())
    return false;
  return std::ranges::all_of(weight.operands, [&](const Operand& o) {
    const quant::CastPair casts = casts_of_dy(weight, o.part, wanted);
    return o.folded.empty() && casts.last.fp8() == !wanted.dx.empty() && casts.first.fp8() == !wanted.dw.empty();
  });
}

}  // namespace

bool can_write_input(const Context& ctx, const Weight& weight, const View& x, const View& amax, bool keeps) {
  const InputForms read = forms_read(weight, Pass::forward);
  return read.rows && !read.values && (!keeps || forms_kept(ctx, weight, x) == InputForms{.columns = true}) &&
         quant::can_produce(ctx, casts_of_x(weight, keeps), options_of_x(weight, amax));
}

ProducedInput begin_input(const Context& ctx, const Weight& weight, std::int64_t rows, std::int64_t columns,
                          const View& amax, device::PooledMemory* kept) {
  const quant::ProducedCodes codes =
      quant::begin_produced(ctx, rows, columns, casts_of_x(weight, kept != nullptr), options_of_x(weight, amax), kept);
  return {{.values = {}, .rows = codes.codes.last, .columns = codes.codes.first}, codes};
}

bool can_write_gradient(const Context& ctx, const Weight& weight, const Gradients& wanted, const View& amaxes) {
  return reads_codes_of_dy(weight, wanted) && std::ranges::all_of(weight.operands, [&](const Operand& o) {
           return quant::can_produce(ctx, casts_of_dy(weight, o.part, wanted), options_of_dy(weight, o.part, amaxes));
         });
}

bool can_write_input(const Context& ctx, std::span<const Weight> weights, const View& x, bool keeps) {
  const Groups groups{weights, {}};
  if (weights.empty() || !forward_runs_together(ctx, groups, x) || (keeps && !keeps_codes(ctx, weights, x)))
    return false;
  const Weight& weight = weights.front();
  return std::ranges::all_of(weights,
                             [](const Weight& w) {
                               const InputForms read = forms_read(w, Pass::forward);
                               return read.rows && !read.values;
                             }) &&
         quant::can_produce_groups(ctx, x.shape[1], std::ssize(weights), casts_of_x(weight, keeps),
                                   cast_options(weight.precision, {}), known_x(groups));
}

bool can_write_gradient(const Context& ctx, std::span<const Weight> weights, const GroupInput& x, const View& dy,
                        const Gradients& wanted) {
  const Groups groups{weights, {}};
  if (weights.empty() || !backward_runs_together(ctx, groups, x, dy, wanted)) return false;
  const Weight& weight = weights.front();
  return std::ranges::all_of(weights, [&](const Weight& w) { return reads_codes_of_dy(w, wanted); }) &&
         std::ranges::all_of(weight.operands, [&](const Operand& o) {
           return quant::can_produce_groups(ctx, o.part.end - o.part.begin, std::ssize(weights),
                                            casts_of_dy(weight, o.part, wanted), cast_options(weight.precision, {}),
                                            known_later(ctx, groups, o.part));
         });
}

std::vector<quant::ProducedCodes> begin_gradient(const Context& ctx, const Weight& weight, std::int64_t rows,
                                                 const Gradients& wanted, const View& amaxes) {
  std::vector<quant::ProducedCodes> parts;
  for (const Operand& o : weight.operands)
    parts.push_back(quant::begin_produced(ctx, rows, o.part.end - o.part.begin, casts_of_dy(weight, o.part, wanted),
                                          options_of_dy(weight, o.part, amaxes)));
  return parts;
}

}  // namespace fp8::linear
