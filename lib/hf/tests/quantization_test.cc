// Folders with FP8 weights: the supported quantization_configs and layouts of scales, and everything that is refused.
#include "fp8/hf/quantization.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "fp8/dtype/convert.h"
#include "fp8/hf/export.h"
#include "fp8/json/json.h"
#include "fp8_test.h"

namespace fp8::hf {
namespace {

using dtype::DType;
using test::error_of;

constexpr const char* kModule = "model.layers.0.mlp.up_proj";

const std::string kBlocks = R"("quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128])";
const std::string kTensor = R"("quant_method": "fp8", "activation_scheme": "static")";

std::string compressed(const std::string& weights, const std::string& more = "") {
  return R"("quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": {
      "targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "symmetric": true, "dynamic": false, )" +
         weights +
         R"(}, "input_activations": {"num_bits": 8, "type": "float", "dynamic": true, "strategy": "token"}}})" + more;
}

std::string nvfp4(const std::string& weights) {
  return R"("quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized", "config_groups": {"group_0": {
      "targets": ["Linear"], "weights": {"num_bits": 4, "type": "float", "symmetric": true, "dynamic": false, )" +
         weights +
         R"(}, "input_activations": {"num_bits": 4, "type": "float", "dynamic": "local", "strategy": "tensor_group"}}})";
}

const std::string kGroups = nvfp4(R"("strategy": "tensor_group", "group_size": 16)");

// A folder with one linear of 160 x 130 codes and its scales; tests change both.
class Quantization : public test::FolderTest {
 protected:
  struct Tensor {
    TensorSpec spec;
    std::vector<float> values;  // each element, or a single value for all
  };

  Quantization() { scales("_scale_inv", {2, 2}, {1, 2, 3, 4}); }

  void scales(const std::string& suffix, const std::vector<std::int64_t>& shape, const std::vector<float>& values,
              DType type = DType::f32) {
    scales_ = Tensor{{std::string(kModule) + ".weight" + suffix, type, shape}, values};
  }
  // The folder with this quantization_config.
  Folder folder(const std::string& quantization, const std::string& type = "llama") {
    std::filesystem::remove(at("model.safetensors"));
    write("config.json", R"({"model_type": ")" + type + R"(", "quantization_config": {)" + quantization + "}}");
    std::vector<Tensor> tensors = more_;
    if (codes_) tensors.push_back({*codes_, {1}});
    if (scales_) tensors.push_back(*scales_);
    std::vector<TensorSpec> specs;
    for (const Tensor& t : tensors) specs.push_back(t.spec);
    SafetensorsWriter writer(at("model.safetensors"), specs);
    for (const Tensor& t : tensors) {
      std::size_t count = 1;
      for (const std::int64_t extent : t.spec.shape) count *= static_cast<std::size_t>(extent);
      std::vector<float> values = t.values;
      if (values.size() == 1) values.resize(count, values.front());
      std::vector<std::byte> bytes(count * dtype::size_of(t.spec.dtype));
      if (t.spec.dtype == DType::f16) {
        for (std::size_t i = 1; i < bytes.size(); i += 2) bytes[i] = std::byte{0x38};  // 0.5
      } else if (dtype::size_of(t.spec.dtype) > 1) {
        dtype::from_floats(values, t.spec.dtype, bytes.data());
      } else {
        std::fill(bytes.begin(), bytes.end(), std::byte{0x38});  // 1 in E4M3
      }
      writer.begin(t.spec.name);
      writer.write(bytes);
    }
    writer.finish();
    return Folder(path());
  }
  std::string refusal(const std::string& quantization) {
    const std::string message = error_of([&] { tensors_of(folder(quantization)); });
    EXPECT_TRUE(message.starts_with(path())) << message;
    return message.substr(std::min(message.size(), path().size()));
  }

  std::optional<TensorSpec> codes_ = TensorSpec{std::string(kModule) + ".weight", DType::e4m3, {160, 130}};
  std::optional<Tensor> scales_;
  std::vector<Tensor> more_;
};

