// Gradients on several ranks: those of the reference models, and those of one rank however the batch and the parameters
// are divided. A communicator that loses the gradients of one rank shows that the comparison would notice.
#include <array>
#include <map>
#include <numeric>

#include "../../comm/tests/forwarding.h"
#include "fp8/convert/convert.h"
#include "fp8/h5/reader.h"
#include "fp8/hf/folder.h"
#include "gradient_files.h"

namespace fp8::train {
namespace {

// A way to divide a step.
struct Way {
  int zero, accumulation, recompute, data, lora;
};
constexpr std::array<const char*, 3> kData{"joined", "separate", "packed"};

// Every pair of two values of two settings: an orthogonal array of the settings with three values (zero, recompute,
// data), in which each value of accumulation and of adapters is in a row with each value of the others.
std::vector<Way> ways() {
  std::vector<Way> all;
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j)
      all.push_back({i + 1, (i + 2 * j) % 3 == 0 ? 1 : 2, j, (i + j) % 3, i == j || (i == 0 && j == 1) ? 1 : 0});
  return all;
}

// What is the same in a way and on one rank.
void apply_task(RunConfig& c, const GradientFiles& files, const Way& way) {
  c.data = files.at(std::string(kData[static_cast<std::size_t>(way.data)]) + ".h5");
  if (way.lora != 0) c.lora.rank = 4, c.lora.dropout = 0.25;
}

RunConfig config_of(const GradientFiles& files, const Way& way, int ranks, const std::string& name, int replicas = 1) {
  RunConfig c = files.config(name);
  apply_task(c, files, way);
  c.dp_replicate = replicas;
  c.zero = way.zero, c.grad_accumulation = way.accumulation,
  c.precision.execution.recompute = static_cast<model::Recompute>(way.recompute);
  c.batch_size = kGlobalBatch / ranks / way.accumulation;
  return c;
}

// The file with the gradients of one rank, which rank 0 makes once for each task.
const std::string& reference_of(const GradientFiles& files, const Way& way,
                                std::map<std::pair<int, int>, std::string>& made) {
  std::string& path = made[{way.data, way.lora}];
  if (!path.empty()) return path;
  const std::string name = "one-" + std::to_string(way.data) + std::to_string(way.lora);
  RunConfig c = files.config(name);
  apply_task(c, files, way);
  c.batch_size = kGlobalBatch;
  if (world().rank() == 0) {
    EXPECT_EQ(run(c, *comm::solo(), {}), Exit::done);
  }
  world().barrier();
  return path = c.gradients;
}

// Every way is in some run, and every mesh has a third of them; with FP8_LONG each mesh has all.
TEST(Gradients, AreThoseOfOneRankInEveryPairOfSettings) {
  const GradientFiles files;
  std::map<std::pair<int, int>, std::string> references;
  for (const int ranks : {1, 2, 3, 4}) {
    const int size = world().size();
    if (ranks > size || (ranks < size && ranks != 3)) continue;  // three ranks of four, else all
    const auto group = world().split(world().rank() < ranks ? 0 : 1, world().rank(), "");
    std::vector<int> meshes;
    for (int replicas = 1; replicas <= ranks; ++replicas)
      if (ranks % replicas == 0) meshes.push_back(replicas);
    const std::vector<Way> all = ways();
    const bool every = meshes.size() == 1 || comm::long_run(static_cast<int>(meshes.size() * all.size() * 2 / 3));
    for (std::size_t number = 0; number < all.size(); ++number) {
      const Way& way = all[number];
      const std::string& reference = reference_of(files, way, references);
      for (std::size_t mesh = 0; mesh < meshes.size(); ++mesh) {
        if (!every && third_of(number) != mesh % 3) continue;
        const int replicas = meshes[mesh];
        const std::string name = std::to_string(ranks) + "-" + std::to_string(replicas) + "-" +
                                 std::to_string(way.zero) + std::to_string(way.recompute);
        const RunConfig c = config_of(files, way, ranks, name, replicas);
        if (world().rank() < ranks) {
          EXPECT_EQ(run(c, *group, {}), Exit::done);
        }
        world().barrier();
        if (world().rank() != 0) continue;
        SCOPED_TRACE(name + ", accumulation " + std::to_string(way.accumulation) + ", " +
                     kData[static_cast<std::size_t>(way.data)] + (way.lora != 0 ? ", adapters" : ""));
        for (const char* key : {"loss", "grad_norm"})
          EXPECT_NEAR(metadata(c.gradients, key) / metadata(reference, key), 1, 1e-6) << key;
        EXPECT_LE(distance(reference, c.gradients), 1e-5);
      }
    }
  }
}

// Gradients that travel in bf16 are those of one rank to its rounding: of each rank's term, and of a sum over replicas.
TEST(Gradients, ThatTravelInBf16AreRounded) {
  const GradientFiles files;
  std::map<std::pair<int, int>, std::string> references;
  const int ranks = world().size();
  const bool every = ranks < 4 || comm::long_run(6);  // of four ranks each number of replicas has one way
  for (const Way& way : {Way{3, 2, 0, 0, 0}, Way{1, 2, 0, 1, 0}, Way{2, 1, 0, 2, 0}}) {
    const std::string& reference = reference_of(files, way, references);
    for (int replicas = 1; replicas <= ranks; replicas *= 2) {
      if (!every && replicas != 1 << (3 - way.zero)) continue;
      const std::string name = "bf16-" + std::to_string(replicas) + "-" + std::to_string(way.zero);
      RunConfig c = config_of(files, way, ranks, name, replicas);
      c.reduce = DType::bf16;
      EXPECT_EQ(run(c, world(), {}), Exit::done);
      if (world().rank() != 0) continue;
      SCOPED_TRACE(name);
      const double found = distance(reference, c.gradients);
      EXPECT_LE(found, ranks == 1 ? 1e-5 : 0x1p-6);
      EXPECT_GE(found, ranks == 1 ? 0 : 1e-4) << "nothing was rounded";
    }
  }
}

// A communicator in which the gradients of the last rank are not summed.
class Lossy final : public comm::Forwarding {
 public:
  using Forwarding::Forwarding;
  comm::Request start_reduce_scatters(std::span<const comm::ScatteredTensor> tensors) override {
    for (const auto& [full, mine, counts] : tensors)
      if (rank() == size() - 1) std::fill_n(full, std::accumulate(counts.begin(), counts.end(), std::int64_t{0}), 0.0f);
    return Forwarding::start_reduce_scatters(tensors);
  }
};

TEST(Gradients, OfARankThatIsNotSummedAreMissed) {
  if (world().size() != 2) GTEST_SKIP() << "for two ranks";
  const GradientFiles files;
  std::map<std::pair<int, int>, std::string> references;
  for (const Way& way : {Way{3, 1, 0, 0, 0}, Way{1, 2, 0, 1, 0}}) {
    const std::string& reference = reference_of(files, way, references);
    const RunConfig c = config_of(files, way, 2, "lossy" + std::to_string(way.zero));
    Lossy lossy(world());
    EXPECT_EQ(run(c, lossy, {}), Exit::done);
    world().barrier();
    if (world().rank() != 0) continue;
    EXPECT_NEAR(metadata(c.gradients, "loss") / metadata(reference, "loss"), 1, 1e-6) << "the loss does not tell";
    EXPECT_GT(distance(reference, c.gradients), 0.1);
  }
}

// Models of tests/golden/models on one and two ranks, within the bounds of its README for float32.
TEST(Gradients, AreThoseOfTransformers) {
  if (world().size() > 2) GTEST_SKIP() << "the reference has two sequences";
  const GradientFiles files;
  for (const char* name : {"llama3", "llama-tied", "qwen2", "qwen3"}) {
    const std::string golden = std::string("tests/golden/models/") + name;
    const h5::Reader expected(golden + "/expected.h5");
    const std::int64_t length = expected.at("tokens").shape.at(1);
    RunConfig c = files.config(name);
    c.model = files.at(std::string(name) + ".h5"), c.data = files.at(std::string(name) + "-data.h5");
    c.seq_length = length, c.batch_size = 2 / world().size(), c.sampler = data::SamplerKind::sequential;
    comm::agree(world(), [&] {
      if (world().rank() != 0) return;
      (void)convert::convert(golden + "/hf", c.model, {});
      data::TokenInfo info;
      info.vocab_size = 256, info.sequence_length = length;
      data::TokenWriter writer(c.data, info, false);
      const auto tokens = expected.read_as<std::int32_t>("tokens");
      for (std::size_t i = 0; i < tokens.size(); i += static_cast<std::size_t>(length)) {
        writer.append(std::vector<std::uint32_t>(tokens.begin() + static_cast<std::ptrdiff_t>(i),
                                                 tokens.begin() + static_cast<std::ptrdiff_t>(i) + length));
        writer.end_document();
      }
      (void)writer.finish();
    });
    EXPECT_EQ(run(c, world(), {}), Exit::done);
    if (world().rank() != 0) continue;
    SCOPED_TRACE(name);
    EXPECT_NEAR(metadata(c.gradients, "loss"), expected.read_as<double>("loss").at(0), 5e-6);
    EXPECT_NEAR(metadata(c.gradients, "grad_norm") / expected.read_as<double>("grad_norm").at(0), 1, 1e-6);
    const hf::SafetensorsFile file(c.gradients);
    for (const hf::TensorInfo& t : file.tensors()) {
      std::vector<float> values(static_cast<std::size_t>(t.elements()));
      file.read_rows_f32(t, 0, t.shape[0], values);
      const auto wanted = expected.read_as<float>("grad/" + t.name);
      double difference = 0, size = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        difference += std::pow(static_cast<double>(values[i]) - static_cast<double>(wanted.at(i)), 2);
        size += std::pow(static_cast<double>(wanted[i]), 2);
      }
      EXPECT_LE(std::sqrt(difference / size), 2e-5) << t.name;
    }
    EXPECT_EQ(file.tensors().size(), model::parameter_table(hf::Folder(golden + "/hf").config()).size());
  }
}

}  // namespace
}  // namespace fp8::train
