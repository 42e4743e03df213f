// Linears of one decoder layer with normally distributed operands, as crate linear runs them: in bf16 fused projections
// are one GEMM; in FP8 the input is cast once and each projection has its own GEMM. Forward and dgrad include the cast
// of the weight; wgrad casts both of its operands.
#include "linear_gemms.h"

#include <array>
#include <cmath>
#include <map>

#include "fp8/base/error.h"
#include "fp8/base/round.h"
#include "fp8/device/philox.h"
#include "fp8/device/profile.h"
#include "fp8/linear/linear.h"
#include "fp8/model/parameters.h"
#include "on_device.h"
#include "timing.h"

namespace fp8::probe {
namespace {

using device::Context;
using dtype::DType;
using model::Slot;
using tensor::Tensor;

constexpr std::size_t kPattern = std::size_t{1} << 16;  // number of random values; larger matrices repeat them
enum Pass : std::uint8_t { kForward, kDgrad, kWgrad, kBackward };
constexpr std::array kPasses{"forward", "dgrad", "wgrad", "backward"};

// A bf16 matrix of normally distributed values on the context's device.
Tensor normal(const Context& ctx, std::int64_t rows, std::int64_t columns, std::uint64_t stream) {
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < values.size(); i += 2) {
    if (i >= kPattern) {
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i - kPattern),
                  std::min<std::size_t>(2, values.size() - i), values.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    const auto random = device::philox(stream, i, 0);
    const auto pair = device::normal_pair(random[0], random[1]);
    values[i] = pair[0];
    if (i + 1 < values.size()) values[i + 1] = pair[1];
  }
  return placed(ctx, values, DType::bf16, {rows, columns});
}

// One fused linear with its operands and results.
class TimedLinear {
 public:
  TimedLinear(const device::Device& device, std::vector<linear::Part> parts, std::int64_t m, std::int64_t k,
              const quant::Recipe* recipe)
      : device_(device), parts_(std::move(parts)), fp8_{recipe, {recipe->power_of_2, nullptr}} {
    const Context ctx = device.context();
    const std::int64_t n = parts_.back().end;
    x_ = normal(ctx, m, k, 1), w_ = normal(ctx, n, k, 2), dy_ = normal(ctx, m, n, 3);
    y_ = Tensor(DType::bf16, {m, n}, device.type(), "y"), dx_ = Tensor(DType::bf16, {m, k}, device.type(), "dx");
    dw_ = Tensor(DType::f32, {n, k}, device.type(), "dw");
  }

  // Runs one pass in bf16 or FP8.
  void run(const Context& ctx, Pass pass, bool fp8) {
    const device::Scope scope(*ctx.arena);
    const linear::LinearPrecision precision = fp8 ? fp8_ : linear::LinearPrecision{};
    if (pass == kForward) {
      const linear::Weight weight = linear::prepare(ctx, w_.view(), {}, parts_, precision, linear::Pass::forward);
      return linear::forward(ctx, engine_, weight, x_.view(), y_.view());
    }
    linear::Gradients gradients;
    if (pass != kWgrad) gradients.dx = dx_.view();
    if (pass != kDgrad) gradients.dw = dw_.view();
    const linear::Weight weight = pass == kWgrad
                                      ? without_codes(precision)
                                      : linear::prepare(ctx, w_.view(), {}, parts_, precision, linear::Pass::backward);
    linear::backward(ctx, engine_, weight, x_.view(), dy_.view(), gradients);
  }

  void measure(Pass pass, double seconds, ProductResult& result) {
    Workspace space(device_, [&](const Context& ctx) { run(ctx, pass, false), run(ctx, pass, true); });
    const Context ctx = space.context();
    const PairedTiming duel = time_both(
        ctx, [&] { run(ctx, pass, false); }, [&] { run(ctx, pass, true); }, seconds);
    result.bf16_s = duel.first;
    result.fp8_s = duel.second;
    result.ratio = duel.ratio;
    result.cast_share = cast_share(ctx, pass);
  }

 private:
  // The weight for wgrad, which does not use its values.
  linear::Weight without_codes(const linear::LinearPrecision& precision) const {
    linear::Weight weight{{}, precision, {}};
    for (const linear::Part& part : parts_) weight.operands.push_back({part, {}});
    if (precision.recipe == nullptr) weight.operands = {{{0, parts_.back().end, false}, {}}};
    return weight;
  }

