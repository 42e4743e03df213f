// Models with experts: folders there and back, formats for servers, padding, adapters of experts, and what is refused.
#include <algorithm>
#include <filesystem>
#include <numeric>

#include "fp8/ckpt/writer.h"
#include "fp8/convert/convert.h"
#include "fp8/convert/export.h"
#include "fp8/convert/quantize.h"
#include "fp8/hf/adapter.h"
#include "fp8/hf/folder.h"
#include "fp8/json/json.h"
#include "fp8/model/checkpoint.h"
#include "fp8/model/initialize.h"
#include "golden_models.h"

namespace fp8::convert {
namespace {

using test::error_of;
using test::weight;

// Three layers of Qwen3-MoE, of which the first has no experts.
constexpr const char* kQwen = R"({"model_type": "qwen3_moe", "vocab_size": 32, "hidden_size": 32, "head_dim": 16,
  "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 1, "num_experts": 3,
  "num_experts_per_tok": 2, "moe_intermediate_size": 24, "mlp_only_layers": [0]})";

class Experts : public test::FolderTest {
 protected:
  std::string mixtral() {
    if (!std::filesystem::exists(at("mixtral.h5"))) convert(test::golden("mixtral"), at("mixtral.h5"), {});
    return at("mixtral.h5");
  }
  std::string qwen() {
    model::initialize(qwen_config(), at("qwen.h5"), {.force = true});
    return at("qwen.h5");
  }
  static hf::ModelConfig qwen_config() { return hf::parse_config(json::parse(kQwen, "qwen"), "qwen"); }
  static hf::ModelConfig config_of(const std::string& path) {
    return hf::parse_config(ckpt::Checkpoint::open(path).config(), path);
  }
  // A checkpoint of `base` with adapters of rank 2 on some linears; element i of A and B is i / 64.
  std::string adapted(const std::string& base, std::vector<std::string> targets) {
    const ckpt::Checkpoint source = ckpt::Checkpoint::open(base);
    hf::ModelConfig config = hf::parse_config(source.config(), base);
    config.lora = hf::LoraConfig{.rank = 2, .alpha = 4, .targets = std::move(targets)};
    hf::check_lora(*config.lora, config, base);
    ckpt::ModelWriter writer(at("lora.h5"), source.kind(), true);
    writer.document("config", hf::to_json(config));
    for (const ckpt::TensorMeta& meta : source.tensors()) ckpt::copy_tensor(source, meta.name, writer);
    for (const model::Parameter& p : model::parameter_table(config)) {
      if (p.role != model::ParameterRole::adapter) continue;
      std::vector<float> values(static_cast<std::size_t>(p.size()));
      std::iota(values.begin(), values.end(), 0.0F);
      for (float& v : values) v /= 64;
      ckpt::TensorMeta meta;
      meta.name = "weights/" + p.name;
      meta.shape = p.shape;
      writer.tensor(meta, std::as_bytes(std::span(values)));
    }
    writer.commit();
    return at("lora.h5");
  }
  std::vector<std::string> warnings_of(std::vector<std::string> targets) {
    return export_folder(adapted(qwen(), std::move(targets)), at("peft"),
                         {.format = ExportFormat::peft, .dry_run = true})
        .warnings;
  }
  static std::vector<std::string> linears_with(const std::vector<std::string>& parts) {
    std::vector<std::string> names = hf::linear_modules(qwen_config());
    std::erase_if(names, [&](const std::string& name) {
      return std::ranges::none_of(parts, [&](const std::string& part) { return name.find(part) != std::string::npos; });
    });
    return names;
  }
  static json::Array kept_in(const std::string& folder, const char* key) {
    const json::Value config = json::parse_file(folder + "/config.json");
    return config.as_object().get_object("quantization_config", "config").get_array(key, "config");
  }
  static bool has(const json::Array& list, const std::string& name) {
    return std::ranges::find(list, json::Value(name)) != list.end();
  }
};

