// Checkpoints loaded by other numbers of ranks than saved them.
#include <filesystem>
#include <optional>

#include "../../comm/tests/mpi_main.h"
#include "../../shard/tests/store_cases.h"
#include "fp8/convert/describe.h"
#include "fp8/state/saver.h"
#include "manifest_parts.h"
#include "small_model.h"

namespace fp8::state {
namespace {

using namespace test;

comm::Communicator& world() { return *comm::world(); }

// On the first ranks, as many as the mesh has: loads the state of `from` (if empty: fresh values) and saves it to
// `run`.
void reshard(const comm::MeshShape& shape, const std::string& from, const std::string& run,
             const shard::StoreOptions& options) {
  const int ranks = shape.ranks();
  const auto group = world().split(world().rank() < ranks ? 0 : 1, world().rank(), "");
  if (world().rank() < ranks) {
    const hf::ModelConfig config = small_model();
    Kit kit(comm::Mesh(*group, shape), config, small_table(config), options);
    kit.fill(odd_value);
    shard::give_gradients(kit.store, 5, 1.0f / static_cast<float>(ranks), 0, 1);
    kit.store.gradients().finish(kit.ctx);
    const optim::Settings settings;
    const optim::Gate gate;
    kit.store.update(kit.ctx, kit.engine, settings, optim::scalars_of(settings, 1, 0.01, 0, &gate));
    if (!from.empty()) {
      EXPECT_EQ(load(kit, *group, ckpt::Checkpoint::open(from), true), std::nullopt);
    }
    const Documents documents{hf::to_json(config), json::object({{"step", 3}}), json::Array{},
                              mesh_of(ranks, shape.dp_replicate, shape.tp), "{}"};
    if (world().rank() == 0) std::filesystem::create_directories(run);
    group->barrier();
    const Hooks hooks;
    Journal journal(hooks, *group);
    SaveState saves(*group, journal, SavePolicy{run, 0, 0, 0, false});
    start_save(saves, {3, documents, kit.store, kit.store.table(), std::nullopt}, kit.ctx, nullptr);
    EXPECT_EQ(saves.failure, "");
  }
  world().barrier();
}

// A state saved on P ranks, loaded and saved on Q, and loaded and saved on P again has the same bytes; the checkpoint
// of Q holds the same values.
TEST(State, AnyNumberOfRanks) {
  std::optional<test::TemporaryFolder> own;  // folder of rank 0
  comm::agree(world(), [&] {
    if (world().rank() == 0) own.emplace();
  });
  const std::string folder = world().all_gather(own ? own->path() : "")[0];
  const int most = std::min(3, world().size());
  for (const auto& [stored, recipe] :
       {std::pair{DType::f32, "tensorwise"}, std::pair{DType::bf16, "tensorwise"}, std::pair{DType::f32, "delayed"}}) {
    shard::StoreOptions options = shard::store_of(DType::bf16, recipe);
    options.delayed.history = 4;
    options.master = options.moments = stored;
    for (int p = 1; p <= most; ++p) {
      for (int q = 1; q <= most; ++q) {
        const bool first_case = stored == DType::f32 && std::string(recipe) == "tensorwise";
        if (!first_case && (p != most || q != most - 1)) continue;  // one pair suffices
        const std::string at =
            folder + "/" + std::to_string(p) + std::to_string(q) + std::string(dtype::name_of(stored)) + recipe;
        const std::string step = "/step-00000003";
        reshard({1, p}, "", at + "/a", options);
        reshard({1, q}, at + "/a" + step, at + "/b", options);
        reshard({1, p}, at + "/b" + step, at + "/c", options);
        if (world().rank() != 0) continue;
        SCOPED_TRACE(at);
        const ckpt::Checkpoint first = ckpt::Checkpoint::open(at + "/a" + step),
                               second = ckpt::Checkpoint::open(at + "/b" + step);
        second.verify();
        EXPECT_EQ(second.world(), q);
        EXPECT_TRUE(convert::distance(first, second, {}).equal);
        EXPECT_TRUE(read_file(at + "/a" + step + "/manifest.json") == read_file(at + "/c" + step + "/manifest.json"));
        for (std::size_t i = 0; i < first.file_count(); ++i) {
          const std::string name = std::filesystem::path(first.file_path(i)).filename();
          EXPECT_TRUE(read_file(at + "/a" + step + "/" + name) == read_file(at + "/c" + step + "/" + name)) << name;
        }
      }
    }
  }
  world().barrier();
}

// Each replica, and each tp rank that has the same block, saves a part of the rows that it holds, so that every rank
// writes and no row is written twice; what one mesh wrote, any other reads.
TEST(State, OfReplicasIsWrittenOnce) {
  std::optional<test::TemporaryFolder> own;  // folder of rank 0
  comm::agree(world(), [&] {
    if (world().rank() == 0) own.emplace();
  });
  const std::string folder = world().all_gather(own ? own->path() : "")[0], step = "/step-00000003";
  shard::StoreOptions options = shard::store_of(DType::bf16, "delayed");
  options.delayed.history = 4;
  reshard({1, 1}, "", folder + "/one", options);
  for (const int tp : {1, 2})
    for (int replicas = tp == 1 ? 2 : 1; replicas * tp <= world().size(); replicas *= 2)
      for (int shards = 1; replicas * shards * tp <= world().size(); shards *= 2) {
        const std::string at = folder + "/" + std::to_string(replicas) + std::to_string(shards) + std::to_string(tp);
        reshard({replicas, shards, 1, 1, tp}, folder + "/one" + step, at + "/a", options);
        reshard({1, 1}, at + "/a" + step, at + "/b", options);
        if (world().rank() != 0) continue;
        SCOPED_TRACE(at);
        const ckpt::Checkpoint written = ckpt::Checkpoint::open(at + "/a" + step);
        written.verify();
        EXPECT_EQ(written.world(), replicas * shards * tp);
        const std::string weight = "weights/model.embed_tokens.weight";  // has rows for every rank
        EXPECT_EQ(written.at(weight).rows(), 64);
        for (const char* file : {"/manifest.json", "/rank-00000-of-00001.h5"})
          EXPECT_TRUE(read_file(at + "/b" + step + file) == read_file(folder + "/one" + step + file)) << file;
      }
  world().barrier();
}

}  // namespace
}  // namespace fp8::state

int main(int argc, char** argv) { return fp8::comm::run_tests(argc, argv); }
