// Checkpoints saved by one number of ranks and loaded by another, without MPI: each rank's part is computed in turn, so
// that numbers of ranks are tested which state_mpi_test.cc does not have.
#include "fp8/state/state.h"

#include <cmath>

#include "divide.h"
#include "fp8/json/json.h"
#include "manifest_parts.h"
#include "small_model.h"

namespace fp8::state {
namespace {

using namespace test;

// Rank r of n without the other ranks; every collective is an error.
class Lone final : public comm::Communicator {
 public:
  Lone(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void barrier() override { no_ranks(); }
  void all_reduce(std::span<double>, comm::Reduce) override { no_ranks(); }
  void all_reduce(std::span<std::int64_t>, comm::Reduce) override { no_ranks(); }
  void broadcast(std::span<std::byte>, int) override { no_ranks(); }
  std::vector<std::string> all_gather(const std::string&) override { no_ranks(); }
  comm::Request start_all_gathers(std::span<const comm::GatheredTensor>) override { no_ranks(); }
  comm::Request start_reduce_scatters(std::span<const comm::ScatteredTensor>) override { no_ranks(); }
  comm::Request start_all_reduces(std::span<const std::span<float>>, comm::Reduce) override { no_ranks(); }
  comm::Request start_all_to_all(const std::byte*, std::span<const std::int64_t>, std::byte*,
                                 std::span<const std::int64_t>) override {
    no_ranks();
  }
  comm::Request start_messages(std::span<const comm::SentMessage>, std::span<const comm::ReceivedMessage>) override {
    no_ranks();
  }
  std::unique_ptr<comm::Communicator> split(int, int, const std::string&) override { no_ranks(); }
  bool watch(double, const std::function<void(const watchdog::Stall&)>&) override { no_ranks(); }
  watchdog::ProgressTable& progress() override { return progress_; }

 private:
  [[noreturn]] static void no_ranks() { throw Error("there are no other ranks"); }
  int rank_, size_;
  watchdog::ProgressTable progress_;
};

class State : public FolderTest {
 protected:
  // Loads the state of `from` (if empty: fresh values) on `ranks` ranks and saves it to at(name); returns the
  // checkpoint.
  std::string reshard(const std::string& from, int ranks, const std::string& name, DType stored) {
    shard::StoreOptions options;
    options.compute = DType::f32;
    options.master = options.moments = stored;
    const Documents documents{hf::to_json(model_), json::object({{"step", 3}}), json::Array{}, mesh_of(ranks), "{}"};
    std::filesystem::create_directories(at(name));
    std::string final_path = at(name) + "/step-00000003";
    const std::string folder = ckpt::begin_folder(final_path);
    std::vector<ckpt::FileEntry> entries;
    const auto alone = comm::solo();  // verifies all files, since there are no other ranks
    for (int rank = 0; rank < ranks; ++rank) {
      Lone group(rank, ranks);
      Kit kit(group, model_, table_, options);
      if (from.empty()) fresh(kit.store);
      if (!from.empty()) {
        EXPECT_EQ(load(kit, *alone, ckpt::Checkpoint::open(from), true), std::nullopt);
      }
      entries.push_back(write_shard(shard::state_tensors(kit.store), table_, documents, folder, rank, ranks, {}));
    }
    ckpt::commit_folder(folder, final_path, ckpt::FileKind::training, documents.mesh, entries);
    return final_path;
  }
  // Values that depend only on tensor and element; second moments are not negative.
  void fresh(const shard::ParameterStore& store) const {
    for (const shard::StateTensor& t : shard::state_tensors(store)) {
      const std::int64_t cols = table_[static_cast<std::size_t>(t.parameter)].cols();
      const bool square = t.name.starts_with(ckpt::kMomentV);
      const int salt = t.weight ? 0 : square ? 200 : 100;
      std::vector<float> values;
      for (std::int64_t i = t.rows.begin * cols; i < t.rows.end * cols; ++i) {
        const float value = odd_value(salt + t.parameter, i);
        values.push_back(square ? std::fabs(value) : value);
      }
      if (!values.empty()) dtype::from_floats(values, t.values.dtype, t.values.data);
    }
  }
  const hf::ModelConfig model_ = small_model();
  const std::vector<model::Parameter> table_ = small_table(model_);
};

void expect_same_files(const std::string& got, const std::string& wanted) {
  SCOPED_TRACE(got);
  const ckpt::Checkpoint checkpoint = ckpt::Checkpoint::open(got);
  EXPECT_TRUE(read_file(got + "/manifest.json") == read_file(wanted + "/manifest.json"));
  for (std::size_t i = 0; i < checkpoint.file_count(); ++i) {
    const std::string file = std::filesystem::path(checkpoint.file_path(i)).filename();
    EXPECT_TRUE(read_file(got + "/" + file) == read_file(wanted + "/" + file)) << file;
  }
}

// A state saved by P ranks, loaded and saved by Q ranks, is the same files as if Q ranks had saved it at first.
TEST_F(State, FromAnyNumberOfRanksToAnyAndBackIsTheSameBytes) {
  for (const DType stored : {DType::f32, DType::bf16}) {
    const std::string type(dtype::name_of(stored));
    const std::vector<int> scalars = stored == DType::f32 ? std::vector{1, 2, 3, 4, 5} : std::vector{2, 3};
    for (const int p : scalars) (void)reshard("", p, type + std::to_string(p), stored);
    for (const int p : scalars) {
      for (const int q : scalars) {
        const std::string from = at(type + std::to_string(p)) + "/step-00000003",
                          wanted = at(type + std::to_string(q)) + "/step-00000003",
                          got = reshard(from, q, type + std::to_string(p) + std::to_string(q), stored);
        EXPECT_EQ(ckpt::Checkpoint::open(got).world(), q);
        expect_same_files(got, wanted);
      }
    }
  }
}

// Blocks that other meshes write, split in rows and columns, are loaded by ranks of rows, with and without a
// conversion.
TEST_F(State, FromBlocksOfAnyMeshIsTheSameBytes) {
  for (const int ranks : {1, 2, 3}) {
    const std::string wanted = reshard("", ranks, "wanted" + std::to_string(ranks), DType::bf16),
                      upcast = reshard(wanted, ranks, "upcast" + std::to_string(ranks), DType::f32);
    for (const int writers : {1, 2, 4, 7}) {
      const std::string name = std::to_string(ranks) + "-" + std::to_string(writers), boxes = at("boxes" + name);
      divide(wanted, boxes, writers);
      expect_same_files(reshard(boxes, ranks, "same" + name, DType::bf16), wanted);
      expect_same_files(reshard(boxes, ranks, "float" + name, DType::f32), upcast);
    }
  }
}

// Each rank's tensors have its rows, and what a checkpoint holds is exactly the list.
TEST_F(State, TheListIsWhatACheckpointHolds) {
  const std::string path = reshard("", 2, "listed", DType::bf16);
  const ckpt::Checkpoint checkpoint = ckpt::Checkpoint::open(path);
  const std::vector<shard::StateTensor> all = shard::state_tensors(table_);
  EXPECT_EQ(checkpoint.tensors().size(), all.size());
  EXPECT_EQ(all.size(), 3 * table_.size());
  Lone one(1, 2);
  const Kit kit(one, model_, table_, shard::StoreOptions{});
  const std::vector<shard::StateTensor> own = shard::state_tensors(kit.store);
  ASSERT_EQ(own.size(), all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    const ckpt::TensorMeta& meta = checkpoint.at(all[i].name);
    EXPECT_EQ(meta.shape, all[i].shape) << all[i].name;
    EXPECT_EQ(meta.precision.empty(), !all[i].weight) << all[i].name;
    EXPECT_EQ(own[i].name, all[i].name);
    EXPECT_EQ(own[i].rows, shard::rows_of(all[i].shape.front(), 1, 2)) << all[i].name;
  }
}

TEST_F(State, AShardIsGivenUpWhenCancelled) {
  Lone group(0, 1);
  const Kit kit(group, model_, table_, shard::StoreOptions{});
  const std::string folder = ckpt::begin_folder(at("step-00000001"));
  const PieceRunner given_up = [](const auto&) { throw Error("given up"); };
  EXPECT_EQ(error_of([&] { (void)write_shard(shard::state_tensors(kit.store), table_, {}, folder, 0, 1, given_up); }),
            "given up");
}

}  // namespace
}  // namespace fp8::state