TEST_F(Experts, a_folder_comes_back_byte_for_byte) {
  for (const char* name : {"mixtral", "wide-moe"}) {
    convert(test::golden(name), at("m.h5"), {.force = true});
    export_folder(at("m.h5"), at(name), {});
    EXPECT_TRUE(hf::same_model(config_of(at("m.h5")), hf::Folder(test::golden(name)).config()));
    EXPECT_TRUE(test::read_file(at(name) + "/model.safetensors") ==
                test::read_file(test::golden(name) + "/model.safetensors"))
        << name;
  }
}

TEST_F(Experts, linears_are_fp8_and_routers_are_not) {
  const ConvertReport report = convert(test::golden("mixtral"), at("m.h5"), {});
  EXPECT_EQ(report.linears.size(), 2U * (4 + 4 * 3) + 1);
  EXPECT_EQ(std::ranges::count_if(report.linears, &model::LinearRow::fp8), 32);
  const ckpt::TensorMeta router =
      ckpt::Checkpoint::open(at("m.h5")).at("weights/model.layers.1.block_sparse_moe.gate.weight");
  EXPECT_EQ(router.precision, "bf16");
  EXPECT_EQ(router.reason, "router");
}

TEST_F(Experts, every_format_for_servers_reads_back) {
  for (const ExportFormat format : {ExportFormat::fp8, ExportFormat::compressed_tensors}) {
    const std::string folder = at("out"), again = at("again");
    export_folder(mixtral(), folder, {.format = format, .force = true});
    const char* const key = format == ExportFormat::fp8 ? "modules_to_not_convert" : "ignore";
    const json::Array kept = kept_in(folder, key);
    EXPECT_EQ(kept.size(), 3U) << "two routers and the head";
    EXPECT_TRUE(has(kept, "model.layers.0.block_sparse_moe.gate") && has(kept, "lm_head"));
    const ConvertReport report = convert(folder, at("codes.h5"), {.force = true});
    EXPECT_EQ(report.kind, "quantized");
    EXPECT_EQ(std::ranges::count_if(report.linears, [](const model::LinearRow& l) { return !l.scaling.empty(); }), 32);
    export_folder(at("codes.h5"), again, {.format = format, .force = true});
    EXPECT_TRUE(test::read_file(folder + "/model.safetensors") == test::read_file(again + "/model.safetensors"));
    EXPECT_TRUE(test::read_file(folder + "/config.json") == test::read_file(again + "/config.json"));
    convert(folder, at("values.h5"), {.dequantize = true, .force = true});
    quantize(at("values.h5"), at("q.h5"), {.scaling = quant::Granularity::row, .force = true});
    dequantize(at("q.h5"), at("d.h5"), {.force = true});
    EXPECT_TRUE(hf::same_model(config_of(at("d.h5")), config_of(mixtral())));
  }
}

// The names under which vLLM, SGLang and transformers look for experts in bf16.
TEST_F(Experts, experts_in_bf16_are_named_as_servers_look_for_them) {
  convert(test::golden("mixtral"), at("m.h5"), {.precisions = model::PrecisionRules{.filters = {"*.0.*.experts.*"}}});
  const ExportReport report = export_folder(at("m.h5"), at("out"), {.format = ExportFormat::compressed_tensors});
  EXPECT_EQ(report.warnings, std::vector<std::string>{});
  const json::Array kept = kept_in(at("out"), "ignore");
  const std::string layer = "model.layers.0.";
  for (const char* name : {"block_sparse_moe.experts", "mlp.experts", "block_sparse_moe.experts.3.w2",
                           "block_sparse_moe.experts.0.gate_proj", "block_sparse_moe.experts.0.down_proj"})
    EXPECT_TRUE(has(kept, layer + name)) << name;
  EXPECT_EQ(convert(at("out"), at("back.h5"), {}).kind, "quantized");
}

