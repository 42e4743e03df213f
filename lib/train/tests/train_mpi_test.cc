// Runs on the ranks of a job, and faults of one rank.
#include <filesystem>
#include <numeric>
#include <optional>

#include "../../comm/tests/forwarding.h"
#include "fp8/ckpt/run_folder.h"
#include "fp8/convert/convert.h"
#include "fp8/state/saver.h"
#include "fp8/train/evaluate.h"
#include "plain_file.h"
#include "run_files.h"

namespace fp8::train {
namespace {

/// A communicator with a faulty rank: results of its first collectives after flip() or poison() are damaged. Several
/// all-gathers are damaged, since a batch reads only some rows of the embedding.
class Faulty final : public comm::Forwarding {
 public:
  Faulty(comm::Communicator& good, int victim) : Forwarding(good), victim_(victim) {}
  /// The next all-gathers return a NaN on the victim.
  void poison() { poisons_ = rank() == victim_ ? 6 : 0; }
  /// The next all-gathers, or the next reduce-scatter, return a wrong bit or value on the victim.
  void flip(bool gather) { (gather ? gathers_ : scatters_) = rank() != victim_ ? 0 : gather ? 6 : 1; }

  comm::Request start_all_gathers(std::span<const comm::GatheredTensor> tensors) override {
    comm::Request r = Forwarding::start_all_gathers(tensors);
    for (const auto& [mine, all, bytes] : tensors) {
      const std::int64_t total = std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
      if (poisons_ > 0 && total > 1) {
        r.wait();
        std::fill_n(all + (total / 2 & ~std::int64_t{1}), 2, std::byte{0xFF});
        --poisons_;
      }
      if (gathers_ > 0 && total > 0) r.wait(), all[total / 2 | 1] ^= std::byte{1}, --gathers_;
    }
    return r;
  }
  comm::Request start_reduce_scatters(std::span<const comm::ScatteredTensor> tensors) override {
    for (const auto& [full, mine, counts] : tensors) {
      const auto own = counts.begin() + rank();
      if (scatters_ > 0 && *own > 0) full[std::accumulate(counts.begin(), own, std::int64_t{0})] += 1.0f, --scatters_;
    }
    return Forwarding::start_reduce_scatters(tensors);
  }

 private:
  int victim_;
  int gathers_ = 0, scatters_ = 0, poisons_ = 0;  // still to damage
};

// One rank computes a NaN in step 2: all ranks skip the step and count the same.
TEST(Run, WhatIsNotFiniteOnOneRankIsSkippedByAll) {
  const RunFiles files;
  for (int victim = 0; victim < world().size() && world().size() > 1; ++victim) {
    Faulty faulty(world(), victim);
    settings::RunConfig config = files.config("nan" + std::to_string(victim));
    config.save_every = 5;
    state::Hooks hooks;
    int steps = 0;
    hooks.stop_requested = [&] {
      if (++steps == 1) faulty.poison();
      return false;
    };
    std::string skipped;
    hooks.record = [&](const json::Value& r) {
      if (const json::Value* s = r.as_object().find("skipped")) skipped += s->as_bool() ? "x" : ".";
    };
    EXPECT_EQ(run(config, faulty, hooks), Exit::done);
    EXPECT_EQ(skipped, world().rank() == 0 ? ".x..." : "");
    const auto last = ckpt::Checkpoint::open(config.out + "/step-00000005");
    last.verify();
    EXPECT_EQ(last.train().as_object().get_int("step", "train"), 5);
    EXPECT_EQ(last.train().as_object().get_int("updates", "train"), 4);
    world().barrier();
  }
}

// One rank computes step 3 with a damaged weight or a wrong sum: all ranks end with the same error, which names that
// rank, and the newest checkpoint is that of step 2.
TEST(Run, AStepThatDiffersWhenComputedTwiceIsNotSaved) {
  const RunFiles files;
  const int victim = world().size() - 1;
  for (const bool gather : {true, false}) {
    if (world().size() == 1) break;  // one rank gathers nothing
    Faulty faulty(world(), victim);
    settings::RunConfig config = files.config(gather ? "gather" : "sum");
    config.paranoid = 1;
    state::Hooks hooks;
    int steps = 0;
    hooks.stop_requested = [&] {
      if (++steps == 2) faulty.flip(gather);
      return false;
    };
    const std::string said = error_of([&] { (void)run(config, faulty, hooks); });
    const std::string begin = "rank " + std::to_string(victim) + ": --paranoid: step 3, computed twice: the " +
                              (gather ? "gradient of " : "sum over ranks of the gradient of ");
    EXPECT_EQ(said.find(begin), 0u) << said;
    const auto kept = ckpt::list_steps(config.out);
    ASSERT_EQ(kept.size(), 2u);
    for (const auto& step : kept) ckpt::Checkpoint::open(step.path).verify();
    world().barrier();
  }
}

/// tests/golden/chat/packed-loss.h5 as token files: documents in one packed sequence, and one each.
struct PackedFiles {
  std::optional<test::TemporaryFolder> own;  // folder of rank 0
  std::string folder;
  static constexpr std::size_t kLength = 120;
  const test::PlainFile reference{"tests/golden/chat/packed-loss.h5"};