TEST_F(Quantization, reads_every_layout_of_scales) {
  struct Case {
    std::string quantization, suffix;
    std::vector<std::int64_t> shape, in_checkpoint;
    DType type = DType::f32;
  };
  const std::vector<Case> cases = {
      {kBlocks, "_scale_inv", {2, 2}, {2, 2}},
      {kBlocks + R"(, "fmt": "e4m3", "scale_fmt": "ue8m0")", "_scale_inv", {2, 2}, {2, 2}, DType::bf16},
      {kTensor, "_scale", {}, {1}},
      {kTensor, "_scale", {1}, {1}},
      {compressed(R"("strategy": "channel")"), "_scale", {160, 1}, {160}},
      {compressed(R"("strategy": "channel")"), "_scale", {160}, {160}, DType::f16},
      {compressed(R"("strategy": "tensor")"), "_scale", {1}, {1}},
      {compressed(R"("strategy": "block", "block_structure": [128, 128])"), "_scale", {2, 2}, {2, 2}},
      {compressed(R"("strategy": "tensor")", R"(, "ignore": [], "kv_cache_scheme": null, "sparsity_config": {})"),
       "_scale",
       {1},
       {1}},
  };
  for (const Case& c : cases) {
    scales(c.suffix, c.shape, {0.5}, c.type);
    const Folder from = folder(c.quantization);
    const FolderTensors tensors = tensors_of(from);
    ASSERT_EQ(tensors.weights.size(), 1U) << c.quantization;
    ASSERT_EQ(tensors.codes.size(), 1U) << c.quantization;
    const Codes& codes = tensors.codes.at(std::string(kModule) + ".weight");
    EXPECT_EQ(codes.weight, tensors.weights.front().entry);
    EXPECT_EQ(codes.scales_shape, c.in_checkpoint) << c.quantization;
    std::size_t count = 1;
    for (const std::int64_t extent : c.in_checkpoint) count *= static_cast<std::size_t>(extent);
    EXPECT_EQ(read_scales(from, codes), std::vector<float>(count, 0.5F)) << c.quantization;
    EXPECT_FALSE(from.config().source.as_object().contains("quantization_config"));
  }
}

TEST_F(Quantization, reads_packed_codes_under_two_scales) {
  const std::string module = kModule;
  codes_ = TensorSpec{module + ".weight_packed", DType::u8, {160, 64}};
  scales("_scale", {160, 8}, {1}, DType::e4m3);
  const auto global = [&](float value) { more_ = {{{module + ".weight_global_scale", DType::f32, {1}}, {value}}}; };
  // Several amaxes have the first scale, of which 3.015625 is a bf16 value.
  for (const auto& [scale, amax] : {std::pair{2688.0F / 3.015625F, 3.015625F}, {1.0F, 2688.0F}, {0.5F, 5376.0F}}) {
    global(scale);
    const Folder from = folder(kGroups);
    const FolderTensors tensors = tensors_of(from);
    ASSERT_EQ(tensors.weights.size(), 1U);
    EXPECT_EQ(tensors.weights.front().name, module + ".weight");
    EXPECT_EQ(tensors.weights.front().shape, (std::vector<std::int64_t>{160, 128}));
    EXPECT_EQ(tensors.weights.front().format, DType::e2m1);
    const auto [scales, found] = read_fp4_scales(from, tensors.codes.at(module + ".weight"));
    EXPECT_EQ(scales, std::vector<std::byte>(160 * 8, std::byte{0x38}));
    EXPECT_EQ(found, amax);
  }
  const std::string packed = ": " + module + ".weight_packed", of_tensor = ": " + module + ".weight_global_scale";
  for (const auto& [bad, text] :
       {std::pair{0.0F, "0"},
        {-1.0F, "-1"},
        {std::nanf(""), "nan"},
        {7.8e-36F, "7.8e-36, for which the amax, 2688 over the scale, is not finite in f32"}}) {
    global(bad);
    const Folder from = folder(kGroups);
    EXPECT_EQ(error_of([&] { read_fp4_scales(from, tensors_of(from).codes.begin()->second); }),
              path() + of_tensor + ": the scale of the tensor is " + text);
  }
  more_ = {{{module + ".weight_global_scale", DType::f32, {2}}, {1}}};
  EXPECT_EQ(refusal(kGroups), of_tensor + ": F32 of shape [2]; the scale of a tensor is one f32");
  more_.clear();
  EXPECT_EQ(refusal(kGroups), packed + ": FP4 codes without scales (" + module + ".weight_global_scale is missing)");
  global(1);
  scales("_scale", {10, 8}, {1}, DType::e4m3);
  EXPECT_EQ(refusal(kGroups), ": " + module + ".weight_scale: has shape [10, 8] instead of [160, 8]");
  scales("_scale", {160, 8}, {1});
  EXPECT_EQ(refusal(kGroups), ": " + module + ".weight_scale: stored as F32; scales must be F8_E4M3");
  codes_->dtype = DType::e4m3;
  EXPECT_EQ(refusal(kGroups), packed + ": stored as F8_E4M3; packed FP4 codes must be U8");
  codes_.reset();
  EXPECT_EQ(refusal(kGroups), of_tensor + ": scales without codes");
}

