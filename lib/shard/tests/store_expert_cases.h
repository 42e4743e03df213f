/// Test cases of experts in a ParameterStore, for any number of ranks: delayed scales of experts without rows, adapters
/// of some experts, fused gate and up, stored codes, and what observers see.
#pragma once

#include <map>

#include "fp8/linear/observer.h"
#include "fp8/quant/fold.h"
#include "store_cases.h"

namespace fp8::shard {

/// Whether this rank is the last of the job.
inline bool is_last(const ParameterStore& store) { return store.mesh().all().rank() == store.mesh().all().size() - 1; }

/// The mixture under a delayed recipe, of which the test gives the amaxes that forward and backward would record.
struct DelayedMixture : Kit {
  /// Sums of the amaxes by name, on one rank.
  using Amaxes = std::map<std::string, float>;

  DelayedMixture(const comm::Mesh& mesh, bool all_gather, std::int64_t history)
      : Kit(mesh, small_mixture(), small_table(small_mixture()), options(all_gather, history)) {
    fill(spread_value);
  }
  static StoreOptions options(bool all_gather, std::int64_t history) {
    StoreOptions o = store_of(DType::bf16, "delayed");
    o.fp8_all_gather = all_gather;
    o.delayed.history = history;
    return o;
  }

  /// What the linear that a state belongs to is given in a pass: the scale of an input or a gradient.
  quant::KnownScale known(const ScaleState& s, model::Pass pass) {
    const model::Parameter& p = store.table()[static_cast<std::size_t>(s.parameter)];
    const device::Scope scope(arena);
    const linear::Weight w = weight_of(store, store.unshard(ctx, p.unit, pass), p);
    if (s.name.ends_with("/input")) return w.known.x;
    for (std::size_t i = 0; i < w.parts.size(); ++i)
      if (w.parts[i].number == s.parameter) return w.known.dy.at(i);
    throw Error("no such part");
  }
  /// The state with this name.
  const ScaleState& state(const std::string& name) const {
    const auto found = std::ranges::find(store.scales().states(), name, &ScaleState::name);
    if (found == store.scales().states().end()) throw Error("no state " + name);
    return *found;
  }
  /// Whether a tensor is cast with its own amax.
  bool own_amax(const std::string& name) { return known(state(name), pass_of(name)).own_amax; }
  /// The amaxes of a step: `amax` on the last rank for some states, 1 for all others but those of idle experts.
  void record(const std::string& idle, const Amaxes& amaxes) {
    for (const ScaleState& s : store.scales().states()) {
      if (s.name.ends_with("/weight")) continue;
      const auto given = amaxes.find(s.name);
      if (given == amaxes.end() && s.name.find(idle) != std::string::npos) continue;
      const View to = known(s, pass_of(s.name)).amax;
      ASSERT_FALSE(to.empty()) << s.name;
      if (given == amaxes.end())
        *to.as<float>() = 1.0f;
      else if (is_last(store))
        *to.as<float>() = given->second;
    }
  }
  /// Calibration with these amaxes.
  void calibrate(const std::string& idle, const Amaxes& amaxes) {
    ASSERT_TRUE(store.scales().needs_calibration());
    store.scales().begin_calibration();
    record(idle, amaxes);
    store.end_calibration(ctx);
    ASSERT_FALSE(store.scales().needs_calibration());
  }
  /// A step with these amaxes.
  void step(const std::string& idle, const Amaxes& amaxes, int skip = 0) {
    record(idle, amaxes);
    give_gradients(store, 5, 1.0f, 0, 1);
    store.gradients().finish(ctx);
    const optim::Settings settings;
    const optim::Gate gate{.skip = skip};
    store.update(ctx, engine, settings, optim::scalars_of(settings, 1, 0.1, 0, &gate));
    EXPECT_FALSE(store.scales().needs_calibration());
  }
  float scale(const std::string& name) const { return *state(name).scale.as<float>(); }
  std::string history(const std::string& name) const { return bytes_of(state(name).history); }

