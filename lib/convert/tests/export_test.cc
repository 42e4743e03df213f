// Export of checkpoints as Hugging Face folders: equal bytes in bf16, codes that stay, quantization, files, errors.
#include "fp8/convert/export.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "fp8/convert/convert.h"
#include "fp8/convert/quantize.h"
#include "fp8/dtype/convert.h"
#include "fp8/hf/folder.h"
#include "fp8/json/json.h"
#include "fp8/model/presets.h"
#include "golden_models.h"
#include "weights.h"

namespace fp8::convert {
namespace {

// All tensors of a folder, whatever its configuration says.
class Weights {
 public:
  explicit Weights(const std::string& folder) {
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".safetensors") files_.emplace_back(entry.path().string());
  }
  std::vector<hf::TensorInfo> tensors() const {
    std::vector<hf::TensorInfo> all;
    for (const hf::SafetensorsFile& file : files_) all.insert(all.end(), file.tensors().begin(), file.tensors().end());
    return all;
  }
  const hf::TensorInfo& info(const std::string& name) const { return *find(name).second; }
  std::vector<std::byte> bytes(const std::string& name) const {
    const auto [file, info] = find(name);
    std::vector<std::byte> out(info->end - info->begin);
    file->read(*info, 0, out);
    return out;
  }
  std::vector<float> floats(const std::string& name) const {
    const std::vector<std::byte> stored = bytes(name);
    const dtype::DType type = *info(name).format;
    std::vector<float> values(stored.size() / dtype::size_of(type));
    dtype::to_floats(type, stored.data(), values);
    return values;
  }