TEST_F(Experts, experts_of_two_precisions_in_a_layer_are_warned_of) {
  const auto warnings = [&](const std::string& filter) {
    convert(test::golden("mixtral"), at("m.h5"),
            {.precisions = model::PrecisionRules{.filters = {filter}}, .force = true});
    return export_folder(at("m.h5"), at("out"), {.format = ExportFormat::compressed_tensors, .dry_run = true}).warnings;
  };
  const std::string all =
      ".block_sparse_moe.experts.{0-3}.w1.weight, model.layers.L.block_sparse_moe.experts.{0-3}.w3.weight and "
      "model.layers.L.block_sparse_moe.experts.{0-3}.w2.weight differ in precision; vLLM and SGLang compute them as "
      "one matrix and refuse that";
  const auto in_layers = [&](const std::string& layers) {
    std::string text = "model.layers." + layers + all;
    for (std::size_t at = text.find(".L."); at != std::string::npos; at = text.find(".L."))
      text.replace(at + 1, 1, layers);
    return std::vector<std::string>{text};
  };
  EXPECT_EQ(warnings("*.0.*.w2"), in_layers("0"));
  EXPECT_EQ(warnings("*.experts.3.w1"), in_layers("{0-1}"));
  EXPECT_EQ(warnings("*.experts.*"), std::vector<std::string>{});
}

TEST_F(Experts, widths_of_experts_are_padded) {
  const ConvertReport report = convert(qwen(), at("out.h5"), {.pad = true});
  ASSERT_EQ(report.padded_sizes.size(), 2U);
  EXPECT_EQ(report.padded_sizes[0].key, "intermediate_size");
  EXPECT_EQ(report.padded_sizes[1].key, "moe_intermediate_size");
  const hf::ModelConfig config = config_of(at("out.h5"));
  EXPECT_EQ(config.experts->intermediate_size, 32);
  EXPECT_EQ(config.intermediate_size, 48);
  const ckpt::Checkpoint before = ckpt::Checkpoint::open(at("qwen.h5")), after = ckpt::Checkpoint::open(at("out.h5"));
  const std::string down = "model.layers.2.mlp.experts.1.down_proj.weight";
  const std::vector<float> a = weight(before, down), b = weight(after, down);
  ASSERT_EQ(b.size(), 32U * 32);
  for (std::size_t row = 0; row < 32; ++row)
    for (std::size_t col = 0; col < 32; ++col)
      EXPECT_EQ(b[row * 32 + col], col < 24 ? a[row * 24 + col] : 0.0F) << row << " " << col;
  const std::vector<float> old = weight(before, "model.layers.2.mlp.experts.2.up_proj.weight");
  std::vector<float> up = weight(after, "model.layers.2.mlp.experts.2.up_proj.weight");
  EXPECT_TRUE(std::all_of(up.begin() + 24 * 32, up.end(), [](float v) { return v == 0; }));
  up.resize(24 * 32);
  EXPECT_EQ(up, old);
  EXPECT_TRUE(std::ranges::all_of(report.linears,
                                  [](const model::LinearRow& l) { return l.fp8 || l.name == "lm_head.weight"; }));
}

// Where all layers have experts, the width of dense layers is not used; in Mixtral both are one size.
TEST_F(Experts, only_sizes_that_are_used_are_padded) {
  json::Value config = json::parse(kQwen, "qwen");
  config.as_object().erase("mlp_only_layers");
  model::initialize(hf::parse_config(config, "c"), at("m.h5"), {});
  const ConvertReport report = convert(at("m.h5"), at("out.h5"), {.pad = true});
  ASSERT_EQ(report.padded_sizes.size(), 1U);
  EXPECT_EQ(report.padded_sizes[0].key, "moe_intermediate_size");
  config.as_object().set("model_type", "mixtral");
  model::initialize(hf::parse_config(config, "c"), at("m.h5"), {.force = true});
  convert(at("m.h5"), at("out.h5"), {.pad = true, .force = true});
  EXPECT_EQ(config_of(at("out.h5")).experts->intermediate_size, 48);
  EXPECT_EQ(config_of(at("out.h5")).intermediate_size, 48);
}

