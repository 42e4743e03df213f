// Checkpoints that change hands between numbers of ranks, each rank's part made by itself: what the same over MPI
// (train_mpi_test.cc) cannot do at every number.
#include "state.h"

#include <cmath>

#include "fp8/json/json.h"
#include "helpers.h"

namespace fp8::train {
namespace {

// Rank r of n without the others: enough where nothing is asked of them.
class Lone final : public comm::Communicator {
 public:
  Lone(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void barrier() override { refuse(); }
  void all_reduce(std::span<float>, comm::Reduce) override { refuse(); }
  void all_reduce(std::span<double>, comm::Reduce) override { refuse(); }
  void all_reduce(std::span<std::int64_t>, comm::Reduce) override { refuse(); }
  void broadcast(std::span<std::byte>, int) override { refuse(); }
  std::vector<std::string> all_gather(const std::string&) override { refuse(); }
  comm::Request start_all_gather(const std::byte*, std::byte*, std::span<const std::int64_t>) override { refuse(); }
  comm::Request start_reduce_scatter(float*, float*, std::span<const std::int64_t>) override { refuse(); }
  std::unique_ptr<comm::Communicator> split(int, int) override { refuse(); }

 private:
  [[noreturn]] static void refuse() { throw Error("nobody is there"); }
  int rank_, size_;
};

class State : public FolderTest {
 protected:
  // The state of `from` (fresh numbers where it is empty), saved by `ranks` ranks to at(name); returns its folder.
  std::string pass_on(const std::string& from, int ranks, const std::string& name, DType stored) {
    StoreOptions options;
    options.compute = DType::f32;
    options.master = options.moments = stored;
    const Documents documents{hf::to_json(model_), json::object({{"step", 3}}), json::Array{},
                              json::object({{"world", ranks}}), "{}"};
    std::filesystem::create_directories(at(name));
    std::string final_path = at(name) + "/step-00000003";
    const std::string folder = ckpt::begin_folder(final_path);
    std::vector<ckpt::FileEntry> entries;
    const auto alone = comm::solo();  // verifies all files, since nobody else does
    for (int rank = 0; rank < ranks; ++rank) {
      Lone group(rank, ranks);
      const Kit kit(group, model_, table_, options);
      if (from.empty()) fresh(*kit.store);
      if (!from.empty()) {
        EXPECT_EQ(load(kit.ctx, *alone, ckpt::Checkpoint::open(from), *kit.store, true), std::nullopt);
      }
      entries.push_back(write_shard(kit.store->shards(), table_, documents, folder, rank, ranks, false));
    }
    ckpt::commit_folder(folder, final_path, ckpt::FileKind::training, documents.mesh, entries);
    return final_path;
  }
  // Numbers that depend on the element alone.
  void fresh(const ParameterStore& store) const {
    for (const ParameterShard& o : store.shards()) {
      const std::int64_t cols = table_[static_cast<std::size_t>(o.number)].cols();
      int salt = 0;
      for (const View& v : {o.master, o.m, o.v}) {
        std::vector<float> values;
        for (std::int64_t i = o.rows.begin * cols; i < o.rows.end * cols; ++i)
          values.push_back(salt == 2 ? std::fabs(odd_value(200 + o.number, i)) : odd_value(100 * salt + o.number, i));
        if (!values.empty()) dtype::from_floats(values, v.dtype, v.data);
        ++salt;
      }
    }
  }
  const hf::ModelConfig model_ = small_model();
  const std::vector<model::Parameter> table_ = small_table(model_);
};

// What Q ranks save of what P saved is what Q save of the same numbers, to the byte: so back on P it is what P had.
TEST_F(State, FromAnyNumberOfRanksToAnyAndBackIsTheSameBytes) {
  for (const DType stored : {DType::f32, DType::bf16}) {
    const std::string type(dtype::name_of(stored));
    const std::vector<int> scalars = stored == DType::f32 ? std::vector{1, 2, 3, 4, 5} : std::vector{2, 3};
    for (const int p : scalars) (void)pass_on("", p, type + std::to_string(p), stored);
    for (const int p : scalars) {
      for (const int q : scalars) {
        const std::string from = at(type + std::to_string(p)) + "/step-00000003",
                          wanted = at(type + std::to_string(q)) + "/step-00000003",
                          got = pass_on(from, q, type + std::to_string(p) + std::to_string(q), stored);
        SCOPED_TRACE(got);
        const ckpt::Checkpoint checkpoint = ckpt::Checkpoint::open(got);
        EXPECT_EQ(checkpoint.world(), q);
        EXPECT_TRUE(read_file(got + "/manifest.json") == read_file(wanted + "/manifest.json"));
        for (std::size_t i = 0; i < checkpoint.file_count(); ++i) {
          const std::string file = std::filesystem::path(checkpoint.file_path(i)).filename();
          EXPECT_TRUE(read_file(got + "/" + file) == read_file(wanted + "/" + file)) << file;
        }
      }
    }
  }
}

TEST_F(State, AShardIsGivenUpWhenCancelled) {
  Lone group(0, 1);
  const Kit kit(group, model_, table_, StoreOptions{});
  const std::string folder = ckpt::begin_folder(at("step-00000001"));
  EXPECT_EQ(error_of([&] { (void)write_shard(kit.store->shards(), table_, {}, folder, 0, 1, true); }),
            folder + ": given up");
}

}  // namespace
}  // namespace fp8::train