  PackedFiles() {
    comm::agree(world(), [&] {
      if (world().rank() != 0) return;
      own.emplace();
      (void)convert::convert("tests/golden/models/llama3/hf", own->path() + "/m.h5", {});
      write(own->path() + "/packed.h5", true);
      write(own->path() + "/each.h5", false);
    });
    folder = world().all_gather(own ? own->path() : "")[0];
  }
  ~PackedFiles() { world().barrier(); }
  PackedFiles(const PackedFiles&) = delete;
  PackedFiles& operator=(const PackedFiles&) = delete;

  void write(const std::string& path, bool packed) const {
    data::TokenInfo info;
    info.vocab_size = 256, info.mask = true;
    if (packed) info.sequence_length = kLength;
    data::TokenWriter writer(path, info, false);
    std::vector<std::uint32_t> padding(kLength);
    for (int k = 0; k < 3; ++k) {
      const std::string document = "documents/" + std::to_string(k);
      const auto ids = reference.read_as<std::int32_t>(document + "/tokens");
      writer.append(std::vector<std::uint32_t>(ids.begin(), ids.end()),
                    reference.read_as<std::uint8_t>(document + "/mask"));
      writer.end_document();
      padding.resize(padding.size() - ids.size());
    }
    if (packed) writer.append(padding, std::vector<std::uint8_t>(padding.size()));
    (void)writer.finish();
  }
  double value(const char* name) const { return reference.read_as<double>(name).at(0); }
};

// One, two and three ranks, whose documents have different numbers of targets: the loss of a step and of an evaluation
// is the mean over all targets, packed or not.
TEST(Run, PackedDocumentsHaveTheLossOfDocumentsAlone) {
  const PackedFiles files;
  for (int ranks = 1; ranks <= std::min(3, world().size()); ++ranks) {
    const auto group = world().split(world().rank() < ranks ? 0 : 1, world().rank(), "");
    if (world().rank() >= ranks) continue;
    for (const char* name : {"packed", "each"}) {
      SCOPED_TRACE(std::string(name) + " on " + std::to_string(ranks));
      std::vector<json::Value> records;
      state::Hooks hooks;
      hooks.record = [&](const json::Value& r) { records.push_back(r); };
      settings::RunConfig c;
      c.model = files.folder + "/m.h5", c.data = files.folder + "/" + name + ".h5";
      c.out = files.folder + "/" + name + std::to_string(ranks);
      c.seq_length = PackedFiles::kLength, c.batch_size = 1, c.steps = 1, c.flags = json::object({});
      c.grad_accumulation = std::string_view(name) == "each" && ranks != 3 ? 3 : 1;
      c.sampler = data::SamplerKind::sequential;
      c.precision.precision = settings::Precision::fp32, c.precision.execution.activation = DType::f32;
      EXPECT_EQ(run(c, *group, hooks), Exit::done);
      if (group->rank() == 0) {
        const json::Object& step = records.at(1).as_object();
        EXPECT_NEAR(step.get_double("loss", "step"), files.value("loss"), 1e-6);
        EXPECT_NEAR(step.get_double("grad_norm", "step"), files.value("grad_norm"), 2e-5 * files.value("grad_norm"));
      }
      settings::EvalConfig e;
      e.model = c.model, e.data = c.data, e.seq_length = c.seq_length, e.batch_size = 2, e.precision = c.precision;
      evaluate(e, *group, hooks);
      if (group->rank() == 0) {
        EXPECT_NEAR(records.back().as_object().get_double("loss", "eval"), files.value("loss"), 1e-6);
      }
    }
  }
  world().barrier();
}

}  // namespace
}  // namespace fp8::train

int main(int argc, char** argv) { return fp8::comm::run_tests(argc, argv); }
