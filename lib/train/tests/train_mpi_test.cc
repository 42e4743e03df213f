// The parameters of a run over the ranks of a job, and checkpoints that change hands between numbers of ranks.
#include <filesystem>
#include <optional>

#include "../../comm/tests/mpi_main.h"
#include "fp8/model/describe.h"
#include "saver.h"
#include "store_cases.h"

namespace fp8::train {
namespace {

comm::Communicator& world() { return *comm::world(); }

TEST(Store, GathersAreTheWholeWeights) {
  for (const StoreCase& c : store_cases()) check_gathers(world(), c);
}

TEST(Store, GradientsAreSumsOverRanksAndMicroBatches) {
  for (const StoreCase& c : store_cases()) {
    for (const int micro_batches : {1, 3}) check_reductions(world(), c, micro_batches);
  }
}

TEST(Store, AnUpdateIsThatOfOneRank) {
  for (const StoreCase& c : store_cases()) check_updates(world(), c);
}

// Three of four ranks, or two of three: numbers that divide nothing.
TEST(Store, OverSomeOfTheRanks) {
  const int some = world().size() - 1;
  const auto group = world().split(world().rank() < some ? 0 : 1, world().rank());
  if (world().rank() >= some) return;
  for (const StoreCase& c : store_cases()) {
    check_gathers(*group, c);
    check_reductions(*group, c, 2);
    check_updates(*group, c);
  }
}

// On the first `ranks` ranks: takes the state of `from` (fresh numbers where it is empty) and saves it to `run`.
void pass_on(int ranks, const std::string& from, const std::string& run, const StoreOptions& options) {
  const auto group = world().split(world().rank() < ranks ? 0 : 1, world().rank());
  if (world().rank() < ranks) {
    const hf::Config config = small_model();
    Kit kit(*group, config, small_table(config), options);
    kit.fill(odd_value);
    give_gradients(*kit.store, 5, 1.0f / static_cast<float>(ranks), 0, 1);
    kit.store->finish_gradients(kit.ctx);
    const optim::Settings settings;
    kit.store->update(kit.ctx, settings, optim::scalars_of(settings, 1, 0.01, 1.0, 1.0, 0));
    if (!from.empty()) load(ckpt::Checkpoint::open(from), *kit.store, true);
    const Documents documents{hf::to_json(config), json::object({{"step", 3}}), json::Array{},
                              json::object({{"world", ranks}}), "{}"};
    if (world().rank() == 0) std::filesystem::create_directories(run);
    group->barrier();
    const Hooks hooks;
    Journal journal(hooks, *group);
    Saver saver(*group, journal, SavePolicy{run, 0, 0, 0, false});
    saver.save({3, documents, *kit.store, kit.store->table(), std::nullopt}, kit.ctx, nullptr);
    EXPECT_EQ(saver.failure(), "");
  }
  world().barrier();
}

// Saved on P, loaded and saved on Q, loaded and saved on P: the same bytes; and what Q saved holds the same numbers.
TEST(State, AnyNumberOfRanks) {
  std::optional<test::TemporaryFolder> own;  // of rank 0
  comm::agree(world(), [&] {
    if (world().rank() == 0) own.emplace();
  });
  const std::string folder = world().all_gather(own ? own->path() : "")[0];
  const int most = std::min(3, world().size());
  for (const DType stored : {DType::f32, DType::bf16}) {
    StoreOptions options = store_of(DType::bf16, "tensorwise");
    options.master = options.moments = stored;
    for (int p = 1; p <= most; ++p) {
      for (int q = 1; q <= most; ++q) {
        if (stored == DType::bf16 && (p != most || q != most - 1)) continue;  // one of these shows what there is to see
        const std::string at =
            folder + "/" + std::to_string(p) + std::to_string(q) + std::string(dtype::name_of(stored));
        const std::string step = "/step-00000003";
        pass_on(p, "", at + "/a", options);
        pass_on(q, at + "/a" + step, at + "/b", options);
        pass_on(p, at + "/b" + step, at + "/c", options);
        if (world().rank() != 0) continue;
        SCOPED_TRACE(at);
        const ckpt::Checkpoint first = ckpt::Checkpoint::open(at + "/a" + step),
                               second = ckpt::Checkpoint::open(at + "/b" + step);
        second.verify();
        EXPECT_EQ(second.world(), q);
        EXPECT_TRUE(model::distance(first, second, {}).equal);
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

}  // namespace
}  // namespace fp8::train

int main(int argc, char** argv) { return fp8::comm::run_tests(argc, argv); }
