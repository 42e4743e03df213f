// Sharding over all ranks of a job and over subgroups, of tensors and of the parameters of a model.
#include <gtest/gtest.h>

#include <algorithm>

#include "../../comm/tests/forwarding.h"
#include "../../comm/tests/mpi_main.h"
#include "expert_load_cases.h"
#include "memory_plan_cases.h"
#include "shard_cases.h"
#include "store_expert_cases.h"
#include "tensor_group_cases.h"

namespace fp8::shard {
namespace {

comm::Communicator& world() { return *comm::world(); }

TEST(Sharding, OverAllRanks) { check_sharding(*comm::world()); }

TEST(Sharding, OverSubgroups) {
  comm::Communicator& all = *comm::world();
  check_sharding(*all.split(all.rank() % 2, all.rank(), "parity"));
}

TEST(Store, GathersAreTheWholeWeights) {
  for (const StoreCase& c : store_cases()) check_gathers(comm::Mesh(world()), c);
}

TEST(Store, Experts) { check_experts(comm::Mesh(world())); }

TEST(ExpertLoad, IsThatOfAllRanks) {
  for (const int micro_batches : {1, 3}) check_expert_load(*comm::world(), micro_batches);
}

TEST(Store, GradientsAreSumsOverRanksAndMicroBatches) {
  for (const StoreCase& c : store_cases()) {
    for (const int micro_batches : {1, 3}) check_reductions(comm::Mesh(world()), c, micro_batches);
  }
}

TEST(Store, AnUpdateIsThatOfOneRank) {
  for (const StoreCase& c : store_cases()) check_updates(comm::Mesh(world()), c);
}

// The cases of one of several meshes, which have all cases between them: stages of four kinds come first, of which each
// mesh has some of each. With FP8_LONG every mesh has all cases.
std::vector<StoreCase> share_of(const std::vector<StoreCase>& all, std::size_t mesh, std::size_t meshes) {
  std::vector<StoreCase> some;
  for (std::size_t i = 0; i < all.size(); ++i)
    if ((i + i / 4) % meshes == mesh) some.push_back(all[i]);
  return comm::long_run(static_cast<int>(all.size() - some.size())) ? all : some;
}

// Replicas of parameters that some ranks share, or none.
TEST(Store, OverReplicas) {
  const int ranks = world().size();
  for (int shards = ranks / 2; shards > 0; shards /= 2) {
    const comm::Mesh mesh(world(), {ranks / shards, shards});
    EXPECT_EQ(mesh.shards().size(), shards);
    EXPECT_EQ(mesh.replicas().size(), ranks / shards);
    for (const StoreCase& c : share_of(store_cases(), shards == 1 ? 0 : 1, 3)) {
      check_gathers(mesh, c);
      for (const int micro_batches : {1, 3}) check_reductions(mesh, c, micro_batches);
      check_updates(mesh, c);
    }
  }
}

// Experts divided over ranks, and sharded over what that leaves, or not at all.
TEST(Store, OverRanksThatShareExperts) {
  const int ranks = world().size();
  std::size_t number = 0;
  for (const comm::MeshShape& shape :
       {comm::MeshShape{1, ranks, 1, 2, 1}, {ranks / 2, 2, 1, 2, 1}, {1, ranks, 1, 3, 1}}) {
    if (shape.ranks() != ranks || shape.dp_shard % shape.ep != 0) continue;
    const comm::Mesh mesh(world(), shape);
    SCOPED_TRACE("ep " + std::to_string(shape.ep) + ", replicas " + std::to_string(shape.dp_replicate));
    for (const StoreCase& c : share_of(expert_cases(), number++, 2)) {
      check_gathers(mesh, c);
      for (const int micro_batches : {1, 3}) check_reductions(mesh, c, micro_batches);
      check_updates(mesh, c);
    }
  }
}

// The last rank has little memory, or an error.
TEST(MemoryPlan, AllRanksHaveTheSmallestBlockOfLogits) {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  const bool last = world().rank() == world().size() - 1;
  const std::size_t memory = kRest + static_cast<std::size_t>((last ? 300 : 2000) * kMiB);
  const MemoryPlan plan = plan_fitting(world(), device::DeviceType::cuda, memory, plan_with_logits);
  EXPECT_EQ(plan.logit_bytes, 256 * kMiB);
  EXPECT_EQ(plan.bytes, plan_with_logits(256 * kMiB).bytes);
  for (const std::int64_t failing : {1024 * kMiB, 256 * kMiB}) {
    EXPECT_THROW(plan_fitting(world(), device::DeviceType::cuda, memory,
                              [&](std::int64_t bytes) {
                                if (last && bytes == failing) throw Error("no such GEMM");
                                return plan_with_logits(bytes);
                              }),
                 comm::AgreedError);
  }
}

// One rank has another value of a master weight.
TEST(Store, AReplicaThatDiffersIsNamed) {
  if (world().size() == 1) GTEST_SKIP() << "one rank has no replicas";
  const comm::Mesh mesh(world(), {world().size(), 1});
  const hf::ModelConfig config = small_model();
  Kit kit(mesh, config, small_table(config), store_of(DType::bf16));
  kit.fill(odd_value);
  EXPECT_EQ(kit.store.differing_replica(kit.ctx), std::nullopt);
  if (world().rank() == world().size() - 1) kit.store.shards()[3].master.as<float>()[1] += 1;
  EXPECT_EQ(kit.store.differing_replica(kit.ctx).value_or(""), "replica " + std::to_string(world().size() - 1) +
                                                                   " of " + kit.store.table()[3].name +
                                                                   " is not the same as replica 0");
}

// All ranks of tensor parallelism have the norms, and half of an even number of them the same key head; query heads
// differ on all.
TEST(Store, ACopyOnATpRankThatDiffersIsNamed) {
  const int ranks = world().size();
  if (ranks == 1) GTEST_SKIP() << "one rank has no copies";
  hf::ModelConfig config = small_model();
  const int key_heads = ranks % 2 == 0 ? 2 : 1;
  config.num_attention_heads = 4 * ranks, config.num_key_value_heads = key_heads, config.intermediate_size = 64;
  Kit kit(comm::Mesh(world(), {1, 1, 1, 1, ranks}), config, small_table(config), store_of(DType::bf16));
  kit.fill(odd_value);
  const auto check = [&](const std::string& name, int first) {
    const std::string parameter = "model.layers.1." + name + ".weight", last = std::to_string(ranks - 1);
    const auto& table = kit.store.table();
    const auto number = std::ranges::find(table, parameter, &model::Parameter::name) - table.begin();
    float& value = kit.store.shards()[static_cast<std::size_t>(number)].master.as<float>()[1];
    EXPECT_EQ(kit.store.differing_replica(kit.ctx), std::nullopt);
    const float before = value;
    if (world().rank() == ranks - 1) value += 1;
    const std::string wanted = first == ranks - 1 ? ""
                                                  : "tp rank " + last + " of " + parameter +
                                                        " is not the same as tp rank " + std::to_string(first);
    EXPECT_EQ(kit.store.differing_replica(kit.ctx).value_or(""), wanted);
    value = before;
  };
  check("self_attn.k_norm", 0);
  check("self_attn.k_proj", ranks - ranks / key_heads);
  check("self_attn.q_proj", ranks - 1);
}

// The last stage has a copy of a tied embedding. It counts and saves none of it, and its gradient is that of both.
TEST(Store, ATiedEmbeddingIsInTheFirstAndTheLastStage) {
  const int ranks = world().size(), last = ranks - 1;
  if (ranks == 1) GTEST_SKIP() << "one stage has one copy";
  hf::ModelConfig config = small_model(true);
  config.num_hidden_layers = 4;
  StoreOptions options = store_of(DType::bf16);
  options.stages = std::vector<int>(static_cast<std::size_t>(ranks), 4 / ranks);
  Kit kit(comm::Mesh(world(), {1, 1, ranks}), config, small_table(config), options);
  kit.fill(odd_value);
  ParameterStore& store = kit.store;
  const bool has = world().rank() == 0 || world().rank() == last;
  const ParameterShard& embedding = store.shards().front();
  const model::Parameter& p = store.table().front();
  EXPECT_EQ(embedding.rows.count(), has ? p.rows() : 0);
  EXPECT_EQ(store.layout().owns(p), world().rank() == 0);
  for (const StateTensor& t : state_tensors(store))
    if (t.parameter == 0) {
      EXPECT_EQ(t.saved.count(), world().rank() == 0 ? p.rows() : 0) << t.name;
    }
  store.gradients().begin_micro_batch(0, 1);
  store.gradients().zero(kit.ctx);
  if (has) std::fill_n(embedding.gradient.as<float>(), embedding.gradient.size(), world().rank() == 0 ? 1.0f : 2.0f);
  store.gradients().finish(kit.ctx);
  if (has) {
    EXPECT_EQ(embedding.gradient.as<float>()[5], 3);
  }
  double sum = 0;
  store.gradients().add_squares(kit.ctx, &sum);
  EXPECT_EQ(sum, 9.0 * static_cast<double>(p.size()));
  EXPECT_EQ(store.differing_replica(kit.ctx), std::nullopt);
  if (world().rank() == last) embedding.master.as<float>()[1] += 1;
  EXPECT_EQ(store.differing_replica(kit.ctx).value_or(""),
            "stage " + std::to_string(last) + " of " + p.name + " is not the same as stage 0");
}

TEST(TensorGroup, RowsSumsAndAmaxesAreThoseOfAllRanks) { check_tensor_group(world()); }

TEST(TensorGroup, OfSomeOfTheRanksToo) {
  check_tensor_group(*world().split(world().rank() % 2, world().rank(), "parity"));
}

// Three of four ranks: row counts are not multiples of the number of ranks.
TEST(Store, OverSomeOfTheRanks) {
  const int some = world().size() - 1;
  const auto group = world().split(world().rank() < some ? 0 : 1, world().rank(), "");
  if (world().rank() >= some) return;
  for (const StoreCase& c : share_of(store_cases(), 2, 3)) {
    check_gathers(comm::Mesh(*group), c);
    check_reductions(comm::Mesh(*group), c, 2);
    check_updates(comm::Mesh(*group), c);
  }
}

// Two ranks that share experts cast their rows of blocks, of all experts together.
TEST(Store, GathersCodesOfBlocksOfExperts) {
  const int ranks = world().size();
  const comm::MeshShape shape{1, ranks, 1, ranks == 4 ? 2 : 1, 1};
  const comm::Mesh mesh(world(), shape);
  for (const bool reshard : {false, true}) {
    StoreCase c{reshard ? "resharded" : "kept", store_of(DType::bf16, "blockwise", 3, reshard)};
    c.squares = c.experts = true;
    const Layout layout(shape, world().rank(), c.model(), c.table(), c.options);
    for (const model::Slot slot : {model::Slot::experts_gate_up, model::Slot::experts_down})
      EXPECT_EQ(layout.unit(1)[static_cast<std::size_t>(slot)].form == WeightForm::block_codes, ranks % 2 == 0);
    check_gathers(mesh, c);
    check_updates(mesh, c);
  }
}

// Two ranks cast their rows of blocks. Four ranks would have parts of blocks, so that bf16 weights are gathered.
TEST(Store, GathersCodesOfBlocks) {
  for (const int zero : {1, 3}) {
    StoreCase c{"blockwise, zero " + std::to_string(zero), store_of(DType::bf16, "blockwise", zero)};
    c.squares = true;
    const Layout layout(comm::Mesh(world()).shape(), world().rank(), c.model(), c.table(), c.options);
    EXPECT_EQ(layout.unit(1)[static_cast<std::size_t>(model::Slot::qkv)].form,
              world().size() == 2 ? WeightForm::block_codes : WeightForm::compute);
    check_gathers(comm::Mesh(world()), c);
    check_updates(comm::Mesh(world()), c);
  }
}

/// Counts what is started in groups, and the tensors in them.
struct Counting final : comm::Forwarding {
  using Forwarding::Forwarding;
  comm::Request start_all_gathers(std::span<const comm::GatheredTensor> tensors) override {
    ++gathers, gathered += static_cast<int>(tensors.size());
    return Forwarding::start_all_gathers(tensors);
  }
  comm::Request start_reduce_scatters(std::span<const comm::ScatteredTensor> tensors) override {
    ++scatters, scattered += static_cast<int>(tensors.size());
    return Forwarding::start_reduce_scatters(tensors);
  }
  int gathers = 0, gathered = 0, scatters = 0, scattered = 0;
};

// A unit takes one group for its weights and one for its gradients, whatever the number of its tensors.
TEST(Store, StartsOneGroupForAUnit) {
  if (world().size() == 1) GTEST_SKIP() << "one rank gathers nothing";
  const quant::Recipe& rowwise = quant::find_recipe("rowwise");
  for (const quant::Recipe* recipe : {&quant::find_recipe("tensorwise"), &rowwise, &quant::with_single_copy(rowwise)}) {
    Counting counting(world());
    const hf::ModelConfig config = small_model();
    StoreOptions options = store_of(DType::bf16, "rowwise");
    options.fp8.recipe = recipe;
    Kit kit(counting, config, small_table(config), options);
    kit.fill(odd_value);
    const int units = static_cast<int>(config.num_hidden_layers) + 2,
              tensors = static_cast<int>(kit.store.table().size());
    for (int unit = 0; unit < units; ++unit) {
      const device::Scope scope(kit.arena);
      (void)kit.store.unshard(kit.ctx, unit, model::Pass::forward);
      kit.store.prefetch(unit + 1, model::Pass::forward);
    }
    EXPECT_EQ(counting.gathers, units);
    const int scales = recipe->name == rowwise.name ? 7 * static_cast<int>(config.num_hidden_layers) : 0;
    EXPECT_EQ(counting.gathered, tensors + scales);
    give_gradients(kit.store, 5, 1.0f, 0, 1);
    kit.store.gradients().finish(kit.ctx);
    EXPECT_EQ(counting.scatters, units);
    EXPECT_EQ(counting.scattered, tensors);
  }
}

}  // namespace
}  // namespace fp8::shard

int main(int argc, char** argv) { return fp8::comm::run_tests(argc, argv); }
