// One step: the planned GEMMs run, and fewer are an error; a step that is not finite changes nothing.
#include "fp8/train/step.h"

#include "fp8/ops/norm.h"
#include "small_model.h"

namespace fp8::train {
namespace {

using namespace test;

// A model, its data and steps of it, on one rank.
class Step : public FolderTest {
 protected:
  // Settings of a step.
  struct Way {
    const char* recipe = "tensorwise";
    DType activations = DType::bf16;
    model::Recompute recompute = model::Recompute::none;
    bool lm_head = false, codes = true, tied = false;
    std::int64_t micro_batches = 1;
  };

  // A model on one rank with fixed values, and the settings of its steps.
  struct OneRank {
    explicit OneRank(const Way& way)
        : model(small_model(way.tied)),
          config(config_of(way)),
          table(small_table(model, way.lm_head)),
          kit(*one, model, table, options_of(way), way.recompute) {
      kit.fill(odd_value);
    }
    static settings::RunConfig config_of(const Way& way) {
      settings::RunConfig c;
      c.batch_size = 2;
      c.grad_accumulation = way.micro_batches;
      c.seq_length = 16;
      c.precision.execution.recompute = way.recompute;
      c.schedule = {.lr = 1e-3, .steps = 10};
      c.precision.precision = settings::Precision::fp8;
      c.precision.recipe = way.recipe;
      c.precision.execution.activation = way.activations;
      c.precision.fp8_all_gather = way.codes;
      return c;
    }
    shard::StoreOptions options_of(const Way& way) const {
      shard::StoreOptions o = settings::store_options(config.precision, &scalars_in(scalars)->casts);
      o.several_micro_batches = way.micro_batches > 1;
      return o;
    }
    hf::ModelConfig model;
    settings::RunConfig config;
    device::Buffer scalars{sizeof(StepScalars), device::DeviceType::host, "numbers"};
    std::unique_ptr<comm::Communicator> one = comm::solo();
    std::vector<fp8::model::Parameter> table;
    Kit kit;
  };

  Step() {
    write_tokens(at("data.h5"), 1000, 64);
    tokens_.emplace(at("data.h5"));
  }

  // The tokens that rank `rank` of `ranks` reads in accumulation step `m` of `count` of a step of 24 samples.
  std::vector<std::int32_t> read(std::int64_t count, std::int64_t m, int rank, int ranks) {
    const data::Sampler sampler(*tokens_, data::SamplerKind::shuffle, 5, 16, 24, data::DocumentMode::joined);
    const std::int64_t sequences = 24 / count / ranks;
    MicroBatches batches(count, sequences, 16, false);
    (void)batches.read(sampler, 3, rank, ranks);
    EXPECT_EQ(batches.first_row(m), (m * 24 / count + rank * sequences) * 16);
    device::Arena arena(std::size_t{1} << 20, device::DeviceType::host);
    device::Context ctx;
    ctx.arena = &arena;
    return tensor::to_host<std::int32_t>(ctx, batches.batch(ctx, m).tokens);
  }

  // Computes a step twice, with bits of one weight changed in between; returns the error.
  std::string replay(const Way& way, int parameter, std::int64_t element, std::uint8_t bits) {
    OneRank all(way);
    Kit& kit = all.kit;
    const data::Sampler sampler(*tokens_, data::SamplerKind::sequential, 0, 16, 2 * way.micro_batches,
                                data::DocumentMode::joined);
    MicroBatches batches(way.micro_batches, 2, 16, false);
    const StepTotals totals{batches.read(sampler, 0, 0, 1), batches.tokens()};
    StepEnvironment env{kit, *all.one, all.scalars, all.config.seed};
    const Computed first = compute(env, batches, totals, true);
    const shard::ParameterShard& o = kit.store.shards()[static_cast<std::size_t>(parameter)];
    const View& used = o.codes.empty() ? o.compute_weight : o.codes;
    static_cast<std::uint8_t*>(used.data)[element] ^= bits;
    const Computed second = compute(env, batches, totals, true);
    return error_of([&] { check_same_bits(*all.one, all.table, 12, first, second); });
  }

