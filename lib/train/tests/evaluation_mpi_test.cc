// Evaluations through stages of layers: all stages compute at the same time, sums have the bits of one rank, and the
// memory of each stage is what was planned.
#include <chrono>
#include <thread>

#include "../../comm/tests/mpi_main.h"
#include "fp8/train/step.h"
#include "small_model.h"

namespace fp8::train {
namespace {

using namespace test;

comm::Communicator& world() { return *comm::world(); }

constexpr std::int64_t kLength = 16, kBatch = 2, kSamples = 2 * kBatch * 4 + 1;  // the last round is shorter

// Waits on the last stage, in the first operation of the first pass, until stage 0 looks up the embeddings of as many
// passes as there are stages.
class Meeting final : public model::OperationObserver {
 public:
  explicit Meeting(comm::Communicator& ranks) : ranks_(ranks) {}
  void observe(const device::Context& ctx, const model::Operation& operation, const View&) override {
    if (ctx.dry) return;
    if (ranks_.rank() == 0 && operation.name == "embed_tokens" && ++passes_ == ranks_.size())
      message_ = ranks_.start_messages(std::array{comm::SentMessage{&byte_, 1, last()}}, {});
    if (ranks_.rank() == last() && !waited_) wait();
  }
  bool met() const { return met_; }

 private:
  int last() const { return ranks_.size() - 1; }
  void wait() {
    waited_ = true;
    message_ = ranks_.start_messages({}, std::array{comm::ReceivedMessage{&byte_, 1, 0}});
    const auto begin = std::chrono::steady_clock::now();
    while (!(met_ = message_.test()) && std::chrono::steady_clock::now() - begin < std::chrono::seconds(20))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  comm::Communicator& ranks_;
  int passes_ = 0;
  bool waited_ = false, met_ = false;
  std::byte byte_{};
  comm::Request message_;
};

// What an evaluation gives.
struct Result {
  LossSum sum;
  std::vector<float> losses;       // of all samples, on the rank that counts them
  std::vector<std::int64_t> seen;  // first samples of the rounds
};

class EvaluationOfStages : public FolderTest {
 protected:
  EvaluationOfStages() {
    write_tokens(at("data.h5"), 1000, 64);
    tokens_.emplace(at("data.h5"));
    sampler_.emplace(*tokens_, data::SamplerKind::sequential, 0, kLength, 1, data::DocumentMode::joined);
    config_.num_hidden_layers = 4;
    precision_.precision = settings::Precision::fp8;
  }
  shard::ModelSpec spec_of(const comm::Mesh& mesh, const char* recipe) {
    precision_.recipe = recipe;
    shard::StoreOptions options = settings::store_options(precision_, nullptr);
    options.training = false;
    options.stages = model::divide_layers({0, {1, 1, 1, 1}, 0}, mesh.stages().size());
    return {config_, small_table(config_), options};
  }
  // Evaluates on the ranks of a mesh in as much memory as was planned.
  Result evaluate(const comm::Mesh& mesh, const shard::ModelSpec& spec) {
    const shard::BatchShape shape{kBatch, kLength, {}};
    const shard::MemoryPlan plan = shard::plan_memory({}, mesh, spec, shape, shape);
    shard::ShardedModel model({}, mesh, spec, plan);
    fill_masters(model, [&](int number, std::int64_t begin, std::int64_t end) {
      const std::int64_t cols = model.store.table()[static_cast<std::size_t>(number)].cols();
      std::vector<float> values;
      for (std::int64_t i = begin * cols; i < end * cols; ++i) values.push_back(odd_value(number, i));
      return values;
    });
    Result r;
    const EachSamples each = [&r](std::int64_t first, std::int64_t count, const float* losses) {
      r.seen.push_back(first);
      r.losses.insert(r.losses.end(), losses, losses + count * kLength);
    };
    r.sum = evaluate_samples(model, mesh.all(), *sampler_, {kSamples, kBatch, kLength},
                             planned_forward(spec, plan.logit_bytes, precision_, model.store.stage()), each);
    EXPECT_EQ(model.arena.peak(), plan.bytes) << "stage " << mesh.stages().rank();
    return r;
  }

  hf::ModelConfig config_ = small_model();
  settings::PrecisionConfig precision_;
  std::optional<data::TokenFile> tokens_;
  std::optional<data::Sampler> sampler_;
};

TEST_F(EvaluationOfStages, HasTheBitsOfOneRankInThePlannedMemory) {
  const comm::Mesh mesh(world(), {1, 1, world().size()});
  const auto alone = comm::solo();
  const comm::Mesh one(*alone);
  for (const char* recipe : {"tensorwise", "delayed"}) {
    SCOPED_TRACE(recipe);
    const Result several = evaluate(mesh, spec_of(mesh, recipe)), single = evaluate(one, spec_of(one, recipe));
    EXPECT_EQ(several.sum.loss, single.sum.loss);
    EXPECT_EQ(several.sum.targets, single.sum.targets);
    EXPECT_EQ(several.seen, single.seen);
    EXPECT_EQ(several.losses, mesh.counts_samples() ? single.losses : std::vector<float>());
  }
}

TEST_F(EvaluationOfStages, AllStagesComputeAtTheSameTime) {
  if (world().size() == 1) GTEST_SKIP() << "for several ranks";
  const comm::Mesh mesh(world(), {1, 1, world().size()});
  const auto events = world().split(0, world().rank(), "events");
  Meeting meeting(*events);
  shard::ModelSpec spec = spec_of(mesh, "tensorwise");
  spec.execution.observer = &meeting;
  (void)evaluate(mesh, spec);
  EXPECT_EQ(meeting.met(), mesh.last_stage())
      << "the last stage ended the first batch before stage 0 began batch " << world().size();
}

}  // namespace
}  // namespace fp8::train