 private:
  std::pair<const hf::SafetensorsFile*, const hf::TensorInfo*> find(const std::string& name) const {
    for (const hf::SafetensorsFile& file : files_)
      if (const hf::TensorInfo* info = file.find(name); info != nullptr) return {&file, info};
    throw Error(name + ": not exported");
  }
  std::vector<hf::SafetensorsFile> files_;
};

class Export : public test::FolderTest {
 protected:
  // The reference model as a checkpoint.
  std::string model(const std::string& name = "llama3", const ConvertOptions& options = {}) {
    const std::string path = at(name + ".h5");
    if (!std::filesystem::exists(path)) convert(test::golden(name), path, options);
    return path;
  }
  std::string quantized(quant::Granularity scaling, dtype::DType format = dtype::DType::e4m3) {
    quantize(model(), at("q.h5"), {.scaling = scaling, .format = format, .force = true});
    return at("q.h5");
  }
  Weights exported(const std::string& source, const ExportOptions& options) {
    export_folder(source, at("out"), options);
    return Weights(at("out"));
  }
  json::Value json_of(const char* name) { return json::parse_file(at("out") + "/" + name); }
};

TEST_F(Export, bf16_returns_the_bytes_of_the_folder_that_was_converted) {
  for (const char* name : {"llama3", "qwen2", "qwen3"}) {
    const Weights before(test::golden(name));
    const Weights after = exported(model(name), {.force = true});
    ASSERT_EQ(after.tensors().size(), before.tensors().size()) << name;
    for (const hf::TensorInfo& t : before.tensors())
      EXPECT_EQ(after.bytes(t.name), before.bytes(t.name)) << name << " " << t.name;
    EXPECT_TRUE(hf::same_model(hf::Folder(at("out")).config(), hf::Folder(test::golden(name)).config())) << name;
    EXPECT_EQ(json_of("config.json").as_object().get_string("dtype", name), "bfloat16");
  }
}

TEST_F(Export, a_master_in_f32_is_rounded) {
  const Weights before(test::golden("llama3"));
  const Weights after = exported(model("llama3", {.dtype = dtype::DType::f32}), {});
  for (const hf::TensorInfo& t : before.tensors()) EXPECT_EQ(after.bytes(t.name), before.bytes(t.name)) << t.name;
}

TEST_F(Export, codes_per_row_stay_in_compressed_tensors) {
  const std::string path = quantized(quant::Granularity::row);
  const Weights folder = exported(path, {.format = ExportFormat::compressed_tensors});
  const ckpt::Checkpoint source = ckpt::Checkpoint::open(path);
  for (const model::Parameter& p : model::parameter_table(hf::parse_config(source.config(), "config"))) {
    if (p.role != model::ParameterRole::linear) continue;
    std::vector<std::byte> codes(static_cast<std::size_t>(p.size()));
    source.read("weights/" + p.name, codes);
    EXPECT_EQ(folder.bytes(p.name), codes) << p.name;
    EXPECT_EQ(folder.info(p.name).dtype, "F8_E4M3");
    std::vector<float> scales(static_cast<std::size_t>(p.rows()));
    source.read("scales/" + p.name, std::as_writable_bytes(std::span(scales)));
    EXPECT_EQ(folder.floats(p.name + "_scale"), scales);
    EXPECT_EQ(folder.info(p.name + "_scale").shape, (std::vector<std::int64_t>{p.rows(), 1}));
  }
  const json::Value config = json_of("config.json");
  const json::Object& q = config.as_object().get_object("quantization_config", "config");
  EXPECT_EQ(q.get_string("quant_method", "config"), "compressed-tensors");
  EXPECT_EQ(json::dump(q.at("ignore")), R"(["lm_head"])");
}

TEST_F(Export, quantizing_on_export_gives_the_codes_of_quantize) {
  const Weights direct = exported(model(), {.format = ExportFormat::compressed_tensors});
  const std::vector<std::byte> codes = direct.bytes(kUpWeight);
  const std::vector<float> scales = direct.floats(std::string(kUpWeight) + "_scale");
  const Weights kept =
      exported(quantized(quant::Granularity::row), {.format = ExportFormat::compressed_tensors, .force = true});
  EXPECT_EQ(kept.bytes(kUpWeight), codes);
  EXPECT_EQ(kept.floats(std::string(kUpWeight) + "_scale"), scales);
}

TEST_F(Export, one_scale_becomes_a_constant_grid) {
  const std::string path = quantized(quant::Granularity::tensor);
  const Weights folder = exported(path, {.format = ExportFormat::fp8});
  const ckpt::Checkpoint source = ckpt::Checkpoint::open(path);
  float scale = 0;
  source.read(std::string("scales/") + kUpWeight, std::as_writable_bytes(std::span(&scale, 1)));
  // up_proj is 176 x 64.
  EXPECT_EQ(folder.floats(std::string(kUpWeight) + "_scale_inv"), (std::vector<float>{scale, scale}));
  EXPECT_EQ(folder.info(std::string(kUpWeight) + "_scale_inv").shape, (std::vector<std::int64_t>{2, 1}));
  std::vector<std::byte> codes(176 * 64);
  source.read(std::string("weights/") + kUpWeight, codes);
  EXPECT_EQ(folder.bytes(kUpWeight), codes);
  const json::Value config = json_of("config.json");
  const json::Object& q = config.as_object().get_object("quantization_config", "config");
  EXPECT_EQ(json::dump(q.at("weight_block_size")), "[128,128]");
  EXPECT_EQ(json::dump(q.at("modules_to_not_convert")), R"(["lm_head"])");
  EXPECT_EQ(q.at("ignored_layers"), q.at("modules_to_not_convert"));
}

TEST_F(Export, blocks_are_scaled_by_their_largest_magnitude) {
  const Weights before(test::golden("llama3"));
  const Weights folder = exported(model(), {.format = ExportFormat::fp8});
  const std::vector<float> x = before.floats(kUpWeight), q = folder.floats(kUpWeight),
                           inverse = folder.floats(std::string(kUpWeight) + "_scale_inv");
  ASSERT_EQ(inverse.size(), 2U);
  for (std::size_t block = 0; block < 2; ++block) {
    const std::size_t begin = block * 128 * 64, end = block == 0 ? 128 * 64 : 176 * 64;
    float amax = 0;
    for (std::size_t i = begin; i < end; ++i) amax = std::max(amax, std::abs(x[i]));
    EXPECT_FLOAT_EQ(inverse[block], amax / 448);
    for (std::size_t i = begin; i < end; ++i)
      EXPECT_LE(std::abs(q[i] * inverse[block] - x[i]), std::max(std::abs(x[i]) / 16, amax / 448 / 512 * 1.001F)) << i;
  }
}

TEST_F(Export, a_quantized_checkpoint_is_dequantized_to_bf16) {
  const Weights folder = exported(quantized(quant::Granularity::row), {});
  dequantize(at("q.h5"), at("d.h5"), {.dtype = dtype::DType::bf16});
  const ckpt::Checkpoint wanted = ckpt::Checkpoint::open(at("d.h5"));
  EXPECT_EQ(folder.floats(kUpWeight), test::weight(wanted, kUpWeight));
}

TEST_F(Export, tensors_are_distributed_over_files_in_order) {
  const ExportReport report = export_folder(model(), at("out"), {.file_bytes = 60'000});
  const Weights before(test::golden("llama3")), after(at("out"));
  for (const hf::TensorInfo& t : before.tensors()) EXPECT_EQ(after.bytes(t.name), before.bytes(t.name)) << t.name;
  std::size_t files = 0;
  for (const std::string& name : report.files) {
    EXPECT_TRUE(std::filesystem::exists(at("out") + "/" + name)) << name;
    if (!name.ends_with(".safetensors")) continue;
    ++files;
    EXPECT_LE(std::filesystem::file_size(at("out") + "/" + name), 60'000U + 4096) << name;
  }
  EXPECT_GE(files, 4U);
  const json::Value index = json_of("model.safetensors.index.json");
  EXPECT_EQ(index.as_object().get_object("metadata", "index").get_int("total_size", "index"),
            static_cast<std::int64_t>(report.bytes));
}

TEST_F(Export, end_tokens_join_those_of_the_model) {
  const char* const tokenizer = R"({"model": {"vocab": {"a": 0, "<end>": 1}, "merges": []},
                                    "added_tokens": [{"id": 2, "content": "<turn>", "special": true}]})";
  std::filesystem::copy(test::golden("llama3"), at("hf"));
  test::write_file(at("hf") + "/tokenizer.json", tokenizer);
  test::write_file(at("hf") + "/tokenizer_config.json", R"({"chat_template": "{{ messages }}"})");
  test::write_file(at("hf") + "/generation_config.json", R"({"eos_token_id": [1], "temperature": 0.5})");
  convert(at("hf"), at("t.h5"), {});
  export_folder(at("t.h5"), at("out"), {.end_tokens = {"<turn>", "<end>"}});
  EXPECT_EQ(test::read_file(at("out") + "/tokenizer_config.json"), R"({"chat_template": "{{ messages }}"})");
  EXPECT_EQ(json::dump(json_of("generation_config.json")),
            R"({"eos_token_id":[1,2],"temperature":0.5,"bos_token_id":1})");
  EXPECT_EQ(test::read_file(at("out") + "/tokenizer.json"), tokenizer);
  EXPECT_EQ(test::error_of([&] { export_folder(at("t.h5"), at("out"), {.end_tokens = {"<none>"}, .force = true}); }),
            at("t.h5") + ": /tokenizer: has no token <none>");
  EXPECT_EQ(test::error_of([&] { export_folder(model(), at("x"), {.end_tokens = {"<end>"}}); }),
            model() + ": has no tokenizer.json, so the id of <end> is unknown");
}

TEST_F(Export, what_does_not_fit_is_refused_and_leaves_nothing) {
  const auto refused = [&](const std::string& source, ExportFormat format, const std::string& reason) {
    const std::string message = test::error_of([&] { export_folder(source, at("x"), {.format = format}); });
    EXPECT_NE(message.find(reason), std::string::npos) << message;
    EXPECT_FALSE(std::filesystem::exists(at("x")));
  };
  refused(quantized(quant::Granularity::row), ExportFormat::fp8,
          "its scales are not per tensor or per block of 128 x 128");
  refused(quantized(quant::Granularity::tensor, dtype::DType::e5m2), ExportFormat::fp8, "E5M2 codes");
  ConvertOptions none;
  none.precisions = model::PrecisionRules{.filters = {"*"}};
  convert(test::golden("llama3"), at("none.h5"), none);
  refused(at("none.h5"), ExportFormat::fp8, "no linear has compute precision fp8");
  std::string bytes = test::read_file(model());
  bytes[bytes.size() / 2] ^= 1;
  test::write_file(at("damaged.h5"), bytes);
  refused(at("damaged.h5"), ExportFormat::bf16, at("damaged.h5"));
}

TEST_F(Export, only_the_folder_of_an_export_is_replaced) {
  export_folder(model(), at("out"), {});
  EXPECT_EQ(test::error_of([&] { export_folder(model(), at("out"), {}); }), at("out") + ": exists");
  export_folder(model(), at("out"), {.format = ExportFormat::compressed_tensors, .force = true});
  EXPECT_TRUE(json_of("config.json").as_object().contains("quantization_config"));
  test::write_file(at("out") + "/notes.txt", "mine");
  EXPECT_EQ(test::error_of([&] { export_folder(model(), at("out"), {.force = true}); }),
            at("out") + ": holds notes.txt, which no export writes; remove the folder, or choose another");
  EXPECT_EQ(test::read_file(at("out") + "/notes.txt"), "mine");
}

TEST_F(Export, every_format_has_the_keys_of_transformers_4_and_5) {
  for (const ExportFormat format : {ExportFormat::bf16, ExportFormat::fp8, ExportFormat::compressed_tensors}) {
    export_folder(model(), at("out"), {.format = format, .force = true});
    const json::Value value = json_of("config.json");
    const json::Object& config = value.as_object();
    EXPECT_EQ(config.at("rope_theta"), config.at("rope_parameters").as_object().at("rope_theta"));
    EXPECT_EQ(config.at("rope_scaling").as_object().at("rope_type"), json::Value("llama3"));
    EXPECT_EQ(config.at("torch_dtype"), config.at("dtype"));
    convert(at("out"), at("back.h5"), {.force = true});
  }
}

TEST_F(Export, a_merged_matrix_is_excluded_under_its_own_name_too) {
  ConvertOptions options;
  options.precisions = model::PrecisionRules{.filters = {"*.0.self_attn.?_proj", "*.1.mlp.gate_proj"}};
  convert(test::golden("llama3"), at("some.h5"), options);
  for (const ExportFormat format : {ExportFormat::fp8, ExportFormat::compressed_tensors}) {
    export_folder(at("some.h5"), at("out"), {.format = format, .force = true});
    const json::Value config = json_of("config.json");
    const json::Object& quantization = config.as_object().get_object("quantization_config", "config");
    const std::string excluded =
        json::dump(*quantization.find(format == ExportFormat::fp8 ? "ignored_layers" : "ignore"));
    EXPECT_NE(excluded.find("\"model.layers.0.self_attn.qkv_proj\""), std::string::npos) << excluded;
    EXPECT_EQ(excluded.find("gate_up_proj"), std::string::npos) << excluded;  // its up_proj has codes
    convert(at("out"), at("back.h5"), {.force = true});
  }
}

TEST_F(Export, names_all_weights_with_blocks_that_servers_refuse) {
  const ExportReport report = export_folder(model(), at("out"), {.format = ExportFormat::fp8, .dry_run = true});
  const std::string all =
      "model.layers.{0-1}.self_attn.q_proj.weight [64, 64], model.layers.{0-1}.self_attn.k_proj.weight [32, 64], "
      "model.layers.{0-1}.self_attn.v_proj.weight [32, 64], model.layers.{0-1}.self_attn.o_proj.weight [64, 64], "
      "model.layers.{0-1}.mlp.gate_proj.weight [176, 64], model.layers.{0-1}.mlp.up_proj.weight [176, 64] and "
      "model.layers.{0-1}.mlp.down_proj.weight [64, 176]";
  const std::string why =
      " of whole blocks of 128 x 128: vLLM and SGLang refuse that, and transformers dequantizes to other values; "
      "--format compressed-tensors has no blocks";
  EXPECT_EQ(report.warnings.at(0), all + ": do not consist" + why);
  ConvertOptions options;
  options.precisions = model::PrecisionRules{.filters = {"*.0.*", "*.1.self_attn.*", "*.up_proj.*", "*.gate_proj.*"}};
  convert(test::golden("llama3"), at("one.h5"), options);
  const ExportReport one = export_folder(at("one.h5"), at("out"), {.format = ExportFormat::fp8, .dry_run = true});
  EXPECT_EQ(one.warnings.at(0), "model.layers.1.mlp.down_proj.weight [64, 176]: does not consist" + why);
  const ExportReport rows =
      export_folder(model(), at("out"), {.format = ExportFormat::compressed_tensors, .dry_run = true});
  EXPECT_TRUE(rows.warnings.empty());
  EXPECT_EQ(rows.notes.size(), 1U);  // no tokenizer
}

TEST_F(Export, strict_writes_nothing_that_servers_refuse) {
  try {
    export_folder(model(), at("out"), {.format = ExportFormat::fp8, .strict = true});
    ADD_FAILURE() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Exit::no);
    EXPECT_NE(std::string(e.what()).find("do not consist of whole blocks"), std::string::npos) << e.what();
    ASSERT_EQ(e.hints().size(), 1U);
    EXPECT_EQ(e.hints()[0].setting, "any-server");
  }
  EXPECT_FALSE(std::filesystem::exists(at("out")));
  EXPECT_TRUE(export_folder(model(), at("out"), {.strict = true}).warnings.empty());
}

TEST_F(Export, warns_of_sizes_that_transformers_refuses) {
  for (const char* family : {"llama", "qwen3"}) {
    json::Value config = model::read_model_config("tiny");
    config.as_object().set("model_type", family);
    config.as_object().set("num_attention_heads", 3);  // the hidden size is 64, head_dim 16
    config.as_object().set("num_key_value_heads", 3);
    (void)model::initialize(hf::parse_config(config, family), at("odd.h5"), {.force = true});
    const ExportReport report = export_folder(at("odd.h5"), at("out"), {.dry_run = true});
    EXPECT_EQ(report.warnings, family == std::string("llama")
                                   ? std::vector<std::string>{"hidden_size 64 is not a multiple of num_attention_heads "
                                                              "3: transformers refuses LLaMA models of such sizes"}
                                   : std::vector<std::string>{});
  }
}

TEST_F(Export, warns_of_projections_of_two_precisions) {
  ConvertOptions options;
  options.precisions = model::PrecisionRules{.filters = {"*.0.self_attn.q_proj"}};
  convert(test::golden("llama3"), at("mixed.h5"), options);
  const ExportReport report =
      export_folder(at("mixed.h5"), at("out"), {.format = ExportFormat::compressed_tensors, .dry_run = true});
  ASSERT_EQ(report.warnings.size(), 1U);
  EXPECT_EQ(report.warnings[0],
            "model.layers.0.self_attn.q_proj.weight, model.layers.0.self_attn.k_proj.weight and "
            "model.layers.0.self_attn.v_proj.weight differ in precision; vLLM and SGLang compute them as one matrix "
            "and refuse that");
  EXPECT_FALSE(std::filesystem::exists(at("out")));
}

}  // namespace
}  // namespace fp8::convert