  // Runs one step; `excess` is added to the planned number of FP8 GEMMs, `poison` to the norm weights.
  StepResult step(const Way& way, std::int64_t excess = 0, float poison = 0) {
    OneRank all(way);
    Kit& kit = all.kit;
    const std::vector<model::Parameter>& table = all.table;
    for (const shard::ParameterShard& o : kit.store.shards()) {
      if (table[static_cast<std::size_t>(o.number)].role == model::ParameterRole::norm)
        o.master.as<float>()[0] += poison;
    }
    kit.store.refresh_compute_weights(kit.ctx);
    gemm::Count planned =
        model::planned_fp8(all.model, table, *all.config.precision.recipe_or_null(), 32, kit.decoder.execution(), true);
    planned.gemms *= way.micro_batches;
    const data::Sampler sampler(*tokens_, data::SamplerKind::sequential, 0, 16, 2 * way.micro_batches,
                                data::DocumentMode::joined);
    MicroBatches batches(way.micro_batches, 2, 16, false);
    const std::string before = state_of(kit.store);
    StepEnvironment env{kit, *all.one, all.scalars, all.config.seed};
    planned.gemms += excess;
    const StepResult r = run_step(env, all.config, sampler, batches, {}, planned);
    EXPECT_EQ(r.gemms.linear(gemm::OperandKind::fp8).gemms, planned.gemms - excess);
    EXPECT_EQ(before == state_of(kit.store), r.skipped);
    return r;
  }

  // Evaluates five samples, two at a time; `excess` is added to the planned FP8 GEMMs of each pass.
  LossSum evaluate(const Way& way, std::int64_t excess) {
    const hf::ModelConfig model = small_model(way.tied);
    settings::PrecisionConfig precision;
    precision.precision = settings::Precision::fp8;
    precision.recipe = way.recipe;
    shard::StoreOptions options = settings::store_options(precision, nullptr);
    options.training = false;
    const auto one = comm::solo();
    const std::vector<model::Parameter> table = small_table(model, way.lm_head);
    Kit kit(*one, model, table, options);
    kit.fill(odd_value);
    const data::Sampler sampler(*tokens_, data::SamplerKind::sequential, 0, 16, 1, data::DocumentMode::joined);
    const shard::ModelSpec spec{model, table, options};
    const PlannedForward planned = planned_forward(spec, spec.execution.logit_bytes, precision);
    const PlannedForward other = [&](std::int64_t rows) { return planned(rows) + excess; };
    const LossSum sum = evaluate_samples(kit, *one, sampler, {5, 2, 16}, other, {});
    const std::int64_t ran = kit.engine.counts().linear(gemm::OperandKind::fp8).gemms;
    EXPECT_EQ(ran, 2 * planned(32) + planned(16));
    EXPECT_GT(ran, 0);
    return sum;
  }

