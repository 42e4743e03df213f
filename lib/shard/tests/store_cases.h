/// Test cases of ParameterStore for any number of ranks, with and without MPI: gathered weights are the whole weights,
/// gradients are sums over ranks and micro-batches, and an update has the bits of one rank's update.
#pragma once

#include "expert_model.h"
#include "fp8/ops/norm.h"
#include "fp8/quant/scale.h"

namespace fp8::shard {

using namespace test;

/// odd_value() in four magnitudes, so that parameters of a slot differ in their scales, powers of two included; and
/// some larger elements, so that rows and columns differ, and columns of the rows of one rank.
inline float spread_value(int number, std::int64_t i) {
  const float larger = i % 67 == 0 ? 64.0f : i % 101 == 0 ? 16.0f : 1.0f;
  return odd_value(number, i) * larger * static_cast<float>(1 << (number % 4));
}

/// A model of one layer whose linears, or those of its experts, are all 256 x 256.
inline hf::ModelConfig model_of_squares(bool experts) {
  hf::ModelConfig config = experts ? small_mixture() : small_model();
  config.hidden_size = config.intermediate_size = 256;
  if (experts) config.experts->intermediate_size = 256;
  config.num_hidden_layers = 1;
  config.head_dim = 256 / config.num_attention_heads;
  return config;
}

/// Options of a store.
struct StoreCase {
  std::string name;
  StoreOptions options;
  bool tied = false, lm_head = false;
  quant::GemmSet gemms{};
  bool adapters = false;                     ///< without, everything is trained
  std::vector<std::string_view> of_slots{};  ///< recipes by kAdaptedSlots; empty: the recipe of the options
  bool experts = false;
  bool squares = false;  ///< linears of 256 x 256, which two ranks divide into blocks of 128 x 128

