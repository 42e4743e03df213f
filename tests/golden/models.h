/// Checks of golden models on any device: logits, losses and the gradient of every weight against transformers in
/// float64, within the bounds of tests/golden/models/README.md.
#pragma once

#include <gtest/gtest.h>

#include <map>

#include "fp8/ops/elementwise.h"
#include "golden.h"

namespace fp8::golden {

/// Bounds of the distances from the reference.
struct ModelBounds {
  double logits, token_loss, loss, grad_norm;
  std::map<std::string, double> gradient;  // relative L2, by name
};

inline const std::string kGradients = "grad/";

inline double attribute(const h5::Attributes& attributes, const std::string& name) {
  return std::get<double>(attributes.at(name));
}

inline ModelBounds bounds(const test::PlainFile& expected, DType compute) {
  const bool f32 = compute == DType::f32;
  const h5::Attributes& a = expected.group("");
  ModelBounds b{5e-5, 2e-5, 5e-6, 1e-6, {}};
  if (!f32)
    b = {2 * attribute(a, "bfloat16_logits_max_abs"), 2 * attribute(a, "bfloat16_token_loss_max_abs"), 1e-2, 5e-3, {}};
  for (const h5::Entry& e : expected.list())
    if (e.name.starts_with(kGradients))
      b.gradient[e.name.substr(kGradients.size())] = f32 ? 2e-5 : 2 * attribute(e.attributes, "bfloat16_rel_l2");
  return b;
}

/// Losses of positions that have a target: all but the last of each sequence.
inline Values without_last(const Values& losses, std::int64_t length) {
  Values out;
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (static_cast<std::int64_t>(i + 1) % length != 0) out.push_back(losses[i]);
  return out;
}

/// Tokens of a reference file; the target of each token is the next token.
struct GoldenBatch {
  std::vector<std::int32_t> tokens, targets;
  std::int64_t sequences, length;
  explicit GoldenBatch(const test::PlainFile& file)
      : tokens(file.read_as<std::int32_t>("tokens")),
        targets(tokens.size(), kIgnoredTarget),
        sequences(file.at("tokens").shape.at(0)),
        length(file.at("tokens").shape.at(1)) {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (static_cast<std::int64_t>(i + 1) % length != 0) targets[i] = tokens[i + 1];
  }
  model::Batch batch() { return batch_of(tokens, targets, sequences, length); }
};

/// Checks all reference values of the model `name`, read from `folder`, on `device`.
inline void check_model(const std::string& folder, const std::string& name, DType compute,
                        device::DeviceType device = device::DeviceType::host) {
  SCOPED_TRACE(folder + " in " + std::string(dtype::name_of(compute)));
  const test::PlainFile expected("tests/golden/models/" + name + "/expected.h5");
  const ModelBounds bound = bounds(expected, compute);
  Model model(folder, compute, nullptr, device);
  GoldenBatch golden(expected);
  const model::Batch batch = golden.batch();
  const std::int64_t sequences = golden.sequences, length = golden.length;

  EXPECT_LE(largest_difference(model.logits(batch), values(expected, "logits")), bound.logits);
  const auto count = static_cast<double>(sequences * (length - 1));
  const Values losses = without_last(model.forward_backward(batch, 1 / count), length);
  EXPECT_LE(largest_difference(losses, values(expected, "token_loss")), bound.token_loss);
  double sum = 0;
  for (const double l : losses) sum += l;
  EXPECT_NEAR(sum / count, values(expected, "loss").at(0), bound.loss);
  for (const shard::ParameterShard& own : model.store().shards()) {
    const std::string& parameter = model.store().table()[static_cast<std::size_t>(own.number)].name;
    EXPECT_LE(relative_l2(model.values_of(own.gradient), values(expected, kGradients + parameter)),
              bound.gradient.at(parameter))
        << parameter;
  }
  EXPECT_EQ(model.store().shards().size(), bound.gradient.size()) << "every gradient";
  EXPECT_EQ(model.stored_tensors(), bound.gradient.size()) << "every tensor of the file";
  const double norm = values(expected, "grad_norm").at(0);
  EXPECT_NEAR(model.gradient_norm(), norm, bound.grad_norm * norm);
}

/// Checks that the profile of a model with FP8 has times of every kind of work, which --profile and fp8-bench report.
inline void check_profile(device::DeviceType device) {
  const test::PlainFile expected("tests/golden/models/llama3/expected.h5");
  GoldenBatch golden(expected);
  Model model(model_folder("llama3"), DType::bf16, &quant::find_recipe("tensorwise"), device, true);
  device::Profile profile;
  profile.recording = device::Recording::timed;
  model.note_in(profile);
  (void)model.forward_backward(golden.batch(), 1.0);
  std::map<device::Work, std::int64_t> ns;
  for (const device::Span& span : profile.spans()) ns[span.work] += span.end - span.begin;
  using device::Work;
  for (const Work work : {Work::matmul_forward, Work::matmul_dgrad, Work::matmul_wgrad, Work::attention,
                          Work::cross_entropy, Work::elementwise, Work::cast})
    EXPECT_GT(ns[work], 0) << device::kWorkNames[static_cast<std::size_t>(work)];
}

/// The supported models.
inline const std::vector<std::string> kModels{"llama3", "llama-tied", "qwen2", "qwen3", "mixtral"};

}  // namespace fp8::golden
