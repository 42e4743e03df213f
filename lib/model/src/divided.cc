// Passes over rows that are gathered: all at once, or where they travel behind the computation those of one rank after
// the other.
#include "divided.h"

#include <optional>

#include "fp8/linear/codes.h"
#include "fp8/linear/observer.h"
#include "fp8/ops/elementwise.h"
#include "fp8/quant/scale.h"

namespace fp8::model {
namespace {

using linear::Pass;

// Whether the results need no more than x, dy and the weight of the rows and GEMMs at hand. Adapters need more, since
// dropout depends on the place of a row, and so does an observer of whole operands.
bool is_plain(const linear::Weight& weight) {
  const linear::LinearPrecision& precision = weight.precision;
  return weight.adapters.empty() && active_observer(precision) == nullptr && precision.amax_reducer == nullptr &&
         precision.column_factors.empty();
}

// Whether the scale of whole rows is known before a cast: by itself or by the amax.
bool is_given(const quant::KnownScale& known, const View& amax) {
  return known.is_known() || (known.scale.empty() && !amax.empty());
}
bool gradients_are_given(const linear::Weight& weight, const View& amax) {
  for (std::size_t i = 0; i < weight.parts.size(); ++i) {
    const linear::Part& p = weight.parts[i];
    const quant::KnownScale known = weight.known.dy.empty() ? quant::KnownScale{} : weight.known.dy.at(i);
    if (p.fp8 && (p.gemms.dgrad || p.gemms.wgrad) && !is_given(known, amax)) return false;
  }
  return true;
}

// Whether some rows of an operand have the casts of all rows together. `given` is whether a scale of all rows is.
bool rows_are_apart(const linear::Weight& weight, const quant::Cast& cast, bool given) {
  return is_plain(weight) && !is_fp4(cast.format) &&
         (cast.granularity == quant::Granularity::tensor ? given : quant::block_extent(cast.granularity).across <= 1);
}

// Whether backward for dx and then for dw has the casts and reductions of one call for both.
bool gemms_are_apart(const linear::Weight& weight, const View& amax_of_dy) {
  const quant::Recipe& recipe = recipe_of(weight.precision);
  const bool calibrates = weight.precision.recipe == nullptr && !weight.known.x.amax.empty();  // reads x
  const bool one_scale = recipe.dgrad.dy.granularity == quant::Granularity::tensor ||
                         recipe.wgrad.dy.granularity == quant::Granularity::tensor;
  return is_plain(weight) && !calibrates && (!one_scale || gradients_are_given(weight, amax_of_dy));
}

// What is left to compute after the gradient of x.
linear::Gradients of_weight(const linear::Gradients& to) {
  return {.dx = {}, .dw = to.dw, .db = {}, .accumulate = to.accumulate, .after_dx = true};
}

// Rows of all ranks that arrive in memory from the arena.
class ArrivingRows {
 public:
  ArrivingRows(const DividedLinear& linear, const View& own)
      : l_(linear), own_(own), all_(linear.rows.memory(linear.ctx, own)) {}

  // Calls compute(first, rows) with some of the rows, of which the first is row `first` of all, until all have been
  // passed once. Where messages overlap with computation, in turn s each rank sends its rows to the rank that is s
  // places further, so that every rank has one sender and one receiver in a turn; all turns start at once. GEMMs count
  // as one.
  template <class F>
  void each_part(F&& compute) {
    TensorExchange& ranks = l_.rows.ranks;
    in_parts_ = ranks.overlaps(l_.ctx);
    if (!in_parts_) return compute(0, gathered());
    const int count = ranks.ranks(), rank = ranks.rank();
    const auto first_of = [&](int r) { return ranks.first_row(l_.rows.all, r); };
    std::vector<std::function<void()>> turns;
    std::vector<int> senders;
    for (int turn = 1; turn < count; ++turn) {
      const int from = senders.emplace_back((rank - turn + count) % count);
      turns.push_back(ranks.start_shift(l_.ctx, own_, turn, all_.rows(first_of(from), first_of(from + 1))));
    }
    compute(first_of(rank), own_);
    for (std::size_t i = 0; i < turns.size(); ++i) {
      turns[i]();
      const gemm::FurtherRows further(l_.engine);
      compute(first_of(senders[i]), all_.rows(first_of(senders[i]), first_of(senders[i] + 1)));
    }
  }
  bool in_parts() const { return in_parts_; }
  // All rows after several parts, of which the own ones were not among those that arrived.
  View complete() const {
    const View own = all_.rows(l_.rows.first_own(), l_.rows.first_own() + l_.rows.own());
    if (!l_.ctx.dry) device::copy_bytes(l_.ctx, own.data, l_.ctx.device, own_.data, l_.ctx.device, own_.bytes());
    return all_;
  }
  // All rows at once.
  View gathered() const {
    l_.rows.ranks.gather(l_.ctx, own_, all_);
    return all_;
  }

