// LoRA checkpoints: adapters merged into weights of every format, and their export as PEFT writes them.
#include <cmath>
#include <filesystem>

#include "fp8/ckpt/writer.h"
#include "fp8/convert/convert.h"
#include "fp8/convert/export.h"
#include "fp8/convert/quantize.h"
#include "fp8/dtype/convert.h"
#include "fp8/hf/adapter.h"
#include "fp8/json/json.h"
#include "fp8/model/checkpoint.h"
#include "golden_models.h"

namespace fp8::convert {
namespace {

using test::error_of;
using test::weight;

const std::string kAdapter = "tests/golden/lora/llama3/final";
constexpr const char* kModule = "model.layers.1.mlp.down_proj";

class MergeLora : public test::FolderTest {
 protected:
  std::string model() {
    if (!std::filesystem::exists(at("model.h5"))) convert(test::golden("llama3"), at("model.h5"), {});
    return at("model.h5");
  }
  // A checkpoint of `base` with the golden adapter on some of its linears: those that `targets` holds, or all.
  std::string adapted(const std::string& base, const std::string& name, std::vector<std::string> targets = {}) {
    const ckpt::Checkpoint source = ckpt::Checkpoint::open(base);
    hf::ModelConfig config = hf::parse_config(source.config(), base);
    const hf::AdapterFolder adapter(kAdapter, config);
    config.lora = adapter.lora();
    if (!targets.empty()) config.lora->targets = std::move(targets);
    ckpt::ModelWriter writer(at(name), source.kind(), true);
    writer.document("config", hf::to_json(config));
    if (const auto tokenizer = source.tokenizer()) writer.tokenizer(*tokenizer);
    writer.huggingface(source.huggingface());
    for (const ckpt::TensorMeta& meta : source.tensors()) ckpt::copy_tensor(source, meta.name, writer);
    for (const model::Parameter& p : model::parameter_table(config)) {
      if (p.role != model::ParameterRole::adapter) continue;
      ckpt::TensorMeta meta;
      meta.name = "weights/" + p.name;
      meta.shape = p.shape;
      std::vector<float> values(static_cast<std::size_t>(p.size()));
      adapter.read_rows(p.name, 0, p.rows(), values);
      writer.tensor(meta, std::as_bytes(std::span(values)));
    }
    writer.commit();
    return at(name);
  }
  ConvertReport merge(const std::string& source, const std::string& name, ConvertOptions options = {}) {
    options.merge_lora = options.force = true;
    return convert(source, at(name), options);
  }
  static double norm(std::span<const float> values) {
    double sum = 0;
    for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
    return std::sqrt(sum);
  }
  // L2 norm of scaling B A of rank 8.
  static double norm_of_change(const std::vector<float>& a, const std::vector<float>& b, double scaling) {
    const std::size_t rank = 8, cols = a.size() / rank, rows = b.size() / rank;
    double sum = 0;
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = 0; j < cols; ++j) {
        double x = 0;
        for (std::size_t r = 0; r < rank; ++r)
          x += static_cast<double>(b[i * rank + r]) * static_cast<double>(a[r * cols + j]);
        sum += x * x;
      }
    return scaling * std::sqrt(sum);
  }
  static std::vector<std::byte> bytes_of(const ckpt::Checkpoint& c, const std::string& name) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(c.at(name).bytes()));
    c.read(name, bytes);
    return bytes;
  }
};

TEST_F(MergeLora, weights_become_W_plus_scaled_B_A) {
  const std::string source = adapted(model(), "lora.h5");
  const ConvertReport report = merge(source, "f32.h5", {.dtype = dtype::DType::f32});
  EXPECT_EQ(report.kind, "model");
  EXPECT_TRUE(report.requantized.empty());
  merge(source, "bf16.h5");
  const ckpt::Checkpoint before = ckpt::Checkpoint::open(source), f32 = ckpt::Checkpoint::open(at("f32.h5")),
                         bf16 = ckpt::Checkpoint::open(at("bf16.h5"));
  const hf::ModelConfig config = hf::parse_config(f32.config(), "f32");
  EXPECT_FALSE(config.lora);
  EXPECT_FALSE(f32.config().as_object().contains("lora"));
  model::check_weights(f32, model::parameter_table(config));
  for (const model::Parameter& p : model::parameter_table(config)) {
    const std::vector<float> w = weight(before, p.name), merged = weight(f32, p.name);
    if (p.role != model::ParameterRole::linear) {
      EXPECT_EQ(merged, w) << p.name;
      continue;
    }
    const std::string module = p.name.substr(0, p.name.rfind('.'));
    const std::vector<float> a = weight(before, module + ".lora_A.weight"),
                             b = weight(before, module + ".lora_B.weight");
    for (std::int64_t i = 0; i < p.size(); ++i) {
      double sum = 0;
      for (std::int64_t r = 0; r < 8; ++r)
        sum += static_cast<double>(b[static_cast<std::size_t>(i / p.cols() * 8 + r)]) *
               static_cast<double>(a[static_cast<std::size_t>(r * p.cols() + i % p.cols())]);
      const auto at = static_cast<std::size_t>(i);
      ASSERT_NEAR(merged[at], static_cast<double>(w[at]) + 2 * sum, 1e-6) << p.name << " " << i;
    }
    std::vector<std::byte> rounded(merged.size() * 2);
    dtype::from_floats(merged, dtype::DType::bf16, rounded.data());
    EXPECT_EQ(bytes_of(bf16, "weights/" + p.name), rounded) << p.name;
  }
}

