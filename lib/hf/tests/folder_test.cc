// Model folders: the golden ones, shards through an index, and inconsistent folders.
#include "fp8/hf/folder.h"

#include <gtest/gtest.h>

#include <array>

#include "fp8_test.h"
#include "safetensors_text.h"

namespace fp8::hf {
namespace {

using test::error_of;
using test::TemporaryFolder;

const std::string kConfig = R"({"model_type": "llama"})";
const std::string kOne = R"({"one":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
const std::string kTwo = R"({"two":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]}})";
const std::string kHalves("\x00\x3c\x00\xc0\x01\x00\xff\x7b", 8);  // 1, -2, 2^-24, 65504

std::string index_of(const std::string& map) { return R"({"metadata":{"total_size":10},"weight_map":{)" + map + "}}"; }

TEST(Folder, opens_the_golden_models) {
  for (const auto& [name, tensors, width] : {std::tuple{"llama3", 21U, 2U},
                                             {"llama-tied", 20U, 4U},
                                             {"qwen2", 26U, 2U},
                                             {"qwen3", 25U, 2U},
                                             {"mixtral", 41U, 2U}}) {
    const Folder folder(std::string("tests/golden/models/") + name + "/hf");
    EXPECT_EQ(folder.tensors().size(), tensors) << name;
    EXPECT_EQ(folder.find("model.norm.weight")->info->element_size, width) << name;
    EXPECT_EQ(folder.find("model.embed_tokens.weight")->info->shape.front(), folder.config().vocab_size) << name;
    EXPECT_EQ(folder.find("lm_head.weight") == nullptr, folder.config().tie_word_embeddings) << name;
    EXPECT_FALSE(folder.tokenizer());
    EXPECT_EQ(folder.texts().size(), 1U) << name;
    EXPECT_TRUE(folder.texts().contains("generation_config.json")) << name;
  }
}

TEST(Folder, rows_as_floats_are_the_rows_as_stored) {
  const Folder folder("tests/golden/models/llama3/hf");
  const Folder::Entry& t = *folder.find("model.layers.0.mlp.up_proj.weight");
  std::vector<std::uint16_t> raw(3 * 64);
  std::vector<float> floats(3 * 64);
  folder.read_rows(t, 5, 3, std::as_writable_bytes(std::span(raw)));
  folder.read_rows_f32(t, 5, 3, floats);
  for (std::size_t i = 0; i < raw.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(floats[i]), static_cast<std::uint32_t>(raw[i]) << 16U);
  }
  EXPECT_NE(error_of([&] { folder.read_rows_f32(t, 175, 2, std::span(floats).first(128)); }).find("rows out of range"),
            std::string::npos);
  EXPECT_NE(error_of([&] { folder.read_rows_f32(t, 0, 1, floats); }).find("wrong size"), std::string::npos);
}

TEST(Folder, reads_shards_through_the_index) {
  const TemporaryFolder folder;
  folder.write("config.json", kConfig);
  folder.write("a.safetensors", safetensors(kOne, "xy"));
  folder.write("b.safetensors", safetensors(kTwo, kHalves));
  folder.write("model.safetensors.index.json", index_of(R"("one":"a.safetensors","two":"b.safetensors")"));
  folder.write("tokenizer.json", "{}");
  folder.write("chat_template.jinja", "{{ x }}");
  folder.write("generation_config.json", "{}");
  folder.write("other.json", "{}");
  const Folder model(folder.path());
  ASSERT_EQ(model.tensors().size(), 2U);
  EXPECT_EQ(model.tokenizer(), "{}");
  EXPECT_EQ(model.texts(),
            (std::map<std::string, std::string>{{"chat_template.jinja", "{{ x }}"}, {"generation_config.json", "{}"}}));
  EXPECT_EQ(model.find("two")->shard->path(), folder.at("b.safetensors"));
  std::array<float, 4> out{};
  model.read_rows_f32(*model.find("two"), 0, 2, out);
  EXPECT_EQ(out, (std::array<float, 4>{1, -2, 0x1p-24F, 65504}));
  model.read_rows_f32(*model.find("two"), 1, 1, std::span(out).first(2));
  EXPECT_EQ(out[0], 0x1p-24F);
  EXPECT_NE(error_of([&] {
              model.read_rows_f32(*model.find("one"), 0, 2, std::span(out).first(2));
            }).find("dtype U8 cannot be read as floats"),
            std::string::npos);
}

// Two experts of width 3, hidden size 4, in one layer, whose bytes count from 0.
const std::string kMixture = R"("num_local_experts": 2, "num_experts": 2, "num_experts_per_tok": 1, "hidden_size": 4,
  "moe_intermediate_size": 3, "intermediate_size": 3, "num_attention_heads": 2, "num_key_value_heads": 1})";
const std::string kFused = R"("model.layers.0.mlp.experts.gate_up_proj":{"dtype":"U8","shape":[2,6,4],
  "data_offsets":[0,48]},"model.layers.0.mlp.experts.down_proj":{"dtype":"U8","shape":[2,4,3],"data_offsets":[48,72]},
  "model.layers.0.mlp.gate.weight":{"dtype":"U8","shape":[2,4],"data_offsets":[72,80]}})";
std::string bytes_to(int end) {
  std::string bytes;
  for (int i = 0; i < end; ++i) bytes.push_back(static_cast<char>(i));
  return bytes;
}