  // Share of the casts in the time of one profiled call.
  double cast_share(Context ctx, Pass pass) {
    device::Profile profile;
    profile.recording = device::Recording::timed;
    ctx.profile = &profile;
    run(ctx, pass, true);
    double casts = 0, all = 0;
    for (const device::Span& span : profile.spans()) {
      const auto ns = static_cast<double>(span.end - span.begin);
      all += ns;
      if (span.work == device::Work::cast) casts += ns;
    }
    return all > 0 ? casts / all : 0;
  }

  const device::Device& device_;
  std::vector<linear::Part> parts_;
  linear::LinearPrecision fp8_;
  Tensor x_, w_, dy_, y_, dx_, dw_;
  gemm::Engine engine_;
};

// The projections of a slot of one layer, or of one expert, in row order.
struct Linear {
  std::vector<linear::Part> parts;  // with their compute precision
  std::int64_t rows = 0, inputs = 0;
  std::int64_t count = 0;  // how many there are in the model
};

// The rows that an expert has if all have the same number, padded as they are for FP8.
std::int64_t rows_of_expert(const hf::ExpertsConfig& experts, std::int64_t tokens) {
  return round_up(divide_up(tokens * experts.per_token, experts.count), 16);
}

std::map<Slot, Linear> linears_of(const BenchOptions& options) {
  std::vector<model::Parameter> table = model::parameter_table(options.model);
  model::PrecisionRules precisions;
  precisions.recipe = options.recipe;
  model::assign_precisions(table, precisions);
  std::map<Slot, Linear> linears;
  for (const model::Parameter& p : table) {
    if (p.role != model::ParameterRole::linear || p.expert > 0) continue;
    Linear& linear = linears[p.slot];
    const bool expert = p.expert == 0;
    if (p.slot_row == 0) linear.count += expert ? options.model.experts->count : 1;
    const bool first = p.slot_row == 0 ? linear.parts.empty() : linear.parts.back().end == p.slot_row;
    if (!first) continue;  // the other layers have the same
    linear.parts.push_back({p.slot_row, p.slot_row + p.rows(), p.fp8});
    linear.rows = expert ? rows_of_expert(*options.model.experts, options.tokens) : options.tokens;
    linear.inputs = p.cols();
  }
  return linears;
}

const char* slot_name(Slot slot) {
  switch (slot) {
    case Slot::qkv:
      return "q,k,v";
    case Slot::o:
      return "o";
    case Slot::gate_up:
      return "gate,up";
    case Slot::down:
      return "down";
    case Slot::experts_gate_up:
      return "expert gate,up";
    case Slot::experts_down:
      return "expert down";
    default:
      return "linear";
  }
}

}  // namespace

std::vector<ProductResult> time_products(const device::Device& device, const BenchOptions& options) {
  std::vector<ProductResult> results;
  for (const auto& [slot, linear] : linears_of(options)) {
    TimedLinear timed(device, linear.parts, linear.rows, linear.inputs, options.recipe);
    for (const Pass pass : {kForward, kDgrad, kWgrad, kBackward}) {
      ProductResult r;
      r.linear = slot_name(slot), r.pass = kPasses[pass];
      r.m = linear.rows, r.n = linear.parts.back().end, r.k = linear.inputs;
      r.products = pass == kBackward ? 2 : 1, r.layers = linear.count;
      for (const linear::Part& part : linear.parts) r.fp8 = r.fp8 || part.fp8;
      if (pass == kWgrad && !options.recipe->wgrad.dy.fp8()) r.fp8 = false;
      if (options.progress) options.progress(r.linear + " " + r.pass);
      timed.measure(pass, options.seconds, r);
      results.push_back(std::move(r));
    }
  }
  return results;
}

double measured_peak(const device::Device& device, double seconds) {
  const std::int64_t side = device.type() == device::DeviceType::cuda ? 8192 : 1024;
  const Context ctx = device.context();
  const Tensor a = normal(ctx, side, side, 1), b = normal(ctx, side, side, 2);
  const Tensor c(DType::bf16, {side, side}, device.type(), "a GEMM result");
  gemm::Engine engine;
  const auto work = [&] {
    engine.matmul(ctx, {a.view(), DType::bf16, {}}, {b.view().transposed(), DType::bf16, {}}, c.view(), {});
  };
  const PairedTiming duel = time_both(ctx, work, work, seconds);
  return 2.0 * std::pow(static_cast<double>(side), 3) / std::min(duel.first.low, duel.second.low);
}

}  // namespace fp8::probe
