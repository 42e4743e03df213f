// A pass over rows that are gathered: all at once on the host, and on a GPU those of one rank after the other.
#include "split_linear.h"

#include <optional>

#include "fp8/linear/codes.h"

namespace fp8::model {
namespace {

// Rows of all ranks, of which this one has `own`, in memory from the arena.
class GatheredRows {
 public:
  GatheredRows(const Context& ctx, const LayerEnvironment& env, const View& own)
      : ctx_(ctx),
        env_(env),
        own_(own),
        all_(tensor::allocate(ctx, own.dtype, {env.rows(), own.shape[1]}, "scratch")) {}

  // Calls compute(first row, rows, number of the call) as TensorExchange::gather_parts().
  template <class F>
  void each_part(F&& compute) {
    env_.tensor->gather_parts(ctx_, own_, all_,
                              [&](std::int64_t first, const View& rows) { compute(first, rows, parts_++); });
  }
  // Whether each_part() has passed several parts.
  bool in_parts() const { return parts_ > 1; }
  // All rows after several parts, which did not include a copy of the own rows.
  View complete() const {
    const View own = all_.rows(env_.first_own_row(), env_.first_own_row() + env_.own_rows());
    if (!ctx_.dry) device::copy_bytes(ctx_, own.data, ctx_.device, own_.data, ctx_.device, own_.bytes());
    return all_;
  }
  // All rows at once.
  View gather() const {
    env_.tensor->gather(ctx_, own_, all_);
    return all_;
  }

 private:
  const Context& ctx_;
  const LayerEnvironment& env_;
  View own_, all_;
  int parts_ = 0;
};

// What is left to compute after the gradient of x.
linear::Gradients of_weight(const linear::Gradients& gradients) {
  return {.dx = {}, .dw = gradients.dw, .db = {}, .accumulate = gradients.accumulate, .after_dx = true};
}

// The input of a linear on its way: `own` or its codes, if the pass reads nothing else.
struct SentInput {
  SentInput(const Context& ctx, const linear::Weight& weight, linear::Pass pass, const View& own, const View& amax)
      : coded(linear::reads_codes(weight, pass, amax)), rows(own) {
    if (!coded) return;
    codes = linear::cast_rows(ctx, weight, pass, own, amax);
    rows = codes.bytes;
  }
  // Rows that have arrived, as codes.
  linear::InputCodes codes_of(const View& arrived) const {
    linear::InputCodes all = codes;
    all.bytes = arrived;
    return all;
  }
  bool coded;
  View rows;
  linear::InputCodes codes;
};

}  // namespace

void forward_gathered(const Context& ctx, const LayerEnvironment& env, const linear::Weight& weight, const View& own,
                      const View& y, const View& amax) {
  if (env.tensor == nullptr || !linear::rows_are_apart(weight, linear::Pass::forward, amax))
    return linear::forward(ctx, env.engine, weight, gathered(ctx, env, own), y, {amax, true});
  const device::Scope scope(*ctx.arena);
  const SentInput x(ctx, weight, linear::Pass::forward, own, amax);
  GatheredRows(ctx, env, x.rows).each_part([&](std::int64_t first, const View& rows, int part) {
    std::optional<gemm::FurtherRows> further;
    if (part > 0) further.emplace(env.engine);
    const View part_y = y.rows(first, first + rows.shape[0]);
    if (x.coded) return linear::forward_codes(ctx, env.engine, weight, x.codes_of(rows), part_y);
    linear::forward(ctx, env.engine, weight, rows, part_y, {amax, true});
  });
}

void backward_gathered(const Context& ctx, const LayerEnvironment& env, const linear::Weight& weight, const View& own,
                       const View& dy, const linear::Gradients& gradients, const linear::KnownAmaxes& amaxes) {
  if (env.tensor == nullptr || gradients.dw.empty())
    return linear::backward(ctx, env.engine, weight, gathered(ctx, env, own), dy, gradients, amaxes);
  const device::Scope scope(*ctx.arena);
  const SentInput x(ctx, weight, linear::Pass::backward, own, amaxes.x);
  const auto backward = [&](const View& rows, const linear::Gradients& to) {
    if (x.coded) return linear::backward_codes(ctx, env.engine, weight, x.codes_of(rows), dy, to, amaxes);
    linear::backward(ctx, env.engine, weight, rows, dy, to, amaxes);
  };
  GatheredRows all(ctx, env, x.rows);
  if (!linear::gemms_are_apart(weight, amaxes.dy)) return backward(all.gather(), gradients);
  all.each_part([&](std::int64_t, const View& rows, int part) {
    if (rows.shape[0] == env.rows()) return backward(rows, gradients);
    if (part == 0) linear::backward(ctx, env.engine, weight, View{}, dy, {gradients.dx, {}, gradients.db}, amaxes);
  });
  if (all.in_parts()) backward(all.complete(), of_weight(gradients));
}

void backward_of_sum(const Context& ctx, const LayerEnvironment& env, const linear::Weight& weight, const View& x,
                     const View& d_own, const linear::Gradients& gradients, const linear::KnownAmaxes& amaxes) {
  const auto backward = [&](const View& of_x, const View& dy, const linear::Gradients& to) {
    linear::backward(ctx, env.engine, weight, of_x, dy, to, amaxes);
  };
  if (env.tensor == nullptr || !linear::rows_are_apart(weight, linear::Pass::backward, amaxes.dy))
    return backward(x, gathered(ctx, env, d_own), gradients);
  const device::Scope scope(*ctx.arena);
  GatheredRows all(ctx, env, d_own);
  all.each_part([&](std::int64_t first, const View& rows, int part) {
    const std::int64_t last = first + rows.shape[0];
    if (last - first == env.rows()) return backward(x, rows, gradients);
    std::optional<gemm::FurtherRows> further;
    if (part > 0) further.emplace(env.engine);
    backward(x.rows(first, last), rows, {gradients.dx.rows(first, last), {}, {}});
  });
  if (all.in_parts() && !gradients.dw.empty()) backward(x, all.complete(), of_weight(gradients));
}

}  // namespace fp8::model