  /// The model.
  hf::ModelConfig model() const {
    if (squares) return model_of_squares(experts);
    if (experts) return adapters ? small_mixture_with_adapters() : small_mixture();
    return adapters ? small_model_with_adapters() : small_model(tied);
  }
  /// Its parameters.
  std::vector<model::Parameter> table() const {
    std::vector<model::Parameter> all = small_table(model(), lm_head, gemms);
    for (model::Parameter& p : all)
      for (std::size_t i = 0; i < of_slots.size(); ++i)
        if (p.slot == model::kAdaptedSlots[i].linear) p.recipe = &quant::find_recipe(of_slots[i]);
    return all;
  }
};

inline StoreOptions store_of(DType compute, const char* recipe = nullptr, int zero = 3, bool reshard = true) {
  StoreOptions o;
  o.compute = compute;
  if (recipe != nullptr) {
    o.fp8.recipe = &quant::find_recipe(recipe);
    o.fp8.options.power_of_2 = o.fp8.recipe->power_of_2;
  }
  o.zero = zero;
  o.reshard_after_forward = reshard;
  return o;
}

/// Experts in every form of a weight that is not stored as codes, and every level of ZeRO.
inline std::vector<StoreCase> expert_cases() {
  std::vector<StoreCase> cases;
  const auto add = [&](const std::string& name, const StoreOptions& options, bool adapters = false) {
    cases.push_back({"experts, " + name, options, false, false, {}, adapters, {}, true});
    cases.back().options.delayed.history = 4;
  };
  for (const int zero : {1, 2, 3}) {
    const std::string level = ", zero " + std::to_string(zero);
    add("bf16" + level, store_of(DType::bf16, nullptr, zero));
    add("codes" + level, store_of(DType::bf16, "tensorwise", zero));
    add("bf16 travels" + level, store_of(DType::bf16, "blockwise", zero));
    cases.back().options.reduce = DType::bf16;
    add("delayed codes" + level, store_of(DType::bf16, "delayed", zero), zero == 2);
  }
  add("f32, no reshard", store_of(DType::f32, nullptr, 3, false), true);
  for (const int zero : {1, 2, 3})
    add("rowwise, zero " + std::to_string(zero), store_of(DType::bf16, "rowwise", zero, zero == 3), zero == 3);
  add("mixed", store_of(DType::f32, "rowwise_with_gw_hp"));
  add("mxfp8", store_of(DType::bf16, "mxfp8"));
  add("delayed", store_of(DType::bf16, "delayed"));
  cases.back().options.fp8_all_gather = false;
  add("codes stay", store_of(DType::bf16, "current"));
  cases.back().options.fp8_all_gather = false;
  for (const bool adapters : {false, true}) {
    add("single copy", store_of(DType::bf16, "rowwise", 3, adapters), adapters);
    cases.back().options.fp8.recipe = &quant::with_single_copy(quant::find_recipe("rowwise"));
  }
  add("recipes of linears", store_of(DType::bf16, "rowwise"));
  cases.back().of_slots = {"tensorwise", "delayed", "current", "delayed", "delayed", "tensorwise"};
  return cases;
}

/// Every level of ZeRO, both compute formats, with and without FP8, with and without FP8 all-gather.
inline std::vector<StoreCase> store_cases() {
  std::vector<StoreCase> cases;
  for (const int zero : {1, 2, 3}) {
    const std::string level = " zero " + std::to_string(zero);
    cases.push_back({"f32" + level, store_of(DType::f32, nullptr, zero)});
    cases.push_back({"bf16" + level, store_of(DType::bf16, nullptr, zero)});
    cases.push_back({"codes" + level, store_of(DType::bf16, "tensorwise", zero), false, true});
    cases.push_back({"tied codes" + level, store_of(DType::bf16, "tensorwise", zero), true, true});
  }
  for (const int zero : {1, 2, 3}) {
    cases.push_back({"bf16 travels, zero " + std::to_string(zero), store_of(DType::bf16, "rowwise", zero)});
    cases.back().options.reduce = DType::bf16;
  }
  cases.push_back({"no reshard", store_of(DType::bf16, "tensorwise", 3, false)});
  cases.push_back({"rowwise", store_of(DType::bf16, "rowwise")});
  cases.push_back({"mixed", store_of(DType::f32, "rowwise_with_gw_hp")});
  cases.push_back({"current", store_of(DType::bf16, "current")});
  cases.push_back({"delayed", store_of(DType::bf16, "delayed")});
  cases.back().options.delayed.history = 4;
  cases.push_back({"delayed without codes", store_of(DType::bf16, "delayed")});
  cases.back().options.fp8_all_gather = false;
  cases.push_back({"single copy", store_of(DType::bf16, "rowwise", 3)});
  cases.back().options.fp8.recipe = &quant::with_single_copy(quant::find_recipe("rowwise"));
  cases.push_back({"single copy, no reshard", store_of(DType::f32, "rowwise", 3, false)});
  cases.back().options.fp8.recipe = &quant::with_single_copy(quant::find_recipe("rowwise"));
  for (const int zero : {1, 3}) {
    cases.push_back({"recipes of linears, zero " + std::to_string(zero), store_of(DType::bf16, "rowwise", zero)});
    cases.back().options.delayed.history = 4;
    cases.back().of_slots = {"tensorwise", "delayed", "current", "delayed"};
  }
  cases.push_back({"forward in bf16", store_of(DType::bf16, "delayed"), false, false, {false, true, true}});
  cases.push_back({"codes stay", store_of(DType::bf16, "tensorwise")});
  cases.back().options.fp8_all_gather = false;
  cases.push_back({"bf16 masters", store_of(DType::bf16, "tensorwise")});
  cases.back().options.master = cases.back().options.moments = DType::bf16;
  cases.push_back({"bf16 all over", store_of(DType::bf16)});
  cases.back().options.master = cases.back().options.moments = DType::bf16;
  for (const int zero : {1, 2, 3}) {
    const std::string level = " with adapters, zero " + std::to_string(zero);
    cases.push_back({"bf16" + level, store_of(DType::bf16, nullptr, zero), false, false, {}, true});
    cases.push_back({"codes" + level, store_of(DType::bf16, "tensorwise", zero), false, true, {}, true});
  }
  cases.push_back({"f32 with adapters, no reshard", store_of(DType::f32, nullptr, 3, false), false, false, {}, true});
  cases.push_back({"single copy with adapters", store_of(DType::bf16, "rowwise"), false, false, {}, true});
  cases.back().options.fp8.recipe = &quant::with_single_copy(quant::find_recipe("rowwise"));
  for (const StoreCase& c : expert_cases()) cases.push_back(c);
  return cases;
}

/// The whole of parameter `number` in `type`, as a master of type `master` holds it.
inline std::vector<std::byte> whole(const model::Parameter& p, int number, DType master, DType type) {
  std::vector<float> values(static_cast<std::size_t>(p.size()));
  for (std::int64_t i = 0; i < p.size(); ++i) values[static_cast<std::size_t>(i)] = spread_value(number, i);
  if (master == DType::bf16) {
    std::vector<std::byte> rounded(values.size() * 2);
    dtype::from_floats(values, DType::bf16, rounded.data());
    dtype::to_floats(DType::bf16, rounded.data(), values);
  }
  std::vector<std::byte> bytes(values.size() * dtype::size_of(type));
  dtype::from_floats(values, type, bytes.data());
  return bytes;
}

inline std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The inverse scales of an operand. Those of blocks may have gaps between rows.
inline std::vector<float> scales_of(const quant::Quantized& q) {
  const View& v = q.inverse_scale;
  std::vector<float> all;
  for (std::int64_t r = 0; !v.empty() && r < v.shape[0]; ++r)
    for (std::int64_t c = 0; c < (v.rank == 2 ? v.shape[1] : 1); ++c)
      all.push_back(v.as<float>()[r * v.stride[0] + (v.rank == 2 ? c * v.stride[1] : 0)]);
  return all;
}

/// Compares an operand with the whole matrix, cast alone.
inline void check_operand(const Context& ctx, StoreOptions o, const model::Parameter& p, int number,
                          const quant::Quantized& found, model::Pass pass) {
  if (!p.trainable) o.master = p.stored;
  if (p.recipe != nullptr) {
    o.fp8.recipe = p.recipe;
    o.fp8.options.power_of_2 = p.recipe->power_of_2;
  }
  const bool gathered_as_fp8 = p.fp8 && p.gemms == quant::GemmSet{} && o.fp8_all_gather && o.fp8.recipe != nullptr &&
                               o.fp8.recipe->fp8_all_gather;
  std::vector<std::byte> source = whole(p, number, o.master, gathered_as_fp8 ? o.master : o.compute);
  const View matrix = tensor::make_view(source.data(), gathered_as_fp8 ? o.master : o.compute, device::DeviceType::host,
                                        {p.rows(), p.cols()});
  const bool forward = pass == model::Pass::forward;
  if (!p.fp8 || o.fp8.recipe == nullptr || (forward ? !p.gemms.forward : !p.gemms.dgrad)) {
    EXPECT_TRUE(bytes_of(found.codes) == text_of(source));
    return;
  }
  const quant::Cast& cast = forward ? o.fp8.recipe->forward.w : o.fp8.recipe->dgrad.w;
  quant::CastOptions options = o.fp8.options;
  options.counts = nullptr;
  options.rule = o.fp8.recipe->scale_rule;
  options.fold = !gathered_as_fp8;
  const tensor::Tensor one(DType::f32, {1});  // a delayed scale before the first update
  *one.as<float>() = 1.0f;
  if (options.rule == quant::ScaleRule::delayed && !p.trainable)
    options.rule = quant::ScaleRule::current;  // it follows from the weight
  else if (options.rule == quant::ScaleRule::delayed)
    options.known = {one.view(), one.view(), {}};
  const quant::Quantized wanted = quant::quantize(
      ctx, matrix, cast, forward ? quant::ContractionAxis::last : quant::ContractionAxis::first, options);
  if (o.fp8.recipe->single_copy && !forward) {
    const quant::Quantized one_copy = quant::quantize(ctx, matrix, cast, quant::ContractionAxis::last, options);
    EXPECT_TRUE(bytes_of(found.codes) == bytes_of(one_copy.codes));
    return;
  }
  EXPECT_TRUE(bytes_of(found.codes) == bytes_of(wanted.codes));
  EXPECT_EQ(scales_of(found), scales_of(wanted));
}

/// Rows [begin, end) of a linear among its operands. Parts outside FP8 are one operand.
inline quant::Quantized operand_of(const linear::Weight& w, std::int64_t begin, std::int64_t end) {
  for (const linear::Operand& o : w.operands) {
    if (o.part.begin > begin || o.part.end < end) continue;
    quant::Quantized q = o.codes;
    q.codes = q.codes.rows(begin - o.part.begin, end - o.part.begin);
    return q;
  }
  return {};
}

/// Unsharded weights of every unit, in the order of two steps, are the whole weights.
inline void check_gathers(const comm::Mesh& mesh, const StoreCase& c) {
  SCOPED_TRACE(c.name);
  const hf::ModelConfig config = c.model();
  Kit kit(mesh, config, c.table(), c.options);
  EXPECT_EQ(kit.planned, kit.arena.peak());
  kit.fill(spread_value);
  const int units = static_cast<int>(config.num_hidden_layers) + 2;
  for (int visit = 0; visit < 4 * units; ++visit) {
    const bool forward = visit / units % 2 == 0;
    const int unit = forward ? visit % units : units - 1 - visit % units;
    const model::Pass pass = forward ? model::Pass::forward : model::Pass::backward;
    const device::Scope scope(kit.arena);
    const model::UnitWeights w = kit.store.unshard(kit.ctx, unit, pass);
    kit.store.prefetch(forward ? unit + 1 : unit - 1, pass);
    for (const ParameterShard& o : kit.store.shards()) {
      const model::Parameter& p = kit.store.table()[static_cast<std::size_t>(o.number)];
      if (p.unit != unit || !has_parameter(kit.store, p)) continue;
      SCOPED_TRACE(p.name);
      if (p.matmul()) {
        const std::int64_t first = linear_row(kit.store.table(), p);
        check_operand(kit.ctx, c.options, p, o.number, operand_of(weight_of(kit.store, w, p), first, first + p.rows()),
                      pass);
      } else {
        const DType master = p.trainable ? c.options.master : p.stored;
        const View rows = w.vector(p.slot).rows(held_row(kit.store, p), held_row(kit.store, p) + p.rows());
        EXPECT_TRUE(bytes_of(rows) == text_of(whole(p, o.number, master, c.options.compute)));
      }
    }
  }
}

/// Writes (or adds) gradients of one micro-batch as a decoder would: units from the last to the first. `factor` is that
/// of a parameter.
inline void give_gradients(ParameterStore& store, int units,
                           const std::function<float(const model::Parameter&)>& factor, int micro, int count) {
  store.gradients().begin_micro_batch(micro, count);
  for (int unit = units - 1; unit >= 0; --unit) {
    const model::UnitGradients g = store.gradient_buffers(unit);
    for (std::size_t n = 0; n < store.table().size(); ++n) {
      const model::Parameter& p = store.table()[n];
      if (p.unit != unit || !p.trainable || !has_parameter(store, p)) continue;
      float* const to = g.of(p.slot).as<float>() + held_row(store, p) * p.cols();
      const float times = factor(p);
      for (std::int64_t i = 0, size = p.size(); i < size; ++i) {
        const float value = times * whole_value(static_cast<int>(n), i);
        to[i] = g.accumulate ? to[i] + value : value;
      }
    }
    store.gradients_done(unit);
  }
}

/// The same with one factor.
inline void give_gradients(ParameterStore& store, int units, float factor, int micro, int count) {
  give_gradients(
      store, units, [factor](const model::Parameter&) { return factor; }, micro, count);
}

/// The sum of rank + 1 over the ranks that have a parameter.
inline int sum_of_ranks(const ParameterStore& store, const model::Parameter& p) {
  int sum = 0;
  for (int rank = 0; rank < store.mesh().all().size(); ++rank)
    if (has_parameter(store, p, rank % store.mesh().experts().size())) sum += rank + 1;
  return sum;
}

/// The sum of the squares of the first `count` values of whole_value(), of which seven have each value from -3 to 3.
inline double whole_squares(int number, std::int64_t count) {
  double sum = static_cast<double>(count / 7) * 28;
  for (std::int64_t i = 0; i < count % 7; ++i) sum += std::pow(static_cast<double>(whole_value(number, i)), 2);
  return sum;
}

/// Gradients are sums over ranks and micro-batches, step after step.
inline void check_reductions(const comm::Mesh& mesh, const StoreCase& c, int micro_batches) {
  SCOPED_TRACE(c.name + ", " + std::to_string(micro_batches) + " micro-batches");
  const hf::ModelConfig config = c.model();
  StoreOptions options = c.options;
  options.several_micro_batches = micro_batches > 1;
  Kit kit(mesh, config, c.table(), options);
  kit.fill(spread_value);
  const int units = static_cast<int>(config.num_hidden_layers) + 2;
  for (int step = 1; step <= 2; ++step) {
    for (int m = 0; m < micro_batches; ++m) {
      const int factor = step * (mesh.all().rank() + 1) * (m + 1);
      give_gradients(kit.store, units, static_cast<float>(factor), m, micro_batches);
    }
    kit.store.gradients().finish(kit.ctx);
    const int batches = micro_batches * (micro_batches + 1) / 2;
    double squares = 0;
    for (const ParameterShard& o : kit.store.shards()) {
      const model::Parameter& p = kit.store.table()[static_cast<std::size_t>(o.number)];
      SCOPED_TRACE(p.name);
      const auto factor = static_cast<float>(step * sum_of_ranks(kit.store, p) * batches);
      if (o.rows.count() > 0) {
        EXPECT_EQ(o.gradient.empty(), !p.trainable);
      }
      if (!p.trainable) continue;
      squares += std::pow(static_cast<double>(factor), 2) * whole_squares(o.number, p.size());
      const std::int64_t begin = o.rows.begin * p.cols(), end = o.rows.end * p.cols();
      for (std::int64_t i = begin; i < end; ++i)
        if (const float wanted = factor * whole_value(o.number, i); o.gradient.as<float>()[i - begin] != wanted)
          FAIL() << "element " << i << " is " << o.gradient.as<float>()[i - begin] << ", not " << wanted;
    }
    double sum = 0;
    kit.store.gradients().add_squares(kit.ctx, &sum);
    EXPECT_EQ(sum, squares);
    kit.store.gradients().visit(kit.ctx, [&](const model::Parameter& p, const View& gradient) {
      const auto factor = static_cast<float>(step * sum_of_ranks(kit.store, p) * batches);
      const auto number = static_cast<int>(&p - kit.store.table().data());
      const float* const found = gradient.as<float>();
      int wrong = 0;
      for (std::int64_t i = 0, size = p.size(); i < size; ++i)
        wrong += found[i] == factor * whole_value(number, i) ? 0 : 1;
      EXPECT_EQ(wrong, 0) << p.name;
    });
  }
}

/// The same adapters and operands.
inline void check_same(const linear::Weight& a, const linear::Weight& b) {
  ASSERT_EQ(a.adapters.size(), b.adapters.size());
  for (std::size_t i = 0; i < a.adapters.size(); ++i) {
    EXPECT_TRUE(bytes_of(a.adapters[i].a) == bytes_of(b.adapters[i].a));
    EXPECT_TRUE(bytes_of(a.adapters[i].b) == bytes_of(b.adapters[i].b));
    EXPECT_EQ(a.adapters[i].part.begin, b.adapters[i].part.begin);
  }
  ASSERT_EQ(a.operands.size(), b.operands.size());
  for (std::size_t i = 0; i < a.operands.size(); ++i) {
    EXPECT_TRUE(bytes_of(a.operands[i].codes.codes) == bytes_of(b.operands[i].codes.codes));
    EXPECT_EQ(scales_of(a.operands[i].codes), scales_of(b.operands[i].codes));
  }
}

/// Own rows and gathered weights after two updates have the bits of an update on one rank.
inline void check_updates(const comm::Mesh& mesh, const StoreCase& c) {
  SCOPED_TRACE(c.name);
  const hf::ModelConfig config = c.model();
  const std::unique_ptr<comm::Communicator> one = comm::solo();
  Kit many(mesh, config, c.table(), c.options), alone(*one, config, c.table(), c.options);
  const int units = static_cast<int>(config.num_hidden_layers) + 2;
  const optim::Settings settings;
  const optim::Gate gate{.gradient_scale = 0.2f};
  for (Kit* kit : {&many, &alone}) kit->fill(spread_value);
  for (int step = 1; step <= 2; ++step) {
    give_gradients(many.store, units, static_cast<float>(mesh.all().rank() + 1), 0, 1);
    give_gradients(
        alone.store, units, [&](const model::Parameter& p) { return static_cast<float>(sum_of_ranks(many.store, p)); },
        0, 1);
    for (Kit* kit : {&many, &alone}) {
      kit->store.gradients().finish(kit->ctx);
      kit->store.update(kit->ctx, kit->engine, settings, optim::scalars_of(settings, step, 0.01, 7, &gate));
    }
  }
  for (std::size_t i = 0; i < many.store.shards().size(); ++i) {
    const ParameterShard &o = many.store.shards()[i], &all = alone.store.shards()[i];
    SCOPED_TRACE(many.store.table()[i].name);
    if (o.rows.count() == 0) continue;
    const auto same = [&](const View& mine, const View& of_all) {
      EXPECT_EQ(mine.empty(), of_all.empty());
      if (mine.empty()) return;
      EXPECT_TRUE(bytes_of(mine) == bytes_of(of_all.rows(o.rows.begin, o.rows.end)));
    };
    same(o.master, all.master);
    same(o.m, all.m);
    same(o.v, all.v);
    same(o.compute_weight, all.compute_weight);
    same(o.codes, all.codes);
  }
  for (int i = 0; i < 2 * units; ++i) {
    const model::Pass pass = i < units ? model::Pass::forward : model::Pass::backward;
    const int unit = i < units ? i : 2 * units - 1 - i;
    const device::Scope scope(many.arena), other(alone.arena);
    const model::UnitWeights a = many.store.unshard(many.ctx, unit, pass);
    const model::UnitWeights b = alone.store.unshard(alone.ctx, unit, pass);
    for (const model::Parameter& p : many.store.table()) {
      if (p.unit != unit || !has_parameter(many.store, p)) continue;
      if (p.expert < 0) check_same(a.of(p.slot), b.of(p.slot));  // the embedding may be the head too
      if (p.matmul()) {
        check_same(weight_of(many.store, a, p), weight_of(alone.store, b, p));
        continue;
      }
      const std::int64_t row = held_row(many.store, p);
      EXPECT_TRUE(bytes_of(a.vector(p.slot).rows(row, row + p.rows())) ==
                  bytes_of(b.vector(p.slot).rows(p.slot_row, p.slot_row + p.rows())));
    }
  }
}

/// Fused projections are one linear with the codes and the scale of their rows together, also after an update.
inline void check_fused(const comm::Mesh& mesh, const hf::ModelConfig& config, bool all_gather) {
  SCOPED_TRACE(all_gather ? "FP8 all-gather" : "weights");
  std::vector<model::Parameter> table = small_table(config);
  model::fuse_projections(table);
  StoreOptions options = store_of(DType::bf16, "tensorwise");
  options.fp8_all_gather = all_gather;
  Kit kit(mesh, config, table, options), plain(mesh, config, table, store_of(DType::f32));  // the whole masters
  kit.fill(spread_value);
  plain.fill(spread_value);
  for (const int updates : {0, 1}) {
    for (Kit* one : {&kit, &plain}) {
      if (updates == 0) continue;
      give_gradients(one->store, static_cast<int>(config.num_hidden_layers) + 2, 1.0f, 0, 1);
      one->store.gradients().finish(one->ctx);
      const optim::Settings settings;
      const optim::Gate gate;
      one->store.update(one->ctx, one->engine, settings, optim::scalars_of(settings, 1, 0.1, 0, &gate));
    }
    for (const model::Pass pass : {model::Pass::forward, model::Pass::backward}) {
      const device::Scope scope(kit.arena), other(plain.arena);
      const model::UnitWeights w = kit.store.unshard(kit.ctx, 1, pass), all = plain.store.unshard(plain.ctx, 1, pass);
      const std::vector<const linear::Weight*> linears = linears_of(w), masters = linears_of(all);
      const bool forward = pass == model::Pass::forward;
      std::size_t compared = 0;
      for (std::size_t i = 0; i < linears.size(); ++i) {
        EXPECT_LE(linears[i]->operands.size(), 1U);
        compared += linears[i]->operands.size();
        for (const linear::Operand& o : linears[i]->operands) {
          const View master = operand_of(*masters[i], o.part.begin, o.part.end).codes;
          const tensor::Tensor source(all_gather ? DType::f32 : DType::bf16, {master.shape[0], master.shape[1]});
          ops::copy(kit.ctx, master, source.view());
          quant::CastOptions cast = options.fp8.options;
          cast.rule = options.fp8.recipe->scale_rule;
          const quant::Quantized wanted = quant::quantize(
              kit.ctx, source.view(), forward ? options.fp8.recipe->forward.w : options.fp8.recipe->dgrad.w,
              forward ? quant::ContractionAxis::last : quant::ContractionAxis::first, cast);
          EXPECT_TRUE(bytes_of(o.codes.codes) == bytes_of(wanted.codes));
          EXPECT_TRUE(bytes_of(o.codes.inverse_scale) == bytes_of(wanted.inverse_scale));
        }
      }
      EXPECT_GE(compared, 4U);
    }
  }
}

}  // namespace fp8::shard
