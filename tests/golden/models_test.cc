// Models read from Hugging Face folders, against transformers in float64: logits, losses and the gradient of every
// weight, in fp32 and in bf16, within the bounds of tests/golden/models/README.md.
#include "models.h"

namespace fp8::golden {
namespace {

TEST(Models, MatchTransformersInF32) {
  for (const std::string& name : kModels) check_model(model_folder(name), name, DType::f32);
}

TEST(Models, MatchTransformersInBf16) {
  for (const std::string& name : kModels) check_model(model_folder(name), name, DType::bf16);
}

TEST(Models, ProfileHasEveryKindOfWork) { check_profile(device::DeviceType::host); }

// Makes a folder with config.v4.json as config.json.
std::string with_older_config(const TemporaryFolder& temporary, const std::string& name) {
  const std::string folder = temporary.at(name);
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file(model_folder(name) + "/config.v4.json", folder + "/config.json");
  std::filesystem::copy_file(model_folder(name) + "/model.safetensors", folder + "/model.safetensors");
  return folder;
}

TEST(Models, ReadConfigurationsOfTransformers4) {
  const TemporaryFolder temporary;
  const std::string folder = with_older_config(temporary, "llama3");
  EXPECT_TRUE(hf::same_model(hf::Folder(folder).config(), hf::Folder(model_folder("llama3")).config()));
  check_model(folder, "llama3", DType::f32);
  check_model(folder, "llama3", DType::bf16);
}

TEST(Models, RopeFrequenciesMatch) {
  for (const std::string& name : kModels) {
    const test::PlainFile expected("tests/golden/models/" + name + "/expected.h5");
    EXPECT_EQ(hf::rope_inv_freq(hf::Folder(model_folder(name)).config()), values(expected, "inv_freq")) << name;
  }
}

}  // namespace
}  // namespace fp8::golden
