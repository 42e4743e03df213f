// Padding: old values stay, the rest is zero; which sizes change, the compute precisions, and what is refused.
#include <filesystem>

#include "fp8/ckpt/writer.h"
#include "fp8/convert/convert.h"
#include "fp8/model/checkpoint.h"
#include "fp8/model/initialize.h"
#include "golden_models.h"

namespace fp8::convert {
namespace {

using test::error_of;
using test::weight;

class Pad : public test::FolderTest {
 protected:
  // A checkpoint with an intermediate size of 24 and a vocabulary of 20.
  std::string odd(std::int64_t hidden = 16, std::int64_t heads = 2, bool tied = false) {
    const json::Value config = json::object({{"model_type", "llama"},
                                             {"vocab_size", 20},
                                             {"hidden_size", hidden},
                                             {"intermediate_size", 24},
                                             {"num_hidden_layers", 1},
                                             {"num_attention_heads", heads},
                                             {"head_dim", 8},
                                             {"mlp_bias", true},
                                             {"tie_word_embeddings", tied}});
    model::initialize(hf::parse_config(config, "c"), at("odd.h5"), {.force = true});
    return at("odd.h5");
  }
  static hf::ModelConfig config_of(const ckpt::Checkpoint& c) { return hf::parse_config(c.config(), "c"); }
  static const model::LinearRow& row(const ConvertReport& report, const std::string& end) {
    for (const model::LinearRow& l : report.linears)
      if (l.name.ends_with(end)) return l;
    throw Error(end + ": not in the table");
  }
  std::string out() const { return at("out.h5"); }
};

TEST_F(Pad, old_values_stay_and_the_rest_is_zero) {
  const ConvertReport report =
      convert(odd(), out(), {.precisions = model::PrecisionRules{.lm_head = true}, .pad = true});
  const ckpt::Checkpoint before = ckpt::Checkpoint::open(odd()), after = ckpt::Checkpoint::open(out());
  EXPECT_EQ(config_of(after).intermediate_size, 32);
  EXPECT_EQ(config_of(after).vocab_size, 32);
  EXPECT_EQ(config_of(after).hidden_size, 16);
  model::check_weights(after, model::parameter_table(config_of(after)));
  for (const ckpt::TensorMeta& old : before.tensors("weights/")) {
    const ckpt::TensorMeta& padded = after.at(old.name);
    const std::string name = old.name.substr(8);
    const std::vector<float> a = weight(before, name), b = weight(after, name);
    const std::int64_t old_cols = old.shape.size() > 1 ? old.shape[1] : 1;
    const std::int64_t cols = padded.shape.size() > 1 ? padded.shape[1] : 1;
    for (std::int64_t r = 0; r < padded.shape[0]; ++r)
      for (std::int64_t c = 0; c < cols; ++c) {
        const bool there = r < old.shape[0] && c < old_cols;
        const float wanted = there ? a[static_cast<std::size_t>(r * old_cols + c)] : 0.0F;
        EXPECT_EQ(b[static_cast<std::size_t>(r * cols + c)], wanted) << name << " " << r << " " << c;
      }
  }
  ASSERT_EQ(report.padded_sizes.size(), 2U);
  EXPECT_EQ(report.padded_sizes[0].key, "intermediate_size");
  EXPECT_EQ(report.padded_sizes[1].key, "vocab_size");
  ASSERT_EQ(report.notes.size(), 1U);
  EXPECT_NE(report.notes.front().find("the loss grows by ln(1 + 12 / sum of exp(logit))"), std::string::npos);
  EXPECT_EQ(row(report, "down_proj.weight").padded_from, (std::vector<std::int64_t>{16, 24}));
  EXPECT_TRUE(row(report, "q_proj.weight").padded_from.empty());
  for (const model::LinearRow& l : report.linears) EXPECT_TRUE(l.fp8) << l.name;
}

TEST_F(Pad, a_vocabulary_stays_where_the_head_would_not_be_FP8) {
  const auto padded = [&](const std::string& source, const model::PrecisionRules& precisions) {
    const ConvertReport report = convert(source, out(), {.precisions = precisions, .pad = true, .force = true});
    EXPECT_EQ(report.padded_sizes.size(), 1U);
    EXPECT_TRUE(report.notes.empty());
    return config_of(ckpt::Checkpoint::open(out())).vocab_size;
  };
  EXPECT_EQ(padded(odd(), {}), 20);
  EXPECT_EQ(padded(odd(), {.filters = {"lm_head"}, .lm_head = true}), 20);
  EXPECT_EQ(padded(odd(16, 2, true), {.lm_head = true}), 20);
  EXPECT_EQ(padded(odd(24), {.lm_head = true}), 20);
}

TEST_F(Pad, what_cannot_be_padded_has_a_reason) {
  const ConvertReport hidden = convert(odd(24), out(), {.pad = true});
  EXPECT_EQ(row(hidden, "up_proj.weight").reason,
            "24 columns are not a multiple of 16, and the hidden size cannot be padded");
  EXPECT_EQ(row(hidden, "down_proj.weight").reason,
            "24 rows are not a multiple of 16, and the hidden size cannot be padded");
  const ConvertReport heads = convert(odd(16, 1), out(), {.pad = true, .force = true});
  EXPECT_EQ(row(heads, "q_proj.weight").reason, "8 rows are not a multiple of 16, and the heads cannot be padded");
  EXPECT_EQ(row(heads, "o_proj.weight").reason, "8 columns are not a multiple of 16, and the heads cannot be padded");
  EXPECT_TRUE(row(heads, "down_proj.weight").fp8);
}

TEST_F(Pad, recorded_precisions_change_only_where_padding_removes_the_reason) {
  convert(odd(), at("filtered.h5"), {.precisions = model::PrecisionRules{.filters = {"*.up_proj", "*.q_proj"}}});
  const ConvertReport report = convert(at("filtered.h5"), out(), {.pad = true});
  EXPECT_EQ(row(report, "up_proj.weight").reason, "filter *.up_proj");
  EXPECT_EQ(row(report, "q_proj.weight").reason, "filter *.q_proj");
  EXPECT_TRUE(row(report, "gate_proj.weight").fp8);
  EXPECT_TRUE(row(report, "down_proj.weight").fp8);
  EXPECT_EQ(ckpt::Checkpoint::open(out()).at("weights/model.layers.0.mlp.down_proj.weight").precision, "fp8");
}

TEST_F(Pad, nothing_to_pad_is_a_plain_conversion) {
  const ConvertReport report = convert(test::golden("llama3"), out(), {.pad = true});
  EXPECT_TRUE(report.padded_sizes.empty());
  convert(test::golden("llama3"), at("plain.h5"), {});
  EXPECT_EQ(test::read_file(out()), test::read_file(at("plain.h5")));
}

TEST_F(Pad, moments_are_not_padded) {
  {
    const ckpt::Checkpoint model = ckpt::Checkpoint::open(odd());
    ckpt::ModelWriter writer(at("training.h5"), ckpt::FileKind::training, false);
    writer.document("config", model.config());
    writer.document("train", json::object({{"step", 1}, {"updates", 1}, {"tokens", 1}}));
    for (const ckpt::TensorMeta& meta : model.tensors("weights/")) ckpt::copy_tensor(model, meta.name, writer);
    writer.commit();
  }
  EXPECT_EQ(error_of([&] { convert(at("training.h5"), out(), {.pad = true, .merge = true}); }),
            at("training.h5") + ": a training checkpoint; its moments are not padded");
  EXPECT_FALSE(std::filesystem::exists(out()));
  EXPECT_EQ(convert(at("training.h5"), out(), {.pad = true}).kind, "model");
}

}  // namespace
}  // namespace fp8::convert