  static model::Pass pass_of(const std::string& name) {
    return name.ends_with("/input") ? model::Pass::forward : model::Pass::backward;
  }
};

/// An expert without rows keeps scale and history; its first rows are cast with their own amax until the step ends.
inline void check_idle_experts(const comm::Mesh& mesh, bool all_gather, std::int64_t history) {
  SCOPED_TRACE(std::string(all_gather ? "codes" : "weights") + ", history " + std::to_string(history));
  const std::string idle = "layers.0.mlp.experts.1.", expert = "model." + idle;
  const std::string input = expert + "up_proj/input", dy = expert + "down_proj/grad_output",
                    weight = expert + "down_proj/weight", busy = "model.layers.0.mlp.experts.2.up_proj/input";
  DelayedMixture kit(mesh, all_gather, history);
  kit.calibrate(idle, {{busy, 2.0f}, {"model.layers.0.mlp.experts.2.gate_proj/input", 2.0f}});
  EXPECT_EQ(kit.scale(busy), 224.0f);
  EXPECT_FALSE(kit.own_amax(busy));
  EXPECT_FALSE(kit.own_amax("model.layers.0.self_attn.q_proj/input"));
  const std::string empty(static_cast<std::size_t>(history) * 4, '\0');
  const auto expect_unseen = [&] {
    EXPECT_TRUE(kit.own_amax(input) && kit.own_amax(dy) && kit.own_amax(expert + "gate_proj/input"));
    EXPECT_TRUE(kit.scale(input) == 1.0f && kit.scale(dy) == 1.0f);
    EXPECT_TRUE(kit.history(input) == empty && kit.history(dy) == empty);
  };
  expect_unseen();
  const float weight_before = kit.scale(weight);
  EXPECT_NE(weight_before, 1.0f);
  const std::string weights_before = kit.history(weight);
  for (int i = 0; i < 2 * static_cast<int>(history); ++i) kit.step(idle, {});
  expect_unseen();
  if (history > 1) {
    EXPECT_NE(kit.history(weight), weights_before) << "the amax of a weight is recorded, rows or not";
  }
  EXPECT_NE(kit.scale(weight), weight_before);
  kit.step(idle, {{input, 8.0f}, {dy, 4.0f}}, 1);
  expect_unseen();  // the step was skipped
  kit.step(idle, {{input, INFINITY}, {dy, 4.0f}});
  EXPECT_TRUE(kit.own_amax(input)) << "an infinite amax is not entered";
  EXPECT_FALSE(kit.own_amax(dy));
  kit.step(idle, {{input, 8.0f}});
  EXPECT_FALSE(kit.own_amax(input) || kit.own_amax(expert + "gate_proj/input") || kit.own_amax(dy));
  EXPECT_TRUE(kit.own_amax(expert + "down_proj/input")) << "the other linear of the expert";
  EXPECT_EQ(kit.scale(input), 56.0f);
  EXPECT_EQ(kit.scale(expert + "gate_proj/input"), 56.0f) << "gate and up share their input";
  EXPECT_EQ(kit.scale(dy), 57344.0f / 4);
  EXPECT_EQ(kit.scale(expert + "gate_proj/grad_output"), 1.0f);
  const std::string kept = kit.history(input);
  kit.step(idle, {});
  EXPECT_EQ(kit.history(input), kept) << "an expert that is idle again";
  EXPECT_EQ(kit.scale(input), 56.0f);
}

/// A resumed store casts the same tensors with their own amax, and asks for no calibration.
inline void check_resume_of_idle(const comm::Mesh& mesh, std::int64_t history) {
  SCOPED_TRACE("history " + std::to_string(history));
  const std::string idle = "layers.0.mlp.experts.1.";
  DelayedMixture before(mesh, true, history), after(mesh, true, history);
  before.calibrate(idle, {});
  before.step(idle, {{"model." + idle + "up_proj/input", 8.0f}});
  const auto load = [&](DelayedMixture& kit) {
    for (std::size_t i = 0; i < kit.store.scales().states().size(); ++i) {
      const ScaleState &from = before.store.scales().states()[i], &to = kit.store.scales().states()[i];
      ops::copy(kit.ctx, from.scale, to.scale);
      ops::copy(kit.ctx, from.history, to.history);
      kit.store.scales().set_history(to.index);
    }
    kit.store.refresh_compute_weights(kit.ctx);
  };
  const auto compare = [&] {
    EXPECT_FALSE(after.store.scales().needs_calibration());
    int own = 0;
    for (const ScaleState& s : before.store.scales().states()) {
      if (s.name.ends_with("/weight")) continue;
      EXPECT_EQ(after.own_amax(s.name), before.own_amax(s.name)) << s.name;
      own += after.own_amax(s.name) ? 1 : 0;
    }
    EXPECT_EQ(own, 4) << "three gradients and the input of down";
  };
  load(after);
  compare();
  after.step("", {{"model." + idle + "down_proj/input", 8.0f}});  // every expert has rows
  load(after);
  compare();
}

/// Scales of another format: a tensor that has no row in calibration begins anew.
inline void check_calibration_again(const comm::Mesh& mesh) {
  const std::string idle = "layers.2.mlp.experts.0.", input = "model." + idle + "down_proj/input";
  DelayedMixture kit(mesh, true, 3);
  kit.calibrate("none", {{input, 8.0f}});
  EXPECT_EQ(kit.scale(input), 56.0f);
  const std::string busy = "model.layers.2.mlp.experts.1.down_proj/input", of_busy = kit.history(busy);
  kit.store.scales().require_calibration();
  kit.calibrate(idle, {});
  EXPECT_TRUE(kit.own_amax(input));
  EXPECT_EQ(kit.scale(input), 1.0f);
  EXPECT_EQ(kit.history(input), std::string(12, '\0'));
  EXPECT_FALSE(kit.own_amax(busy));
  EXPECT_NE(kit.history(busy), of_busy);
}

/// In calibration each expert's weight is that of the compute format.
inline void check_calibration_weights(const comm::Mesh& mesh, bool all_gather) {
  DelayedMixture kit(mesh, all_gather, 4);
  kit.store.scales().begin_calibration();
  for (const model::Pass pass : {model::Pass::forward, model::Pass::backward}) {
    const device::Scope scope(kit.arena);
    const model::UnitWeights w = kit.store.unshard(kit.ctx, 3, pass);
    for (const ParameterShard& o : kit.store.shards()) {
      const model::Parameter& p = kit.store.table()[static_cast<std::size_t>(o.number)];
      if (p.unit != 3 || p.expert < 0) continue;
      const std::int64_t first = linear_row(kit.store.table(), p);
      EXPECT_TRUE(bytes_of(operand_of(weight_of(kit.store, w, p), first, first + p.rows()).codes) ==
                  text_of(whole(p, o.number, DType::f32, DType::bf16)))
          << p.name;
    }
  }
}

/// Each expert has its own adapters, in the order of the table, on rows that count from its first one.
inline void check_adapters_of_experts(const comm::Mesh& mesh) {
  const hf::ModelConfig config = small_mixture_with_adapters();
  Kit kit(mesh, config, small_table(config), store_of(DType::bf16, "tensorwise"));
  kit.fill(spread_value);
  const std::vector<model::Parameter>& table = kit.store.table();
  std::size_t compared = 0;
  for (const int unit : {1, 2, 3}) {
    const device::Scope scope(kit.arena);
    const model::UnitWeights w = kit.store.unshard(kit.ctx, unit, model::Pass::forward);
    std::map<const linear::Weight*, std::size_t> next;
    for (std::size_t a = 0; a < table.size(); ++a) {
      if (table[a].unit != unit || !table[a].name.ends_with(".lora_A.weight")) continue;
      const std::string module = model::adapted_module(table[a]);
      const auto number_of = [&](const std::string& end) {
        return std::ranges::find(table, module + end, &model::Parameter::name) - table.begin();
      };
      const model::Parameter& p = table[static_cast<std::size_t>(number_of(".weight"))];
      const linear::Weight& linear = weight_of(kit.store, w, p);
      const linear::Adapter& adapter = linear.adapters.at(next[&linear]++);
      SCOPED_TRACE(module);
      EXPECT_EQ(adapter.part.begin, linear_row(table, p));
      EXPECT_EQ(adapter.part.end - adapter.part.begin, p.rows());
      const auto b = static_cast<int>(number_of(".lora_B.weight"));
      EXPECT_TRUE(bytes_of(adapter.a) == text_of(whole(table[a], static_cast<int>(a), DType::f32, DType::bf16)));
      EXPECT_TRUE(bytes_of(adapter.b) ==
                  text_of(whole(table[static_cast<std::size_t>(b)], b, DType::f32, DType::bf16)));
      ++compared;
    }
    for (const linear::Weight* linear : linears_of(w)) EXPECT_EQ(linear->adapters.size(), next[linear]);
  }
  EXPECT_EQ(compared, config.lora->targets.size());
}

/// An observer that only has to be there.
struct Watching final : linear::Observer {
  bool active() const override { return true; }
  void observe(const linear::Call& /*call*/, const linear::ObservedGemm& /*gemm*/) override {}
};

/// The operand of a parameter of an expert, which is a part of its own.
inline const linear::Operand& own_operand(const Kit& kit, const model::UnitWeights& w, const model::Parameter& p) {
  const auto& operands = weight_of(kit.store, w, p).operands;
  const std::int64_t row = linear_row(kit.store.table(), p);
  const auto found = std::ranges::find_if(operands, [&](const linear::Operand& o) { return o.part.begin == row; });
  if (found == operands.end()) throw Error("no such operand");
  return *found;
}

/// Stored codes with their factors are prepared as those of one expert alone; an observer gets their values.
inline void check_stored_codes(const comm::Mesh& mesh, const quant::Recipe& recipe) {
  SCOPED_TRACE(std::string(recipe.name));
  const hf::ModelConfig config = small_mixture_with_adapters();
  std::vector<model::Parameter> table = small_table(config);
  for (model::Parameter& p : table)
    if (p.matmul() && p.expert >= 0) p.stored = DType::e4m3;
  Watching watching;
  StoreOptions options = store_of(DType::bf16, "tensorwise");
  options.fp8.recipe = &recipe;
  options.fp8.options.power_of_2 = recipe.power_of_2;
  options.fp8.observer = &watching;
  Kit kit(mesh, config, table, options);
  const auto factor = [](int number, std::int64_t i) { return 0.5f + 0.01f * static_cast<float>(number + i); };
  const auto code = [](int number, std::int64_t i) {  // all finite
    return static_cast<std::byte>((static_cast<std::int64_t>(number) * 7 + i * 3) % 0x70);
  };
  for (const ParameterShard& o : kit.store.shards()) {
    if (!o.factors.empty())
      for (std::int64_t i = 0; i < o.factors.size(); ++i) o.factors.as<float>()[i] = factor(o.number, i);
    const model::Parameter& p = table[static_cast<std::size_t>(o.number)];
    for (std::int64_t i = 0; p.stored == DType::e4m3 && i < o.rows.count() * p.cols(); ++i)
      static_cast<std::byte*>(o.master.data)[i] = code(o.number, o.rows.begin * p.cols() + i);
  }
  kit.store.refresh_compute_weights(kit.ctx);
  for (const model::Pass pass : {model::Pass::forward, model::Pass::backward}) {
    const device::Scope scope(kit.arena);
    const model::UnitWeights w = kit.store.unshard(kit.ctx, 1, pass);
    for (const ParameterShard& o : kit.store.shards()) {
      const model::Parameter& p = table[static_cast<std::size_t>(o.number)];
      if (p.unit != 1 || !p.matmul() || p.expert < 0) continue;
      SCOPED_TRACE(p.name);
      std::vector<std::byte> bytes;
      for (std::int64_t i = 0; i < p.size(); ++i) bytes.push_back(code(o.number, i));
      const View codes = tensor::make_view(bytes.data(), DType::u8, device::DeviceType::host, {p.rows(), p.cols()});
      const View scales = quant::reciprocals(kit.ctx, o.factors);
      const bool blocks = o.factors.rank == 2;
      const auto alone_in = [&](model::Pass each) {
        return linear::prepare_codes(
            kit.ctx, {codes, blocks ? scales.reshaped({o.factors.shape[0], o.factors.shape[1]}) : scales, o.factors},
            {}, {{0, p.rows(), true, {}, o.number}}, options.fp8, each);
      };
      const linear::Weight alone = alone_in(pass);
      const linear::Operand& found = own_operand(kit, w, p);
      EXPECT_TRUE(bytes_of(found.codes.codes) == bytes_of(alone.operands[0].codes.codes));
      EXPECT_TRUE(bytes_of(found.codes.inverse_scale) == bytes_of(alone.operands[0].codes.inverse_scale));
      EXPECT_TRUE(bytes_of(found.folded) == bytes_of(alone.operands[0].folded));
      const View exact = quant::dequantize(kit.ctx, alone_in(model::Pass::forward).operands[0].codes);
      const tensor::Tensor source(DType::f32, {p.rows(), p.cols()});
      ops::copy(kit.ctx, exact, source.view());
      EXPECT_TRUE(bytes_of(found.source) == bytes_of(source.view()));
    }
  }
}

/// An observer gets the rows from which an expert's codes were cast: those of the masters, or compute weights.
inline void check_observed_source(const comm::Mesh& mesh, const quant::Recipe& recipe) {
  Watching watching;
  StoreOptions options = store_of(DType::bf16, "tensorwise");
  options.fp8.recipe = &recipe;
  const DType cast = recipe.fp8_all_gather ? DType::f32 : DType::bf16;
  options.fp8.observer = &watching;
  Kit kit(mesh, small_mixture(), small_table(small_mixture()), options);
  kit.fill(spread_value);
  const device::Scope scope(kit.arena);
  const model::UnitWeights w = kit.store.unshard(kit.ctx, 3, model::Pass::backward);
  for (const ParameterShard& o : kit.store.shards()) {
    const model::Parameter& p = kit.store.table()[static_cast<std::size_t>(o.number)];
    if (p.unit != 3 || p.expert < 0) continue;
    const linear::Operand& found = own_operand(kit, w, p);
    EXPECT_EQ(found.part.number, o.number);
    EXPECT_TRUE(bytes_of(found.source) == text_of(whole(p, o.number, DType::f32, cast))) << p.name;
  }
}

/// Runs all cases.
inline void check_experts(const comm::Mesh& mesh) {
  for (const std::int64_t history : {1, 2, 4}) {
    for (const bool all_gather : {true, false}) check_idle_experts(mesh, all_gather, history);
    check_resume_of_idle(mesh, history);
  }
  check_calibration_again(mesh);
  for (const bool all_gather : {true, false}) {
    check_calibration_weights(mesh, all_gather);
    for (const hf::ModelConfig& config : {small_model(), small_mixture()}) check_fused(mesh, config, all_gather);
  }
  check_adapters_of_experts(mesh);
  const quant::Recipe &tensorwise = quant::find_recipe("tensorwise"), &rowwise = quant::find_recipe("rowwise"),
                      &rows = quant::with_single_copy(rowwise);
  for (const quant::Recipe* recipe : {&tensorwise, &rows, &quant::find_recipe("blockwise")})
    check_stored_codes(mesh, *recipe);
  for (const quant::Recipe* recipe : {&tensorwise, &quant::find_recipe("delayed"), &rowwise, &rows})
    check_observed_source(mesh, *recipe);
}

}  // namespace fp8::shard