TEST_F(Quantization, what_an_export_writes_is_read) {
  more_ = {{{"model.layers.0.mlp.down_proj.weight", DType::bf16, {16, 16}}, {1}}};
  const auto text = [](const json::Value& object) {
    const std::string dumped = json::dump(object);
    return dumped.substr(1, dumped.size() - 2);
  };
  EXPECT_EQ(tensors_of(folder(text(block_quantization({"model.layers.0.mlp.down_proj", "lm_head"})))).codes.size(), 1U);
  scales("_scale", {160, 1}, {1});
  EXPECT_EQ(tensors_of(folder(text(channel_quantization({"model.layers.0.mlp.down_proj"})))).codes.size(), 1U);
  codes_ = TensorSpec{std::string(kModule) + ".weight_packed", DType::u8, {160, 64}};
  scales("_scale", {160, 8}, {1}, DType::e4m3);
  more_.push_back({{std::string(kModule) + ".weight_global_scale", DType::f32, {1}}, {1}});
  EXPECT_EQ(tensors_of(folder(text(group_quantization({"model.layers.0.mlp.down_proj"})))).codes.size(), 1U);
}

TEST_F(Quantization, without_a_configuration_all_tensors_are_weights) {
  (void)folder(kBlocks);
  write("config.json", R"({"model_type": "llama"})");
  const Folder plain(path());
  EXPECT_TRUE(plain.quantization_config().is_null());
  EXPECT_EQ(tensors_of(plain).weights.size(), 2U);
  EXPECT_TRUE(tensors_of(plain).codes.empty());
}

TEST_F(Quantization, scales_of_activations_are_counted) {
  scales("_scale", {1}, {1});
  more_ = {{{std::string(kModule) + ".input_scale", DType::f32, {1}}, {1}}};
  const Folder from = folder(kTensor);
  EXPECT_EQ(tensors_of(from).activation_scales, 1U);
  EXPECT_EQ(tensors_of(from).weights.size(), 1U);
}