TEST_F(MergeLora, codes_are_quantized_again_with_the_same_scaling) {
  for (const quant::Granularity scaling : {quant::Granularity::tensor, quant::Granularity::row,
                                           quant::Granularity::block128x128, quant::Granularity::block1x32}) {
    for (const bool power_of_2 : {false, true}) {
      quantize(model(), at("q.h5"), {.scaling = scaling, .power_of_2 = power_of_2, .force = true});
      const ConvertReport report = merge(adapted(at("q.h5"), "ql.h5"), "merged.h5");
      merge(at("ql.h5"), "exact.h5", {.dtype = dtype::DType::f32, .dequantize = true});
      EXPECT_EQ(report.kind, "quantized");
      EXPECT_EQ(report.requantized.size(), 14U);
      for (const Requantized& r : report.requantized) {
        EXPECT_TRUE(r.distance > 0 && r.distance < 0.06) << r.distance;
        // The distances share a numerator.
        const std::string module = r.name.substr(0, r.name.rfind('.'));
        const ckpt::Checkpoint adapters = ckpt::Checkpoint::open(at("ql.h5"));
        const double change =
            norm_of_change(weight(adapters, module + ".lora_A.weight"), weight(adapters, module + ".lora_B.weight"), 2);
        const double noise = *r.of_change * change;
        EXPECT_NEAR(noise / r.distance, norm(weight(ckpt::Checkpoint::open(at("exact.h5")), r.name)),
                    1e-2 * noise / r.distance)
            << r.name;
      }
      // The result is equal to the merge of the dequantized model, quantized.
      dequantize(at("q.h5"), at("d.h5"), {.force = true});
      merge(adapted(at("d.h5"), "dl.h5"), "dm.h5");
      quantize(at("dm.h5"), at("wanted.h5"), {.scaling = scaling, .power_of_2 = power_of_2, .force = true});
      const ckpt::Checkpoint got = ckpt::Checkpoint::open(at("merged.h5")),
                             wanted = ckpt::Checkpoint::open(at("wanted.h5"));
      got.verify();
      for (const ckpt::TensorMeta& meta : wanted.tensors("scales/")) {
        EXPECT_EQ(bytes_of(got, meta.name), bytes_of(wanted, meta.name)) << meta.name;
        const std::string codes = "weights/" + meta.name.substr(7);
        EXPECT_EQ(bytes_of(got, codes), bytes_of(wanted, codes)) << codes;
      }
      EXPECT_EQ(convert(at("ql.h5"), at("plain.h5"), {.dequantize = true, .merge_lora = true, .force = true}).kind,
                "model");
    }
  }
}

TEST_F(MergeLora, codes_without_an_adapter_stay) {
  quantize(model(), at("q.h5"), {.scaling = quant::Granularity::row});
  const ConvertReport report = merge(adapted(at("q.h5"), "ql.h5", {kModule}), "merged.h5");
  ASSERT_EQ(report.requantized.size(), 1U);
  EXPECT_EQ(report.requantized.front().name, std::string(kModule) + ".weight");
  const ckpt::Checkpoint before = ckpt::Checkpoint::open(at("q.h5")), after = ckpt::Checkpoint::open(at("merged.h5"));
  for (const ckpt::TensorMeta& meta : before.tensors()) {
    const bool same = bytes_of(before, meta.name) == bytes_of(after, meta.name);
    EXPECT_EQ(same, meta.name.find(kModule) == std::string::npos) << meta.name;
  }
}

TEST_F(MergeLora, what_cannot_be_merged_is_refused) {
  EXPECT_EQ(error_of([&] { merge(model(), "x.h5"); }),
            model() + ": has no LoRA adapters, so there is nothing to merge");
  const std::string source = adapted(model(), "lora.h5");
  EXPECT_EQ(error_of([&] { convert(source, at("x.h5"), {.pad = true}); }),
            source + ": its LoRA adapters are not padded");
  EXPECT_EQ(convert(source, at("x.h5"), {.pad = true, .merge_lora = true}).kind, "model");
}

