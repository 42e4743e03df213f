// ParameterStore on one rank, without communication.
#include "store_expert_cases.h"

namespace fp8::shard {
namespace {

TEST(Store, GathersAreTheWholeWeights) {
  const auto one = comm::solo();
  for (const StoreCase& c : store_cases()) check_gathers(comm::Mesh(*one), c);
}

TEST(Store, Experts) {
  const auto one = comm::solo();
  check_experts(comm::Mesh(*one));
}

TEST(Store, GradientsOfMicroBatchesAreSums) {
  const auto one = comm::solo();
  for (const StoreCase& c : store_cases()) {
    for (const int micro_batches : {1, 3}) check_reductions(comm::Mesh(*one), c, micro_batches);
  }
}

TEST(Store, WithoutTrainingThereAreWeightsAlone) {
  const auto one = comm::solo();
  const hf::ModelConfig config = small_model();
  StoreOptions options = store_of(DType::bf16);
  const Kit training(*one, config, small_table(config), options);
  options.training = false;
  Kit kit(*one, config, small_table(config), options);
  kit.fill(odd_value);
  for (const ParameterShard& o : kit.store.shards()) EXPECT_TRUE(o.m.empty() && o.v.empty() && o.gradient.empty());
  // Two moments and a gradient, f32, each slot on a multiple of 64 bytes.
  const auto elements = static_cast<std::size_t>(model::parameter_count(kit.store.table()));
  EXPECT_GE(training.planned - kit.planned, 12 * elements);
  EXPECT_LT(training.planned - kit.planned, 12 * elements + 3 * 256 * kit.store.table().size());
}

// Two moments and a gradient less for each frozen element, whose shard has the format in which it is stored.
TEST(Store, FrozenParametersHaveWeightsAlone) {
  const auto one = comm::solo();
  const hf::ModelConfig config = small_model_with_adapters();
  Kit kit(*one, config, small_table(config), store_of(DType::bf16, "tensorwise"));
  kit.fill(odd_value);
  std::vector<std::string> before;
  for (const ParameterShard& o : kit.store.shards()) {
    const model::Parameter& p = kit.store.table()[static_cast<std::size_t>(o.number)];
    EXPECT_EQ(o.m.empty(), !p.trainable) << p.name;
    EXPECT_EQ(o.v.empty(), !p.trainable) << p.name;
    EXPECT_EQ(o.gradient.empty(), !p.trainable) << p.name;
    EXPECT_EQ(o.master.dtype, p.trainable ? DType::f32 : p.stored) << p.name;
    before.push_back(bytes_of(o.master) + bytes_of(o.codes));
  }
  give_gradients(kit.store, 5, 1.0f, 0, 1);
  kit.store.gradients().finish(kit.ctx);
  const optim::Settings settings;
  const optim::Gate gate;
  kit.store.update(kit.ctx, kit.engine, settings, optim::scalars_of(settings, 1, 0.1, 0, &gate));
  for (std::size_t i = 0; i < before.size(); ++i) {
    const ParameterShard& o = kit.store.shards()[i];
    EXPECT_EQ(bytes_of(o.master) + bytes_of(o.codes) == before[i], !kit.store.table()[i].trainable);
  }
  for (const StateTensor& t : state_tensors(kit.store))
    if (!t.weight) {
      EXPECT_TRUE(kit.store.table()[static_cast<std::size_t>(t.parameter)].trainable) << t.name;
    }
}

// Adapters are computed in the precision of the activations, so nothing of theirs is scaled.
TEST(Store, AdaptersHaveNoDelayedScales) {
  const auto one = comm::solo();
  const hf::ModelConfig config = small_model_with_adapters();
  const Kit kit(*one, config, small_table(config), store_of(DType::bf16, "delayed"));
  EXPECT_FALSE(kit.store.scales().states().empty());
  for (const ScaleState& s : kit.store.scales().states()) EXPECT_EQ(s.name.find("lora"), std::string::npos) << s.name;
}

TEST(Store, ASkippedUpdateChangesNothing) {
  const auto one = comm::solo();
  const hf::ModelConfig config = small_model();
  Kit kit(*one, config, small_table(config), store_of(DType::bf16, "tensorwise"));
  kit.fill(odd_value);
  std::vector<std::string> before;
  for (const ParameterShard& o : kit.store.shards())
    before.push_back(bytes_of(o.master) + bytes_of(o.compute_weight) + bytes_of(o.codes));
  give_gradients(kit.store, 5, 1.0f, 0, 1);
  kit.store.gradients().finish(kit.ctx);
  const optim::Settings settings;
  const optim::Gate gate{.skip = 1};
  kit.store.update(kit.ctx, kit.engine, settings, optim::scalars_of(settings, 1, 0.1, 0, &gate));
  for (std::size_t i = 0; i < before.size(); ++i) {
    const ParameterShard& o = kit.store.shards()[i];
    EXPECT_EQ(bytes_of(o.master) + bytes_of(o.compute_weight) + bytes_of(o.codes), before[i]);
    EXPECT_EQ(bytes_of(o.m), std::string(o.m.bytes(), '\0'));
  }
}

// Without a gradient an update leaves 1 - lr weight_decay of what decays.
TEST(Store, MatricesDecayOrAllDo) {
  const auto one = comm::solo();
  const hf::ModelConfig config = small_model();
  for (const bool all : {false, true}) {
    Kit kit(*one, config, small_table(config), store_of(DType::f32));
    kit.fill([](int, std::int64_t) { return 1.0f; });
    give_gradients(kit.store, 5, 0.0f, 0, 1);
    kit.store.gradients().finish(kit.ctx);
    const optim::Settings settings{.weight_decay = 0.5f, .decay_all = all};
    const optim::Gate gate;
    kit.store.update(kit.ctx, kit.engine, settings, optim::scalars_of(settings, 1, 0.5, 0, &gate));
    for (const ParameterShard& o : kit.store.shards()) {
      const model::Parameter& p = kit.store.table()[static_cast<std::size_t>(o.number)];
      EXPECT_EQ(o.master.as<float>()[0], all || p.shape.size() > 1 ? 0.75f : 1.0f) << p.name;
    }
  }
}

}  // namespace
}  // namespace fp8::shard