 private:
  static std::string state_of(const shard::ParameterStore& store) {
    std::string bytes;
    for (const shard::StateTensor& t : shard::state_tensors(store))
      if (t.scale_slot < 0) bytes += bytes_of(t.values);
    return bytes;
  }
  std::optional<data::TokenFile> tokens_;
};

constexpr std::array kRecipes{"tensorwise", "rowwise", "rowwise_with_gw_hp", "current", "delayed"};

TEST_F(Step, AnAccumulationStepHasTheSameSamplesOnAnyNumberOfRanks) {
  for (const std::int64_t count : {1, 2, 3})
    for (std::int64_t m = 0; m < count; ++m)
      for (const int ranks : {2, 4}) {
        std::vector<std::int32_t> together;
        for (int rank = 0; rank < ranks; ++rank) {
          const std::vector<std::int32_t> mine = read(count, m, rank, ranks);
          together.insert(together.end(), mine.begin(), mine.end());
        }
        EXPECT_EQ(together, read(count, m, 0, 1)) << count << " " << m << " " << ranks;
      }
}

TEST_F(Step, RunsWhatWasPlanned) {
  for (const char* recipe : kRecipes) {
    for (const DType activations : {DType::bf16, DType::f32}) {
      for (const auto recompute : {model::Recompute::none, model::Recompute::selective, model::Recompute::full}) {
        for (const bool lm_head : {false, true}) {
          SCOPED_TRACE(std::string(recipe) + ", recompute " + std::to_string(static_cast<int>(recompute)));
          const StepResult r = step({recipe, activations, recompute, lm_head});
          EXPECT_FALSE(r.skipped);
          EXPECT_NEAR(r.loss, std::log(64.0), 2.0);
          EXPECT_GT(r.gemms.share(gemm::OperandKind::fp8), 0.3);
          EXPECT_GT(r.casts.elements, 0);
        }
      }
    }
  }
  step({.codes = false});
  step({.lm_head = true, .tied = true});
  step({.micro_batches = 3});
}

TEST_F(Step, LessFp8ThanPlannedIsAnError) {
  for (const std::int64_t excess : {1, 1000}) {
    const std::string said = error_of([&] { step({}, excess); }, Exit::fp8_missing);
    EXPECT_EQ(said, "FP8 was asked for and did not run as planned: 63 of " + std::to_string(63 + excess) +
                        " FP8 GEMMs in step 1");
  }
  EXPECT_FALSE(step({}, -1).skipped);  // more than planned is no error
}

TEST_F(Step, AnEvaluationRunsWhatWasPlannedToo) {
  for (const char* recipe : kRecipes) {
    for (const bool lm_head : {false, true}) EXPECT_EQ(evaluate({.recipe = recipe, .lm_head = lm_head}, 0).targets, 80);
  }
  EXPECT_EQ(error_of([&] { evaluate({}, 2); }, Exit::fp8_missing),
            "FP8 was asked for and did not run as planned: 63 of 69 FP8 GEMMs in the evaluation");
}

TEST_F(Step, HasTheSameBitsWhenComputedTwice) {
  for (const char* recipe : kRecipes) {
    EXPECT_EQ(replay({.recipe = recipe}, 0, 0, 0), "no error");
  }
  EXPECT_EQ(replay({.recompute = model::Recompute::full, .lm_head = true, .tied = true, .micro_batches = 3}, 0, 0, 0),
            "no error");
}

// A bit of a weight of any precision that flips between the two computations is an error that names a tensor whose
// gradient changed.
TEST_F(Step, AFlippedBitIsFoundWhenComputedTwice) {
  const std::vector<model::Parameter> table = small_table(small_model());
  for (const auto& [name, bits] : {std::pair{"model.embed_tokens.weight", 1},
                                   {"model.norm.weight", 1},
                                   {"model.layers.1.mlp.down_proj.weight", 64},
                                   {"lm_head.weight", 1}}) {
    const auto at = std::find_if(table.begin(), table.end(), [n = name](const auto& p) { return p.name == n; });
    ASSERT_NE(at, table.end());
    for (const std::int64_t micro_batches : {1, 2}) {
      const std::string said = replay({.micro_batches = micro_batches}, static_cast<int>(at - table.begin()), 7,
                                      static_cast<std::uint8_t>(bits));
      EXPECT_EQ(said.find("--paranoid: step 12, computed twice: the gradient of "), 0u) << name << ": " << said;
      EXPECT_NE(said.find(".weight is not the same; memory or a processor may be faulty"), std::string::npos) << said;
    }
  }
}

TEST_F(Step, RecomputedActivationsChangeNoBit) {
  for (const DType activations : {DType::bf16, DType::f32}) {
    const StepResult kept = step({.activations = activations});
    for (const auto recompute : {model::Recompute::selective, model::Recompute::full}) {
      const StepResult again = step({.activations = activations, .recompute = recompute});
      EXPECT_EQ(again.loss, kept.loss);
      EXPECT_EQ(again.grad_norm, kept.grad_norm);
    }
  }
}

TEST_F(Step, WhatIsNotFiniteIsSkipped) {
  EXPECT_FALSE(step({}).skipped);
  for (const char* recipe : kRecipes) {
    const StepResult r = step({.recipe = recipe}, 0, std::nanf(""));
    EXPECT_TRUE(r.skipped);
    EXPECT_FALSE(std::isfinite(r.loss));
  }
  EXPECT_TRUE(step({}, 0, INFINITY).skipped);
}

}  // namespace
}  // namespace fp8::train