TEST_F(Quantization, refuses_settings_by_name) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"("quant_method": "gptq")", R"("quant_method": "gptq" is not supported (fp8 and compressed-tensors are))"},
      {"", R"("quant_method": missing is not supported)"},
      {R"("quant_method": "fp8", "activation_scheme": "odd")",
       R"("activation_scheme": "odd" is not supported (dynamic and static are))"},
      {kBlocks + R"(, "fmt": "e5m2")", R"("fmt": "e5m2" is not supported ("e4m3" is))"},
      {kBlocks + R"(, "kv_cache_scheme": {})", R"("kv_cache_scheme": a quantized key/value cache is not supported)"},
      {R"("quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [64, 128])",
       R"("weight_block_size": [64,128] is not supported ([128,128] is))"},
      {kBlocks + R"(, "ignored_layers": "lm_head")", R"("ignored_layers" is not an array)"},
      {kBlocks + R"(, "ignored_layers": [7])", R"("ignored_layers" holds 7, not the name of a module)"},
      {compressed(R"("strategy": "group", "group_size": 128)"), R"(: weights: "strategy": "group" is not supported)"},
      {compressed(R"("strategy": "block", "block_structure": [1, 128])"),
       R"("block_structure": [1,128] is not supported ([128,128] is))"},
      {R"("quant_method": "compressed-tensors", "format": "pack-quantized")",
       R"("format": "pack-quantized" is not supported (float-quantized and nvfp4-pack-quantized are))"},
      {nvfp4(R"("strategy": "tensor_group", "group_size": 32)"), R"("group_size": 32 is not supported (16 is))"},
      {nvfp4(R"("strategy": "group", "group_size": 16)"), R"("strategy": "group" is not supported (tensor_group is))"},
      {R"("quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {})",
       R"("config_groups": 0 groups are not supported (1 is))"},
      {R"("quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"g": {"targets": ["Linear"],
          "weights": {"num_bits": 8, "type": "float", "symmetric": false, "strategy": "channel"}}})",
       R"(: g: weights: "symmetric": false is not supported (true is))"},
      {R"("quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"g": {"targets": ["Linear"],
          "weights": {"num_bits": 4, "type": "int", "strategy": "channel"}}})",
       R"(: g: weights: "num_bits": 4 is not supported (8 is))"},
      {R"("quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"g": {"targets": ["x"],
          "weights": {}}})",
       R"(: g: "targets": ["x"] is not supported (["Linear"] is))"},
      {compressed(R"("strategy": "tensor")", R"(, "sparsity_config": {"format": "sparse-24"})"),
       R"(: sparsity_config: "format": "sparse-24" is not supported ("dense" is))"},
      {compressed(R"("strategy": "tensor")", R"(, "transform_config": {"x": 1})"),
       R"("transform_config": transformed weights are not supported)"},
  };
  for (const auto& [quantization, reason] : cases) {
    const std::string message = refusal(quantization);
    EXPECT_NE(message.find(reason), std::string::npos) << message;
    EXPECT_TRUE(message.starts_with("/config.json: ")) << message;
  }
}

TEST_F(Quantization, refuses_tensors_that_do_not_agree) {
  const std::string weight = ": " + std::string(kModule) + ".weight";
  const auto reset = [&] { scales("_scale_inv", {2, 2}, {1}); };
  scales("_scale_inv", {2, 1}, {1});
  EXPECT_EQ(refusal(kBlocks), weight + "_scale_inv: has shape [2, 1] instead of [2, 2]");
  scales("_scale", {130, 1}, {1});
  EXPECT_EQ(refusal(compressed(R"("strategy": "channel")")), weight + "_scale: has shape [130, 1] instead of [160, 1]");
  EXPECT_EQ(refusal(kTensor), weight + "_scale: has shape [130, 1] instead of [1]");
  scales("_scale_inv", {2, 2}, {1}, DType::e4m3);
  EXPECT_EQ(refusal(kBlocks), weight + "_scale_inv: stored as F8_E4M3; scales must be f32, bf16 or f16");
  reset();
  EXPECT_EQ(refusal(compressed(R"("strategy": "channel")")),
            weight + ": FP8 codes without scales (" + std::string(kModule) + ".weight_scale is missing)");
  scales_.reset();
  EXPECT_EQ(refusal(kBlocks),
            weight + ": FP8 codes without scales (" + std::string(kModule) + ".weight_scale_inv is missing)");
  reset();
  codes_->dtype = DType::bf16;
  EXPECT_EQ(refusal(kBlocks),
            weight + ": stored as BF16, but config.json does not exclude it in \"modules_to_not_convert\"");
  const std::string excluded = kBlocks + R"(, "ignored_layers": [")" + kModule + "\"]";
  EXPECT_EQ(refusal(excluded), weight + "_scale_inv: scales without codes");
  scales_.reset();
  EXPECT_EQ(refusal(excluded), ": config.json has a quantization_config, but no weight is stored as codes");
  reset();
  codes_->dtype = DType::e4m3;
  EXPECT_EQ(refusal(excluded), weight + ": stored as codes, but config.json excludes it in \"ignored_layers\"");
  codes_->shape = {160};
  EXPECT_EQ(refusal(kBlocks), weight + ": FP8 codes of shape [160], not of a matrix");
  codes_->shape = {0, 130};
  EXPECT_EQ(refusal(kBlocks), weight + ": FP8 codes of shape [0, 130], not of a matrix");
}

