// Hugging Face folders against transformers in float64: tests/golden/models, whose README says how near to come. From
// config.json and safetensors to logits, losses and the gradient of every weight, in fp32 and in bf16.
#include <gtest/gtest.h>

#include <map>

#include "fp8/ops/elementwise.h"
#include "golden.h"

namespace fp8::golden {
namespace {

// How near to come.
struct Bounds {
  double logits, token_loss, loss, grad_norm;
  std::map<std::string, double> gradient;  // relative L2, by name
};

const std::string kGradients = "grad/";

double attribute(const h5::Attributes& attributes, const std::string& name) {
  return std::get<double>(attributes.at(name));
}

Bounds bounds(const h5::Reader& expected, DType compute) {
  const bool f32 = compute == DType::f32;
  const h5::Attributes& a = expected.group("");
  Bounds b{5e-5, 2e-5, 5e-6, 1e-6, {}};
  if (!f32)
    b = {2 * attribute(a, "bfloat16_logits_max_abs"), 2 * attribute(a, "bfloat16_token_loss_max_abs"), 1e-2, 5e-3, {}};
  for (const h5::Entry& e : expected.list())
    if (e.name.starts_with(kGradients))
      b.gradient[e.name.substr(kGradients.size())] = f32 ? 2e-5 : 2 * attribute(e.attributes, "bfloat16_rel_l2");
  return b;
}

// Losses of positions that have a target: all but the last of each sequence.
Values without_last(const Values& losses, std::int64_t length) {
  Values out;
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (static_cast<std::int64_t>(i + 1) % length != 0) out.push_back(losses[i]);
  return out;
}

void check_model(const std::string& folder, const std::string& name, DType compute) {
  SCOPED_TRACE(folder + " in " + std::string(dtype::name_of(compute)));
  const h5::Reader expected("tests/golden/models/" + name + "/expected.h5");
  const Bounds bound = bounds(expected, compute);
  Model model(folder, compute);
  auto tokens = expected.read_as<std::int32_t>("tokens");
  const std::int64_t sequences = expected.at("tokens").shape.at(0), length = expected.at("tokens").shape.at(1);
  std::vector<std::int32_t> targets(tokens.size(), ops::kIgnoredTarget);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    if (static_cast<std::int64_t>(i + 1) % length != 0) targets[i] = tokens[i + 1];
  const model::Batch batch = batch_of(tokens, targets, sequences, length);

  EXPECT_LE(largest_difference(model.logits(batch), values(expected, "logits")), bound.logits);
  const auto count = static_cast<double>(sequences * (length - 1));
  const Values losses = without_last(model.forward_backward(batch, 1 / count), length);
  EXPECT_LE(largest_difference(losses, values(expected, "token_loss")), bound.token_loss);
  double sum = 0;
  for (const double l : losses) sum += l;
  EXPECT_NEAR(sum / count, values(expected, "loss").at(0), bound.loss);
  for (const train::OwnParameter& own : model.store().own()) {
    const std::string& parameter = model.store().table()[static_cast<std::size_t>(own.number)].name;
    EXPECT_LE(relative_l2(values(own.gradient), values(expected, kGradients + parameter)), bound.gradient.at(parameter))
        << parameter;
  }
  EXPECT_EQ(model.store().own().size(), bound.gradient.size()) << "every gradient";
  EXPECT_EQ(model.stored_tensors(), bound.gradient.size()) << "every tensor of the file";
  const double norm = values(expected, "grad_norm").at(0);
  EXPECT_NEAR(model.gradient_norm(), norm, bound.grad_norm * norm);
}

const std::vector<std::string> kModels{"llama3", "llama-tied", "qwen2", "qwen3"};

TEST(Models, InFloats) {
  for (const std::string& name : kModels) check_model(model_folder(name), name, DType::f32);
}

TEST(Models, InBf16) {
  for (const std::string& name : kModels) check_model(model_folder(name), name, DType::bf16);
}

// A folder with the older spelling of the configuration in the place of config.json.
std::string with_older_config(const TemporaryFolder& temporary, const std::string& name) {
  const std::string folder = temporary.at(name);
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file(model_folder(name) + "/config.v4.json", folder + "/config.json");
  std::filesystem::copy_file(model_folder(name) + "/model.safetensors", folder + "/model.safetensors");
  return folder;
}

TEST(Models, OlderSpellingOfTheConfiguration) {
  const TemporaryFolder temporary;
  const std::string folder = with_older_config(temporary, "llama3");
  EXPECT_TRUE(hf::same_model(hf::Folder(folder).config(), hf::Folder(model_folder("llama3")).config()));
  check_model(folder, "llama3", DType::f32);
  check_model(folder, "llama3", DType::bf16);
}

TEST(Models, RopeFrequencies) {
  for (const std::string& name : kModels) {
    const h5::Reader expected("tests/golden/models/" + name + "/expected.h5");
    EXPECT_EQ(hf::rope_inv_freq(hf::Folder(model_folder(name)).config()), values(expected, "inv_freq")) << name;
  }
}

TEST(Models, MixtureOfExpertsIsRefusedInOneLine) {
  const TemporaryFolder temporary;
  for (const std::string& folder : {model_folder("mixtral"), with_older_config(temporary, "mixtral")}) {
    const std::string message = test::error_of([&] { const hf::Folder opened(folder); });
    EXPECT_TRUE(message.starts_with(folder + "/config.json: ")) << message;
    EXPECT_NE(message.find("not supported yet"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace fp8::golden