TEST(Folder, experts_of_one_tensor_are_matrices_of_their_own) {
  for (const std::string type : {"mixtral", "qwen3_moe"}) {
    const TemporaryFolder place;
    place.write("config.json", R"({"model_type": ")" + type + R"(", )" + kMixture);
    place.write("model.safetensors", safetensors("{" + kFused, bytes_to(80)));
    const Folder folder(place.path());
    ASSERT_EQ(folder.tensors().size(), 7U);
    const bool qwen = type == "qwen3_moe";
    const std::string block = std::string("model.layers.0.") + (qwen ? "mlp." : "block_sparse_moe.");
    const auto check = [&](const std::string& name, const std::vector<std::int64_t>& shape, int first) {
      const Folder::Entry* entry = folder.find(block + name + ".weight");
      ASSERT_NE(entry, nullptr) << name;
      EXPECT_EQ(entry->info->shape, shape) << name;
      std::string row(static_cast<std::size_t>(shape[1]), ' ');
      folder.read_rows(*entry, 1, 1, std::as_writable_bytes(std::span(row)));
      EXPECT_EQ(row, bytes_to(80).substr(static_cast<std::size_t>(first + shape[1]), row.size())) << name;
    };
    check("gate", {2, 4}, 72);
    check(qwen ? "experts.0.gate_proj" : "experts.0.w1", {3, 4}, 0);
    check(qwen ? "experts.0.up_proj" : "experts.0.w3", {3, 4}, 12);
    check(qwen ? "experts.1.gate_proj" : "experts.1.w1", {3, 4}, 24);
    check(qwen ? "experts.1.up_proj" : "experts.1.w3", {3, 4}, 36);
    check(qwen ? "experts.0.down_proj" : "experts.0.w2", {4, 3}, 48);
    check(qwen ? "experts.1.down_proj" : "experts.1.w2", {4, 3}, 60);
  }
}

TEST(Folder, an_expert_alone_and_in_a_fused_tensor_is_refused) {
  const TemporaryFolder place;
  place.write("config.json", R"({"model_type": "qwen3_moe", )" + kMixture);
  place.write("model.safetensors",
              safetensors(R"({"model.layers.0.mlp.experts.1.down_proj.weight":{"dtype":"U8","shape":[4,3],
                "data_offsets":[80,92]},)" +
                              kFused,
                          bytes_to(92)));
  EXPECT_EQ(
      error_of([&] { const Folder folder(place.path()); }),
      place.path() + ": model.layers.0.mlp.experts.1.down_proj.weight is stored twice, alone and with other experts");
}

TEST(Folder, refuses_an_inconsistent_index) {
  const TemporaryFolder folder;
  folder.write("config.json", kConfig);
  folder.write("a.safetensors", safetensors(kOne, "xy"));
  folder.write("b.safetensors", safetensors(kTwo, kHalves));
  const auto refusal = [&](const std::string& map) {
    folder.write("model.safetensors.index.json", index_of(map));
    return error_of([&] { Folder{folder.path()}; });
  };
  for (const char* name : {"../a.safetensors", "/etc/passwd", "x/y", "..", ".", "", "a\\\\b", "a\\u0000b"}) {
    EXPECT_NE(refusal("\"one\":\"" + std::string(name) + "\"").find("is not a bare file name"), std::string::npos)
        << name;
  }
  EXPECT_NE(refusal(R"("one":"c.safetensors")").find("c.safetensors"), std::string::npos);
  EXPECT_NE(refusal(R"("one":7)").find("must map text to text"), std::string::npos);
  EXPECT_NE(
      refusal(R"("one":"a.safetensors","three":"a.safetensors","two":"b.safetensors")").find("has no tensor \"three\""),
      std::string::npos);
  EXPECT_NE(refusal(R"("one":"a.safetensors","three":"b.safetensors")").find("\"two\" is not in the index"),
            std::string::npos);
  EXPECT_NE(refusal(R"("one":"b.safetensors","two":"b.safetensors")").find("has no tensor \"one\""), std::string::npos);
  EXPECT_NE(refusal(R"("one":"b.safetensors","two":"a.safetensors")").find("belongs to b.safetensors"),
            std::string::npos);
}

TEST(Folder, names_missing_files) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& path) { return error_of([&] { Folder{path}; }); };
  EXPECT_NE(refusal(folder.at("none")).find("no such folder"), std::string::npos);
  EXPECT_FALSE(Folder::looks_like(folder.path()));
  EXPECT_NE(refusal(folder.path()).find("config.json: missing"), std::string::npos);
  EXPECT_NE(refusal(folder.write("file", "x")).find("not a folder"), std::string::npos);
  folder.write("config.json", kConfig);
  EXPECT_TRUE(Folder::looks_like(folder.path()));
  EXPECT_NE(refusal(folder.path()).find("no model.safetensors"), std::string::npos);
  folder.write("pytorch_model.bin", "x");
  EXPECT_NE(refusal(folder.path()).find("; pytorch_model.bin is not read"), std::string::npos);
  const std::string modelopt = folder.write("hf_quant_config.json", "{}");
  EXPECT_EQ(refusal(folder.path()), modelopt +
                                        ": weights quantized by ModelOpt are not supported; use the model from "
                                        "which they were made");
  std::filesystem::remove(modelopt);
  folder.write("config.json", "{\"model_type\": \"llama\"");
  EXPECT_NE(refusal(folder.path()).find("config.json: line 1"), std::string::npos);
}

}  // namespace
}  // namespace fp8::hf
