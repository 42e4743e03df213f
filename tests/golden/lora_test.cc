// LoRA in float32 against PEFT, within the bounds of tests/golden/lora/README.md.
#include <gtest/gtest.h>

#include "curve.h"
#include "fp8/ckpt/checkpoint.h"
#include "fp8/hf/adapter.h"

namespace fp8::golden {
namespace {

const std::string kLora = "tests/golden/lora/llama3/";

// The settings of the reference.
settings::RunConfig lora_config() {
  settings::RunConfig c = hundred_steps();
  c.steps = 20;
  c.optimizer.weight_decay = 0;
  c.schedule = {.kind = optim::ScheduleKind::constant, .lr = 1e-2};
  c.precision.precision = settings::Precision::fp32;
  c.precision.execution.activation = DType::f32;
  c.lora.folder = kLora + "init";
  return c;
}

// Relative L2 distance of the adapters of a checkpoint from those in a folder.
double adapter_distance(const std::string& checkpoint, const std::string& folder) {
  const auto ours = ckpt::Checkpoint::open(checkpoint);
  const hf::AdapterFolder wanted(folder, hf::Folder(model_folder("llama3")).config());
  double difference = 0, size = 0;
  int tensors = 0;
  for (const ckpt::TensorMeta& meta : ours.tensors(ckpt::kWeights)) {
    const std::string name = meta.name.substr(ckpt::kWeights.size());
    if (name.find(".lora_") == std::string::npos) continue;
    ++tensors;
    std::vector<float> got(static_cast<std::size_t>(meta.shape[0] * meta.shape[1])), want(got.size());
    ours.read_rows_as_f32(meta.name, 0, meta.rows(), got);
    wanted.read_rows(name, 0, meta.rows(), want);
    for (std::size_t i = 0; i < want.size(); ++i) {
      const auto w = static_cast<double>(want[i]), d = static_cast<double>(got[i]) - w;
      difference += d * d;
      size += w * w;
    }
  }
  EXPECT_EQ(tensors, 28);
  return std::sqrt(difference / size);
}

void check_lora(const TrainingFolder& at, const settings::RunConfig& config, const std::string& out) {
  const Curve curve = at.run(config, out), reference = read_curve(kLora + "fp32.jsonl");
  check(curve, reference, {1e-5, 2e-6, 1e-5}, out);
  for (std::size_t i = 0; i < std::min(curve.size(), reference.size()); ++i)
    EXPECT_NEAR(curve[i].grad_norm / reference[i].grad_norm, 1, 1e-5) << out << " step " << i;
  EXPECT_LE(adapter_distance(at.path(out + "/step-00000020"), kLora + "final"), 2e-5) << out;
}

TEST(Lora, MatchesPeft) {
  const TrainingFolder at("llama3");
  check_lora(at, lora_config(), "run");
  settings::RunConfig parts = lora_config();
  parts.batch_size = 2;
  parts.grad_accumulation = 4;
  check_lora(at, parts, "parts");
}

// The base lies in the checkpoint as it was stored, so that every tool reads the checkpoint alone.
TEST(Lora, KeepsTheModelAsStored) {
  const TrainingFolder at("llama3");
  settings::RunConfig c = lora_config();
  c.steps = 2;
  at.run(c, "run");
  const auto model = ckpt::Checkpoint::open(at.path("model.h5")),
             trained = ckpt::Checkpoint::open(at.path("run/step-00000002"));
  for (const ckpt::TensorMeta& meta : model.tensors(ckpt::kWeights)) {
    EXPECT_EQ(trained.at(meta.name).dtype, meta.dtype) << meta.name;
    std::vector<std::byte> before(meta.bytes()), after(before.size());
    model.read(meta.name, before);
    trained.read(meta.name, after);
    EXPECT_TRUE(before == after) << meta.name;
    EXPECT_EQ(trained.find("optimizer/m/" + meta.name.substr(ckpt::kWeights.size())), nullptr) << meta.name;
  }
}

}  // namespace
}  // namespace fp8::golden