TEST_F(MergeLora, the_adapter_alone_is_exported_as_PEFT_writes_it) {
  const std::string source = adapted(model(), "lora.h5");
  const ExportReport report = export_folder(source, at("peft"), {.format = ExportFormat::peft});
  EXPECT_EQ(report.files,
            (std::vector<std::string>{"adapter_model.safetensors", "adapter_config.json", "generation_config.json"}));
  const hf::SafetensorsFile wanted(kAdapter + "/adapter_model.safetensors"),
      got(at("peft") + "/adapter_model.safetensors");
  ASSERT_EQ(got.tensors().size(), wanted.tensors().size());
  for (const hf::TensorInfo& t : wanted.tensors()) {
    const hf::TensorInfo* found = got.find(t.name);
    ASSERT_NE(found, nullptr) << t.name;
    EXPECT_EQ(found->shape, t.shape);
    EXPECT_EQ(found->dtype, "F32");
    std::vector<std::byte> a(t.end - t.begin), b(a.size());
    wanted.read(t, 0, a);
    got.read(*found, 0, b);
    EXPECT_EQ(a, b) << t.name;
  }
  const json::Value theirs = json::parse_file(kAdapter + "/adapter_config.json"),
                    ours = json::parse_file(at("peft") + "/adapter_config.json");
  for (const auto& [key, value] : ours.as_object()) {
    if (key == "base_model_name_or_path") continue;
    ASSERT_TRUE(theirs.as_object().contains(key)) << key;
    if (key == "lora_alpha") continue;
    EXPECT_EQ(value, theirs.as_object().at(key)) << key;
  }
  EXPECT_EQ(ours.as_object().get_double("lora_alpha", "ours"), 16);
  const hf::ModelConfig config = hf::parse_config(ckpt::Checkpoint::open(source).config(), source);
  EXPECT_EQ(hf::AdapterFolder(at("peft"), config).lora(), *config.lora);
  // If only one linear has an adapter, its full name is written.
  export_folder(adapted(model(), "one.h5", {kModule}), at("one"), {.format = ExportFormat::peft});
  EXPECT_EQ(json::dump(json::parse_file(at("one") + "/adapter_config.json").as_object().at("target_modules")),
            "[\"" + std::string(kModule) + "\"]");
}

TEST_F(MergeLora, exported_adapters_have_the_texts_of_their_tokenizer_and_end_as_the_template_does) {
  const char* const tokenizer = R"({"model": {"vocab": {"<end>": 1, "<turn>": 2}, "merges": []}})";
  std::filesystem::copy(test::golden("llama3"), at("hf"));
  test::write_file(at("hf") + "/tokenizer.json", tokenizer);
  test::write_file(at("hf") + "/generation_config.json", R"({"eos_token_id": 1})");
  test::write_file(at("hf") + "/tokenizer_config.json", R"({"eos_token": "<end>", "add_bos_token": true})");
  test::write_file(at("hf") + "/chat_template.jinja", "{{ messages }}");
  convert(at("hf"), at("base.h5"), {});
  const std::string source = adapted(at("base.h5"), "lora.h5");
  const auto text = [&](const char* name) { return test::read_file(at("out") + "/" + name); };
  const auto object = [&](const char* name) { return json::dump(json::parse(text(name), name)); };
  export_folder(source, at("out"), {.format = ExportFormat::peft, .end_tokens = {"<turn>"}});
  EXPECT_EQ(text("tokenizer.json"), tokenizer);
  EXPECT_EQ(text("chat_template.jinja"), "{{ messages }}");
  EXPECT_EQ(object("tokenizer_config.json"), R"({"eos_token":"<turn>","add_bos_token":true})");
  EXPECT_EQ(object("generation_config.json"), R"({"eos_token_id":[1,2],"bos_token_id":1})");
  EXPECT_FALSE(std::filesystem::exists(at("out") + "/config.json"));
  export_folder(source, at("out"), {.format = ExportFormat::peft, .force = true});
  EXPECT_EQ(text("tokenizer_config.json"), R"({"eos_token": "<end>", "add_bos_token": true})");
  EXPECT_EQ(object("generation_config.json"), R"({"eos_token_id":1,"bos_token_id":1})");
}

TEST_F(MergeLora, other_exports_need_merged_weights) {
  const std::string source = adapted(model(), "lora.h5");
  for (const ExportFormat format : {ExportFormat::bf16, ExportFormat::fp8, ExportFormat::compressed_tensors})
    EXPECT_EQ(error_of([&] { export_folder(source, at("x"), {.format = format}); }),
              source + ": holds LoRA adapters; merge them first: fp8-convert " + source + " --merge-lora -o merged.h5");
  EXPECT_EQ(error_of([&] { export_folder(model(), at("x"), {.format = ExportFormat::peft}); }),
            model() + ": has no LoRA adapters to export");
  EXPECT_FALSE(std::filesystem::exists(at("x")));
}

}  // namespace
}  // namespace fp8::convert
