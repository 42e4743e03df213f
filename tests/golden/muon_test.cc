// Runs of ten steps under Muon against the curves of PyTorch in tests/golden/muon, within the bounds of its README.
#include <gtest/gtest.h>

#include "curve.h"

namespace fp8::golden {
namespace {

settings::RunConfig muon_config(settings::Precision precision, optim::MuonScale scale) {
  settings::RunConfig c = hundred_steps();
  c.steps = 10;
  c.schedule.warmup = 4;
  c.precision.precision = precision;
  c.precision.execution.activation = precision == settings::Precision::fp32 ? DType::f32 : DType::bf16;
  c.optimizer.algorithm = optim::Algorithm::muon;
  c.optimizer.muon_scale = scale;
  return c;
}

Curve reference(const std::string& name) { return read_curve("tests/golden/muon/" + name + ".jsonl"); }

TEST(Muon, F32MatchesPyTorch) {
  for (const std::string model : {"llama3", "qwen3"}) {
    const TrainingFolder at(model);
    for (const auto& [name, scale] :
         {std::pair{"rms", optim::MuonScale::rms}, {"original", optim::MuonScale::original}})
      check(at.run(muon_config(settings::Precision::fp32, scale), name), reference(model + "-fp32-" + name),
            {5e-6, 5e-6, 5e-6}, model + " " + name);
  }
}

TEST(Muon, Bf16MatchesPyTorch) {
  for (const std::string model : {"llama3", "qwen3"}) {
    const TrainingFolder at(model);
    check(at.run(muon_config(settings::Precision::bf16, optim::MuonScale::rms), "run"), reference(model + "-bf16-rms"),
          {1e-2, 3e-3, 1e-2}, model);
  }
}

}  // namespace
}  // namespace fp8::golden