TEST_F(Quantization, lists_name_modules_by_component) {
  more_ = {{{"model.layers.1.mlp.gate_proj.weight", DType::bf16, {16, 16}}, {1}},
           {{"model.embed_tokens.weight", DType::bf16, {16, 16}}, {1}},
           {{"lm_head.weight", DType::bf16, {16, 16}}, {1}}};
  for (const char* entry : {"model.layers.1.mlp.gate_proj", "model.layers.1", "mlp.gate_proj", "gate_proj", "re:.*"}) {
    const std::string quantization = kBlocks + R"(, "modules_to_not_convert": [")" + entry + "\"]";
    EXPECT_EQ(tensors_of(folder(quantization)).codes.size(), 1U) << entry;
  }
  for (const char* entry : {"gate", "proj", "model.layers.10", "layers.1.mlp.gate", "lm_head"}) {
    const std::string quantization = kBlocks + R"(, "modules_to_not_convert": [")" + entry + "\"]";
    EXPECT_NE(refusal(quantization).find("does not exclude it"), std::string::npos) << entry;
  }
  // Each list that is present must agree.
  EXPECT_NE(refusal(kBlocks + R"(, "modules_to_not_convert": ["gate_proj"], "ignored_layers": [])").find("\"ignored"),
            std::string::npos);
}

TEST_F(Quantization, routers_and_the_head_need_no_entry_in_a_list) {
  for (const auto& [type, router] : {std::pair{"qwen3_moe", "mlp.gate"}, {"mixtral", "block_sparse_moe.gate"}}) {
    more_ = {{{"model.layers.0." + std::string(router) + ".weight", DType::bf16, {16, 16}}, {1}},
             {{"lm_head.weight", DType::bf16, {16, 16}}, {1}}};
    for (const std::string list : {"", R"(, "modules_to_not_convert": [])", R"(, "ignored_layers": ["lm_head"])"})
      EXPECT_EQ(tensors_of(folder(kBlocks + list, type)).codes.size(), 1U) << type << list;
    EXPECT_NE(refusal(kBlocks).find(": stored as BF16, but config.json does not exclude it"), std::string::npos)
        << "a llama has no router";
  }
}

TEST_F(Quantization, refuses_bad_scales) {
  for (const auto& [bad, text] : {std::pair{0.0F, "0"},
                                  {-1.0F, "-1"},
                                  {std::numeric_limits<float>::infinity(), "inf"},
                                  {std::nanf(""), "nan"},
                                  {3e38F, "3e+38, and 224 times it is not finite in bf16"}}) {
    scales("_scale_inv", {2, 2}, {1, 1, bad, 1});
    const Folder from = folder(kBlocks);
    const FolderTensors tensors = tensors_of(from);
    EXPECT_EQ(error_of([&] { read_scales(from, tensors.codes.begin()->second); }),
              path() + ": " + kModule + ".weight_scale_inv: scale at index 2 is " + text);
  }
}

}  // namespace
}  // namespace fp8::hf
