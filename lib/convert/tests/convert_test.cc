// Conversion of the reference models and of checkpoints: round trips, compute precisions and errors.
#include "fp8/convert/convert.h"

#include <filesystem>
#include <fstream>
#include <map>

#include "divide.h"
#include "fp8/base/file.h"
#include "fp8/ckpt/writer.h"
#include "fp8/dtype/element.h"
#include "fp8/hf/folder.h"
#include "fp8/json/json.h"
#include "fp8/model/checkpoint.h"
#include "golden_models.h"
#include "manifest_parts.h"

namespace fp8::convert {
namespace {

using test::error_of;
using test::golden;
using test::weight;

// A Hugging Face folder made by a test: configuration and tensors of ones.
class Convert : public test::FolderTest {
 protected:
  using Shapes = std::map<std::string, std::vector<std::int64_t>>;

  static json::Value config() {
    return json::object({{"model_type", "llama"},
                         {"vocab_size", 16},
                         {"hidden_size", 16},
                         {"intermediate_size", 24},
                         {"num_hidden_layers", 1},
                         {"num_attention_heads", 2},
                         {"hidden_act", "silu"},
                         {"rms_norm_eps", 1e-6},
                         {"rope_theta", 10000},
                         {"max_position_embeddings", 64},
                         {"tie_word_embeddings", false},
                         {"initializer_range", 0.02},
                         {"attention_bias", false},
                         {"mlp_bias", false}});
  }
  static Shapes shapes(const json::Value& c) {
    Shapes out;
    for (const model::Parameter& p : model::parameter_table(hf::parse_config(c, "c"))) out[p.name] = p.shape;
    return out;
  }
  std::string folder(const json::Value& c, const Shapes& tensors, dtype::DType type = dtype::DType::f32) {
    const std::string place = at("hf");
    std::filesystem::create_directories(place);
    test::write_file(place + "/config.json", json::dump(c));
    std::vector<hf::TensorSpec> specs;
    for (const auto& [name, shape] : tensors) specs.push_back({name, type, shape});
    std::filesystem::remove(place + "/model.safetensors");
    hf::SafetensorsWriter writer(place + "/model.safetensors", specs);
    for (const hf::TensorSpec& spec : specs) {
      std::int64_t n = static_cast<std::int64_t>(dtype::size_of(type));
      for (const std::int64_t extent : spec.shape) n *= extent;
      // Every byte 0x3C: 0x3C3C in f16 is 1.05859375.
      writer.begin(spec.name);
      writer.write(std::vector<std::byte>(static_cast<std::size_t>(n), std::byte{0x3C}));
    }
    writer.finish();
    return place;
  }
  // A training checkpoint of two ranks: rank 1 owns the last row of each tensor.
  std::string training() {
    const std::string place = at("step-00000002"), temporary = ckpt::begin_folder(place);
    std::vector<ckpt::FileEntry> entries;
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      ckpt::ShardWriter writer(temporary, rank, 2, ckpt::FileKind::training);
      if (rank == 0) {
        writer.document("config", config());
        writer.document("train", json::object({{"step", 2}, {"updates", 2}, {"tokens", 32}}));
        writer.document("provenance", model::with_origin(nullptr, {"fp8-step", "1", "fp8-step"}));
        writer.tokenizer("{}");
        writer.huggingface({{"generation_config.json", "{}"}});
      }
      for (const auto& [name, shape] : shapes(config())) {
        for (const char* section : {"weights/", "optimizer/m/", "optimizer/v/", "extra/"}) {
          add_shard(writer, section + name, shape, rank);
        }
      }
      entries.push_back(writer.finish());
    }
    ckpt::commit_folder(temporary, place, ckpt::FileKind::training, test::mesh_of(2), entries);
    return place;
  }
  static void add_shard(ckpt::ShardWriter& writer, const std::string& name, const std::vector<std::int64_t>& shape,
                        std::int64_t rank) {
    ckpt::TensorMeta meta;
    meta.name = name;
    meta.shape = shape;
    if (name.starts_with("weights/")) {
      meta.precision = "bf16";
      meta.reason = "because";
    }
    const std::int64_t begin = rank == 0 ? 0 : shape[0] - 1, end = rank == 0 ? shape[0] - 1 : shape[0];
    std::vector<float> values((end - begin) * meta.row_bytes() / 4, rank == 0 ? 1.0F : 2.0F);
    writer.tensor(meta, ckpt::rows_block(meta, begin, end), std::as_bytes(std::span(values)));
  }
  std::string out() const { return at("m.h5"); }
};

class ConvertGolden : public Convert, public testing::WithParamInterface<const char*> {};

TEST_P(ConvertGolden, KeepsEveryBit) {
  const hf::Folder source(golden(GetParam()));
  const ConvertReport report = convert(golden(GetParam()), out(), {});
  const ckpt::Checkpoint c = ckpt::Checkpoint::open(out());
  c.verify();
  EXPECT_EQ(c.tensors().size(), source.tensors().size());
  EXPECT_EQ(report.tensors, static_cast<std::int64_t>(source.tensors().size()));
  for (const hf::Folder::Entry& e : source.tensors()) {
    const ckpt::TensorMeta& meta = c.at("weights/" + e.info->name);
    EXPECT_EQ(meta.dtype, e.info->format);
    EXPECT_EQ(meta.shape, e.info->shape);
    std::vector<std::byte> a(meta.bytes()), b(meta.bytes());
    source.read_rows(e, 0, meta.rows(), a);
    c.read(meta.name, b);
    EXPECT_EQ(a, b) << meta.name;
  }
  EXPECT_TRUE(hf::same_model(hf::parse_config(c.config(), "c"), source.config()));
}

TEST_P(ConvertGolden, ASecondConversionChangesNothing) {
  convert(golden(GetParam()), out(), {});
  convert(out(), at("again.h5"), {});
  const ckpt::Checkpoint a = ckpt::Checkpoint::open(out()), b = ckpt::Checkpoint::open(at("again.h5"));
  EXPECT_EQ(a.tensors(), b.tensors());
  EXPECT_EQ(a.config(), b.config());
  EXPECT_EQ(b.provenance().as_array().size(), 2U);
}

INSTANTIATE_TEST_SUITE_P(Models, ConvertGolden, testing::Values("llama3", "llama-tied", "qwen2", "qwen3", "mixtral"));

TEST_F(Convert, BothSpellingsOfTheConfigurationAgree) {
  const std::string old = at("old");
  std::filesystem::create_directories(old);
  std::filesystem::copy(golden("llama3") + "/config.v4.json", old + "/config.json");
  std::filesystem::copy(golden("llama3") + "/model.safetensors", old + "/model.safetensors");
  convert(golden("llama3"), at("a.h5"), {});
  convert(old, at("b.h5"), {});
  EXPECT_TRUE(hf::same_model(hf::parse_config(ckpt::Checkpoint::open(at("a.h5")).config(), "a"),
                             hf::parse_config(ckpt::Checkpoint::open(at("b.h5")).config(), "b")));
}

TEST_F(Convert, PrecisionsOfLinears) {
  const ConvertReport report = convert(
      golden("llama3"), out(), {.precisions = model::PrecisionRules{.filters = {"*layers.1*"}, .lm_head = true}});
  ASSERT_EQ(report.linears.size(), 15U);
  EXPECT_EQ(report.linears[0].name, "model.layers.0.self_attn.q_proj.weight");
  EXPECT_TRUE(report.linears[0].fp8);
  EXPECT_EQ(report.linears[7].reason, "filter *layers.1*");
  EXPECT_TRUE(report.linears[7].aligned);
  EXPECT_TRUE(report.linears[14].fp8);
  const ckpt::Checkpoint c = ckpt::Checkpoint::open(out());
  EXPECT_EQ(c.at("weights/lm_head.weight").precision, "fp8");
  EXPECT_EQ(c.at("weights/model.layers.1.mlp.up_proj.weight").reason, "filter *layers.1*");

  // Recorded compute precisions are kept unless options replace them.
  EXPECT_TRUE(convert(out(), at("b.h5"), {}).linears[14].fp8);
  EXPECT_FALSE(convert(out(), at("c.h5"), {.precisions = model::PrecisionRules{}}).linears[14].fp8);
}

TEST_F(Convert, TheHeadOfATiedModelIsListed) {
  const ConvertReport report = convert(golden("llama-tied"), out(), {});
  EXPECT_EQ(report.linears.back().name, "lm_head.weight");
  EXPECT_EQ(report.linears.back().reason, "LM head, tied to the embedding");
}

TEST_F(Convert, FormatOnRequest) {
  convert(golden("llama-tied"), out(), {.dtype = dtype::DType::bf16});
  convert(golden("llama-tied"), at("f.h5"), {});
  const ckpt::Checkpoint b = ckpt::Checkpoint::open(out()), f = ckpt::Checkpoint::open(at("f.h5"));
  std::vector<float> rounded = weight(f, "model.layers.0.mlp.up_proj.weight");
  for (float& v : rounded) v = dtype::to_float(dtype::to_bf16(v));
  EXPECT_EQ(weight(b, "model.layers.0.mlp.up_proj.weight"), rounded);
  EXPECT_EQ(b.config().as_object().at("dtype").as_string(), "bfloat16");
  EXPECT_EQ(f.config().as_object().at("dtype").as_string(), "float32");
}

TEST_F(Convert, F16BecomesF32) {
  convert(folder(config(), shapes(config()), dtype::DType::f16), out(), {});
  const ckpt::Checkpoint c = ckpt::Checkpoint::open(out());
  EXPECT_EQ(c.at("weights/model.norm.weight").dtype, dtype::DType::f32);
  EXPECT_EQ(weight(c, "model.norm.weight"), std::vector<float>(16, 1.05859375F));
}

TEST_F(Convert, NamesMissingAndMisshapenTensors) {
  Shapes tensors = shapes(config());
  tensors.erase("model.norm.weight");
  tensors["model.extra.weight"] = {2};
  tensors["model.layers.0.mlp.up_proj.weight"] = {24, 15};
  EXPECT_EQ(
      error_of([&] { convert(folder(config(), tensors), out(), {}); }),
      at("hf") +
          ": missing tensors: model.norm.weight; tensors of the wrong shape: "
          "model.layers.0.mlp.up_proj.weight [24, 15] instead of [24, 16]; unexpected tensors: model.extra.weight");
  EXPECT_FALSE(std::filesystem::exists(out()));
}

TEST_F(Convert, OtherFormatsAreRefused) {
  EXPECT_EQ(error_of([&] { convert(folder(config(), shapes(config()), dtype::DType::e4m3), out(), {}); }),
            at("hf") + ": model.embed_tokens.weight: stored as F8_E4M3; weights must be f32, bf16 or f16");
}

TEST_F(Convert, DerivedBuffersAndATiedHeadAreDropped) {
  json::Value tied = config();
  tied.as_object().set("tie_word_embeddings", true);
  Shapes tensors = shapes(tied);
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {4};
  tensors["lm_head.weight"] = {16, 16};
  convert(folder(tied, tensors), out(), {});
  EXPECT_EQ(ckpt::Checkpoint::open(out()).find("weights/lm_head.weight"), nullptr);
}

TEST_F(Convert, ADifferentHeadInATiedModelIsRefused) {
  json::Value tied = config();
  tied.as_object().set("tie_word_embeddings", true);
  Shapes tensors = shapes(tied);
  tensors["lm_head.weight"] = {16, 16};
  const std::string place = folder(tied, tensors);
  File file = File::open_update(place + "/model.safetensors");
  // The head is the first name in sorted order, so its data follows the header.
  std::array<std::byte, 8> length{};
  file.pread_exact(length, 0);
  file.pwrite_all(length,
                  8 + std::to_integer<std::uint64_t>(length[0]) + 256 * std::to_integer<std::uint64_t>(length[1]));
  file.close();
  EXPECT_EQ(error_of([&] { convert(place, out(), {}); }),
            place + ": lm_head.weight differs from the embedding, though tie_word_embeddings is true");
}

TEST_F(Convert, TokenizerAndOtherTextsAreCopied) {
  const std::string place = folder(config(), shapes(config()));
  const std::map<std::string, std::string> texts{{"tokenizer_config.json", "{\"eos_token\":\"</s>\"}"},
                                                 {"generation_config.json", "{\"do_sample\":true}"},
                                                 {"chat_template.jinja", "{{ bos_token }}"}};
  const std::string tokenizer = R"({"model":{"vocab":{"a":0},"merges":[]}})";
  test::write_file(place + "/tokenizer.json", tokenizer);
  test::write_file(place + "/notes.txt", "not kept");
  for (const auto& [name, text] : texts) test::write_file(place + "/" + name, text);
  convert(place, out(), {});
  convert(out(), at("b.h5"), {});
  EXPECT_EQ(ckpt::Checkpoint::open(at("b.h5")).tokenizer(), tokenizer);
  EXPECT_EQ(ckpt::Checkpoint::open(at("b.h5")).huggingface(), texts);
}

TEST_F(Convert, ATokenizerLargerThanTheEmbeddingIsNoted) {
  const std::string place = folder(config(), shapes(config()));
  const std::int64_t rows = config().as_object().get_int("vocab_size", "config");
  const auto notes_with_last_id = [&](std::int64_t id) {
    test::write_file(place + "/tokenizer.json",
                     R"({"model":{"vocab":{"a":)" + std::to_string(id) + R"(},"merges":[]}})");
    return convert(place, out(), {.force = true}).notes;
  };
  EXPECT_TRUE(notes_with_last_id(rows - 1).empty());
  const std::vector<std::string> notes = notes_with_last_id(rows);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_EQ(notes.front(), place + ": tokenizer.json has " + std::to_string(rows + 1) + " tokens, but the embedding " +
                               std::to_string(rows) +
                               " rows; data of this tokenizer is refused until the embedding is resized (in "
                               "transformers: resize_token_embeddings)");
}

TEST_F(Convert, WhatToolsMissInATokenizerIsSaid) {
  const std::string place = folder(config(), shapes(config())), file = place + "/tokenizer.json";
  const auto notes = [&] { return convert(place, out(), {.force = true}).notes; };
  const std::string none =
      place + ": has no tokenizer.json, so the checkpoint has no tokenizer and takes token ids alone";
  EXPECT_EQ(notes(), std::vector{none});
  test::write_file(place + "/tokenizer.model", "x");
  ASSERT_EQ(notes().size(), 1U);
  EXPECT_TRUE(notes().front().starts_with(none + "; the Python packages transformers and sentencepiece make one of "));
  const std::string model = R"("model":{"vocab":{"a":0},"merges":[]}})";
  test::write_file(file, R"({"truncation":{"max_length":8},)" + model);
  EXPECT_EQ(notes(), std::vector{place + ": truncation of tokenizer.json: ignored; no tool cuts or pads texts by it"});
  test::write_file(file, R"({"normalizer":{"type":"Precompiled"},)" + model);
  EXPECT_EQ(notes(),
            std::vector{file + ": normalizer: \"Precompiled\" is not supported; the tokenizer is kept for an " +
                        "export, but fp8-tokenize and fp8-generate do not encode text with it"});
  test::write_file(file, R"({"model":{"type":"Unigram","vocab":[]}})");
  EXPECT_EQ(test::error_of(notes), file +
                                       ": model: \"Unigram\" is not supported (BPE is); without this file the folder "
                                       "is converted for data of token ids");
}

TEST_F(Convert, ShardsNeedMerge) {
  const std::string source = training();
  EXPECT_EQ(error_of([&] { convert(source, out(), {}); }), source + ": sharded over 2 files");
}

TEST_F(Convert, MergeKeepsTheWholeTrainingState) {
  const ConvertReport report = convert(training(), out(), {.merge = true, .origin = {"fp8-convert", "1", "x"}});
  EXPECT_EQ(report.kind, "training");
  EXPECT_EQ(report.linears[0].reason, "because");
  const ckpt::Checkpoint c = ckpt::Checkpoint::open(out());
  c.verify();
  EXPECT_FALSE(std::filesystem::is_directory(c.path()));
  EXPECT_EQ(c.kind(), ckpt::FileKind::training);
  EXPECT_EQ(c.train(), json::object({{"step", 2}, {"updates", 2}, {"tokens", 32}}));
  EXPECT_EQ(c.tokenizer(), "{}");
  EXPECT_EQ(c.huggingface(), (std::map<std::string, std::string>{{"generation_config.json", "{}"}}));
  EXPECT_EQ(c.provenance().as_array().size(), 2U);
  EXPECT_EQ(c.tensors().size(), 4 * shapes(config()).size());
  std::vector<float> norm(16, 1.0F);
  norm.back() = 2.0F;
  EXPECT_EQ(weight(c, "model.norm.weight"), norm);
  std::vector<float> moment(16);
  c.read_rows_as_f32("optimizer/v/model.norm.weight", 0, 16, moment);
  EXPECT_EQ(moment, norm);
}

// Blocks that are split in rows and columns merge into the same bytes as rows.
TEST_F(Convert, MergeReadsBlocksOfAnyMesh) {
  const ConvertOptions options{.merge = true, .force = true, .origin = {"fp8-convert", "1", "x"}};
  const std::string source = training();
  convert(source, out(), options);
  const std::string wanted = test::read_file(out());
  for (const int ranks : {2, 4, 6}) {
    const std::string boxes = at("boxes" + std::to_string(ranks));
    test::divide(source, boxes, ranks);
    EXPECT_EQ(error_of([&] { convert(boxes, at("x.h5"), {}); }),
              boxes + ": sharded over " + std::to_string(ranks) + " files");
    convert(boxes, out(), options);
    EXPECT_TRUE(test::read_file(out()) == wanted) << ranks;
  }
}

TEST_F(Convert, WithoutMergeATrainingCheckpointGivesItsWeights) {
  convert(training(), at("t.h5"), {.merge = true});
  const ConvertReport report = convert(at("t.h5"), out(), {});
  EXPECT_EQ(report.kind, "model");
  const ckpt::Checkpoint c = ckpt::Checkpoint::open(out());
  EXPECT_TRUE(c.train().is_null());
  EXPECT_TRUE(c.tensors("optimizer/").empty());
  EXPECT_EQ(c.tensors("extra/").size(), shapes(config()).size());
}

TEST_F(Convert, QuantizedIsRefused) {
  ckpt::ModelWriter writer(at("q.h5"), ckpt::FileKind::quantized, false);
  writer.document("config", config());
  writer.commit();
  EXPECT_EQ(error_of([&] { convert(at("q.h5"), out(), {}); }),
            at("q.h5") + ": quantized; dequantize it with fp8-quantize first");
}

TEST_F(Convert, DryRunAndExistingOutput) {
  EXPECT_EQ(convert(golden("qwen3"), out(), {.dry_run = true}).linears.size(), 15U);
  EXPECT_TRUE(names().empty());
  convert(golden("qwen3"), out(), {});
  EXPECT_EQ(error_of([&] { convert(golden("qwen3"), out(), {}); }), out() + ": exists");
  EXPECT_EQ(error_of([&] { convert(out(), out(), {.force = true}); }), out() + ": is also an input");
  convert(golden("qwen3"), out(), {.force = true});
  EXPECT_EQ(names(), std::vector<std::string>{"m.h5"});
}

TEST_F(Convert, CheckWeightsAndPrecisions) {
  convert(golden("llama3"), out(), {});
  const ckpt::Checkpoint c = ckpt::Checkpoint::open(out());
  hf::ModelConfig other = hf::parse_config(c.config(), "c");
  model::check_weights(c, model::parameter_table(other));
  other.intermediate_size = 160;
  EXPECT_NE(
      error_of([&] { model::check_weights(c, model::parameter_table(other)); }).find("[176, 64] instead of [160, 64]"),
      std::string::npos);
  other.intermediate_size = 170;
  std::vector<model::Parameter> table = model::parameter_table(other);
  EXPECT_NE(error_of([&] { model::read_precisions(c, table); }).find("its precision is fp8, but it cannot be"),
            std::string::npos);
}

}  // namespace
}  // namespace fp8::convert
