// Figures of GEMMs in the records of steps, evaluations and inspections: sums over the ranks of a job.
#include <algorithm>
#include <optional>

#include "../../comm/tests/mpi_main.h"
#include "fp8/inspect/inspect.h"
#include "fp8/model/initialize.h"
#include "fp8/train/evaluate.h"
#include "small_model.h"

namespace fp8::inspect {
namespace {

constexpr std::int64_t kLength = 32;

comm::Communicator& world() { return *comm::world(); }

// Seven packed sequences with one to seven documents, so that ranks have different FLOPs of attention.
void write_packed(const std::string& path) {
  data::TokenInfo info;
  info.vocab_size = 64, info.sequence_length = kLength;
  data::TokenWriter writer(path, info, false);
  for (std::size_t documents = 1; documents <= 7; ++documents) {
    std::vector<std::uint32_t> ids(kLength - 4 * (documents - 1), 40);
    for (std::size_t i = 0; i < documents; ++i) {
      writer.append(ids);
      writer.end_document();
      ids.assign(4, static_cast<std::uint32_t>(50 + i));
    }
  }
  (void)writer.finish();
}

// A folder of all ranks with a model and data.
class Files {
 public:
  Files() {
    comm::agree(world(), [&] {
      if (world().rank() != 0) return;
      own_.emplace();
      (void)model::initialize(test::small_model(), own_->path() + "/m.h5", {});
      write_packed(own_->path() + "/data.h5");
    });
    folder_ = world().all_gather(own_ ? own_->path() : "")[0];
  }
  ~Files() { world().barrier(); }
  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;
  std::string at(const std::string& name) const { return folder_ + "/" + name; }

 private:
  std::optional<test::TemporaryFolder> own_;  // folder of rank 0
  std::string folder_;
};

// The records of a step of six sequences, of an evaluation of all seven, and of an inspection of six. Collective.
std::vector<json::Value> records_on(comm::Communicator& group, const Files& files) {
  constexpr int kSequences = 6;
  std::vector<json::Value> records;
  state::Hooks hooks;
  hooks.record = [&](const json::Value& r) { records.push_back(r); };
  settings::RunConfig c;
  c.model = files.at("m.h5"), c.data = files.at("data.h5"), c.out = files.at("run" + std::to_string(group.size()));
  c.seq_length = kLength, c.batch_size = 1, c.grad_accumulation = kSequences / group.size(), c.steps = 1;
  c.flags = json::object({});
  c.precision.precision = settings::Precision::fp8, c.precision.recipe = "delayed";
  EXPECT_EQ(train::run(c, group, hooks), Exit::done);
  settings::InspectConfig i;
  i.model = c.model, i.data = c.data, i.seq_length = kLength, i.batch_size = 1, i.precision = c.precision;
  train::evaluate(i, group, hooks);
  i.batch_size = kSequences / group.size(), i.recipes = {"delayed"};
  EXPECT_EQ(inspect_checkpoint(i, group, hooks), Exit::done);
  return records;
}

// The fields of the first record of a type that describe its GEMMs.
std::vector<double> figures_of(const std::vector<json::Value>& records, const std::string& type) {
  const auto is_of_type = [&](const json::Value& r) { return r.as_object().get_string("type", "record") == type; };
  const json::Object& record = std::ranges::find_if(records, is_of_type)->as_object();
  std::vector<double> figures;
  for (const char* name : {"fp8_flop_share", "fp8_flop_share_total", "fp8_gemms"})
    figures.push_back(record.at(name).as_double());
  return figures;
}

// One, two and three ranks have the figures of the same global batch or file.
TEST(Figures, OfGemmsAreSumsOverRanks) {
  const Files files;
  std::vector<json::Value> of_one;
  for (int ranks = 1; ranks <= std::min(3, world().size()); ++ranks) {
    const auto group = world().split(world().rank() < ranks ? 0 : 1, world().rank(), "");
    if (world().rank() >= ranks) continue;
    const std::vector<json::Value> records = records_on(*group, files);
    if (group->rank() != 0) continue;
    SCOPED_TRACE(ranks);
    if (ranks == 1) of_one = records;
    EXPECT_EQ(figures_of(records, "step"), figures_of(of_one, "step"));
    EXPECT_EQ(figures_of(records, "eval"), figures_of(of_one, "eval")) << "two and three ranks have a round with gaps";
    std::vector<double> inspected = figures_of(of_one, "inspect");
    inspected.back() *= ranks;  // each rank has one micro-batch
    EXPECT_EQ(figures_of(records, "inspect"), inspected);
  }
  world().barrier();
}

}  // namespace
}  // namespace fp8::inspect

int main(int argc, char** argv) { return fp8::comm::run_tests(argc, argv); }