 private:
  const DividedLinear& l_;
  View own_, all_;
  bool in_parts_ = false;
};

// The codes of own rows of x, which travel in their place if the pass reads nothing else.
std::optional<linear::InputCodes> codes_of(const DividedLinear& l, Pass pass, const View& own, const View& amax) {
  if (l.rows.ranks.ranks() == 1 || !reads_codes(l.weight, pass, amax)) return std::nullopt;
  return cast_rows(l.ctx, l.weight, pass, own, amax);
}
linear::InputCodes with_rows(linear::InputCodes codes, const View& rows) {
  codes.bytes = rows;
  return codes;
}

// Rows [first, last) for dgrad, which reads no codes of x.
linear::Input rows_of(const linear::Input& x, std::int64_t first, std::int64_t last) {
  return x.values.empty() ? linear::Input{} : linear::values_of(x.values.rows(first, last));
}

// Forward of x that is whole on this rank. Returns its codes for wgrad.
linear::Input forward_keeping(const DividedLinear& l, const View& x, const View& y,
                              const linear::ForwardOptions& options, device::PooledMemory& kept) {
  const linear::Input input = cast_input(l.ctx, l.weight, x, options, &kept);
  linear::forward(l.ctx, l.engine, l.weight, input, y, options);
  return {.values = {}, .columns = input.columns, .activation = x.dtype};
}

}  // namespace

View DividedRows::memory(const Context& ctx, const View& own) const {
  return ranks.ranks() == 1 ? own : tensor::allocate(ctx, own.dtype, {all, own.shape[1]}, "scratch");
}

View DividedRows::gathered(const Context& ctx, const View& own) const {
  const View rows = memory(ctx, own);
  ranks.gather(ctx, own, rows);
  return rows;
}

linear::Input ColumnParallel::forward(const View& own, const View& y, const View& amax,
                                      device::PooledMemory* kept) const {
  const device::Scope scope(*ctx.arena);
  if (kept != nullptr && keeps_codes(own)) return forward_keeping(*this, own, y, {amax, true}, *kept);
  forward_rows(own, y, amax);
  return linear::values_of(own);
}

void ColumnParallel::forward_rows(const View& own, const View& y, const View& amax) const {
  const quant::Cast& cast = recipe_of(weight.precision).forward.x;
  if (!rows_are_apart(weight, cast, is_given(weight.known.x, amax)))
    return linear::forward(ctx, engine, weight, rows.gathered(ctx, own), y, {amax, true});
  const auto codes = codes_of(*this, Pass::forward, own, amax);
  ArrivingRows(*this, codes ? codes->bytes : own).each_part([&](std::int64_t first, const View& part) {
    const View part_y = y.rows(first, first + part.shape[0]);
    if (codes) return forward_codes(ctx, engine, weight, with_rows(*codes, part), part_y);
    linear::forward(ctx, engine, weight, part, part_y, {amax, true});
  });
}

void ColumnParallel::backward(const linear::Input& x, const View& dy, linear::Gradients to,
                              const linear::KnownAmaxes& amaxes) const {
  if (x.values.empty()) return linear::backward(ctx, engine, weight, x, dy, to, amaxes);
  backward_rows(x.values, dy, to, amaxes);
}

void ColumnParallel::backward_rows(const View& own, const View& dy, linear::Gradients to,
                                   const linear::KnownAmaxes& amaxes) const {
  const device::Scope scope(*ctx.arena);
  const View d_own = to.dx;
  to.dx = rows.memory(ctx, d_own);
  if (to.dw.empty()) {
    linear::backward(ctx, engine, weight, rows.gathered(ctx, own), dy, to, amaxes);
    return rows.ranks.sum(ctx, to.dx, {}, d_own);
  }
  const auto codes = codes_of(*this, Pass::backward, own, amaxes.x);
  const View sent = codes ? codes->bytes : own;
  ArrivingRows all(*this, sent);
  const bool apart = rows.ranks.overlaps(ctx) && gemms_are_apart(weight, amaxes.dy);
  if (apart)
    all.each_part([&](std::int64_t, const View& part) {
      if (part.data == sent.data) linear::backward(ctx, engine, weight, View{}, dy, {to.dx, {}, to.db}, amaxes);
    });
  const View x = apart ? all.complete() : all.gathered();
  const linear::Gradients rest = apart ? of_weight(to) : to;
  if (codes)
    backward_codes(ctx, engine, weight, with_rows(*codes, x), dy, rest, amaxes);
  else
    linear::backward(ctx, engine, weight, x, dy, rest, amaxes);
  rows.ranks.sum(ctx, to.dx, {}, d_own);
}

linear::Input RowParallel::forward(const View& x, const View& own, const View& amax, bool amax_known,
                                   device::PooledMemory* kept) const {
  const device::Scope scope(*ctx.arena);
  const View partial = rows.memory(ctx, own);
  const linear::ForwardOptions options{amax, amax_known, rows.ranks.ranks() == 1};
  linear::Input left = linear::values_of(x);
  if (kept != nullptr && keeps_codes(x))
    left = forward_keeping(*this, x, partial, options, *kept);
  else
    linear::forward(ctx, engine, weight, x, partial, options);
  rows.ranks.sum(ctx, partial, weight.bias, own);
  return left;
}

void RowParallel::backward(const linear::Input& x, const View& d_own, linear::Gradients to,
                           const linear::KnownAmaxes& amaxes) const {
  const device::Scope scope(*ctx.arena);
  if (rows.ranks.ranks() > 1 && !to.db.empty()) ops::bias_backward(ctx, d_own, std::exchange(to.db, View{}));
  const quant::Cast& cast = recipe_of(weight.precision).dgrad.dy;
  if (!rows_are_apart(weight, cast, gradients_are_given(weight, amaxes.dy)))
    return linear::backward(ctx, engine, weight, x, rows.gathered(ctx, d_own), to, amaxes);
  ArrivingRows all(*this, d_own);
  all.each_part([&](std::int64_t first, const View& part) {
    const std::int64_t last = first + part.shape[0];
    const bool some = rows.ranks.overlaps(ctx);
    linear::backward(ctx, engine, weight, some ? rows_of(x, first, last) : x, part,
                     some ? linear::Gradients{to.dx.rows(first, last), {}, {}} : to, amaxes);
  });
  if (all.in_parts() && !to.dw.empty()) linear::backward(ctx, engine, weight, x, all.complete(), of_weight(to), amaxes);
}

}  // namespace fp8::model