TEST_F(Experts, adapters_of_experts_are_merged) {
  const std::string module = "model.layers.1.mlp.experts.2.up_proj";
  const std::string source = adapted(qwen(), {module});
  convert(source, at("merged.h5"), {.merge_lora = true});
  EXPECT_FALSE(config_of(at("merged.h5")).lora);
  const ckpt::Checkpoint before = ckpt::Checkpoint::open(source), after = ckpt::Checkpoint::open(at("merged.h5"));
  const std::vector<float> w = weight(before, module + ".weight"), merged = weight(after, module + ".weight");
  ASSERT_EQ(merged.size(), 24U * 32);
  for (std::size_t row = 0; row < 24; ++row)
    for (std::size_t col = 0; col < 32; ++col) {
      const auto b = [&](std::size_t r) { return static_cast<double>(2 * row + r) / 64; };
      const auto a = [&](std::size_t r) { return static_cast<double>(32 * r + col) / 64; };
      const double wanted = static_cast<double>(w[row * 32 + col]) + 2 * (b(0) * a(0) + b(1) * a(1));
      EXPECT_NEAR(merged[row * 32 + col], wanted, 1e-5) << row << " " << col;
    }
  const std::string other = "model.layers.1.mlp.experts.1.up_proj.weight";
  EXPECT_EQ(weight(before, other), weight(after, other));
}

TEST_F(Experts, adapters_are_written_as_peft_names_them) {
  const std::string source = adapted(qwen(), linears_with({"q_proj", ".experts."}));
  EXPECT_EQ(export_folder(source, at("peft"), {.format = ExportFormat::peft}).warnings, std::vector<std::string>{});
  const hf::AdapterFolder folder(at("peft"), qwen_config());
  EXPECT_EQ(folder.lora(), *config_of(source).lora);
  const std::string file = test::read_file(at("peft") + "/adapter_model.safetensors");
  EXPECT_NE(file.find("\"base_model.model.model.layers.2.mlp.experts.0.gate_proj.lora_B.weight\""), std::string::npos);
}

TEST_F(Experts, adapters_that_peft_does_not_load_are_warned_of) {
  const std::string some =
      "adapters are on some experts of a layer, or on gate without up: PEFT loads those of all experts of a layer, "
      "gate and up together";
  const std::vector<std::string> none, split{some};
  EXPECT_EQ(warnings_of(linears_with({".experts."})), none);
  EXPECT_EQ(warnings_of(linears_with({"2.mlp.experts.0.down", "2.mlp.experts.1.down", "2.mlp.experts.2.down"})), none);
  EXPECT_EQ(warnings_of(linears_with({"experts.0.down_proj"})), split);
  EXPECT_EQ(warnings_of(linears_with(
                {"s.0.gate_proj", "s.1.gate_proj", "s.2.gate_proj", "s.0.up_proj", "s.1.up_proj", "s.2.up_proj"})),
            std::vector<std::string>{"adapters of experts are on gate or up and on no down: PEFT drops them silently"});
  EXPECT_EQ(warnings_of(linears_with({"gate_proj"})).front(), some);
  EXPECT_EQ(warnings_of(linears_with({"0.mlp.up_proj", "v_proj"})),
            std::vector<std::string>{"model.layers.0.mlp.up_proj.lora_A.weight: PEFT takes it for adapters of experts, "
                                     "and loads none of a layer without experts"});
}

TEST_F(Experts, a_missing_expert_is_named) {
  std::filesystem::copy(test::golden("mixtral"), at("hf"));
  std::string file = test::read_file(at("hf") + "/model.safetensors");
  const std::string name = "model.layers.1.block_sparse_moe.experts.3.w2.weight";
  const std::size_t found = file.find(name);
  ASSERT_NE(found, std::string::npos);
  file.replace(found, name.size(), "model.layers.1.block_sparse_moe.experts.9.w2.weight");
  write("hf/model.safetensors", file);
  EXPECT_EQ(error_of([&] { convert(at("hf"), at("m.h5"), {}); }),
            at("hf") + ": missing tensors: " + name +
                "; unexpected tensors: model.layers.1.block_sparse_moe.experts.9.w2.weight");
}

}  // namespace
}  // namespace fp8::convert
