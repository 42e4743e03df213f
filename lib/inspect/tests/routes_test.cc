// A mixture in which FP8 changes the routes of some tokens, by construction, and no others.
#include <array>
#include <cmath>

#include "fp8/ckpt/writer.h"
#include "fp8/data/tokens.h"
#include "fp8/inspect/inspect.h"
#include "fp8/json/json.h"
#include "fp8/model/output.h"
#include "fp8/model/record.h"
#include "fp8_test.h"

namespace fp8::inspect {
namespace {

constexpr std::size_t kSize = 32;  // of every dimension
constexpr std::int64_t kSequenceLength = 16;

hf::ModelConfig mixture() {
  return hf::parse_config(json::parse(R"({"model_type": "mixtral", "vocab_size": 32, "hidden_size": 32,
    "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
    "head_dim": 16, "max_position_embeddings": 64, "num_local_experts": 4, "num_experts_per_tok": 2})",
                                      "mixture"),
                          "mixture");
}

// The hidden state is +1 everywhere, but -1 in column 1 of tokens other than 0. Attention adds nothing. Layer 0 gives
// every token the experts 0 and 1, which add 17/16 to column 2 of token 0, and about 0 to that of other tokens: the
// gate is 32 or -32, up 17/16, and down divides by 32. Under one scale for the tensor, 256 because of an element of 7/4
// that has no effect, 17/16 lies between two codes and becomes 1; under a scale of its row it is exact. In layer 1
// expert 1 comes before expert 2 where column 2 is above 65/32.
float value(const std::string& name, std::size_t row, std::size_t column) {
  const auto is = [&](const char* part) { return name.find(part) != std::string::npos; };
  const auto at = [&](std::size_t r, std::size_t c) { return row == r && column == c; };
  if (is("norm.weight")) return 1;
  if (is("embed_tokens")) return column == 1 && row != 0 ? -1 : 1;
  if (is("o_proj")) return 0;
  if (is("layers.0.block_sparse_moe.gate.")) return 0;
  if (is("layers.1.block_sparse_moe.gate."))
    return at(0, 0) ? 4.0f : at(1, 0) ? -65.0f / 32 : at(1, 2) ? 1.0f : at(3, 0) ? -4.0f : 0.0f;
  if (is(".w1.")) return at(0, 1) ? 32 : 0;
  if (is(".w3.")) return at(0, 0) ? 17.0f / 16 : at(1, 0) ? 1.75f : 0.0f;
  if (is(".w2.")) return at(2, 0) ? 1.0f / 32 : 0.0f;
  return 0.125f * std::sin(static_cast<float>(row * kSize + column));
}

class Routes : public test::FolderTest {
 protected:
  Routes() {
    const hf::ModelConfig config = mixture();
    ckpt::ModelWriter writer(at("m.h5"), ckpt::FileKind::model, true);
    writer.document("config", model::config_with_dtype(config, dtype::DType::f32));
    writer.document("provenance", model::with_origin(nullptr, {}));
    for (const model::Parameter& p : model::parameter_table(config)) {
      std::vector<float> values;
      for (std::size_t r = 0; r < static_cast<std::size_t>(p.rows()); ++r)
        for (std::size_t c = 0; c < static_cast<std::size_t>(p.cols()); ++c) values.push_back(value(p.name, r, c));
      writer.tensor(model::meta_of(p, dtype::DType::f32), std::as_bytes(std::span(values)));
    }
    writer.commit();
  }

  // Documents of these lengths, of which three tokens in eight are 0.
  void write_documents(const std::vector<std::size_t>& lengths) {
    data::TokenWriter writer(at("d.h5"), kSize, std::nullopt, false, true);
    for (const std::size_t length : lengths) {
      std::vector<std::uint32_t> ids;
      for (std::size_t i = 0; i < length; ++i) ids.push_back(std::array{0U, 5U, 7U, 0U, 0U, 9U, 1U, 31U}[i % 8]);
      writer.append(ids);
      writer.end_document();
    }
    (void)writer.finish();
  }

  // The records of routes of an inspection.
  std::vector<json::Value> routes(const std::vector<std::string>& recipes, const std::string& reference,
                                  data::DocumentMode documents = data::DocumentMode::joined) {
    settings::InspectConfig c;
    c.model = at("m.h5"), c.data = at("d.h5"), c.seq_length = kSequenceLength, c.batch_size = 4,
    c.documents = documents;
    c.precision.precision = settings::Precision::fp8, c.precision.power_of_2 = false;
    c.recipes = recipes, c.routes = reference;
    std::vector<json::Value> found;
    state::Hooks hooks;
    hooks.record = [&](const json::Value& r) {
      if (r.as_object().get_string("type", "record") == "routes") found.push_back(r);
    };
    EXPECT_EQ(inspect_checkpoint(c, *comm::solo(), hooks), Exit::done);
    return found;
  }
};

std::string text_of(const std::vector<json::Value>& records) {
  std::string text;
  for (json::Value r : records) {
    r.as_object().erase("time");
    text += json::dump(r) + "\n";
  }
  return text;
}

TEST_F(Routes, ThoseOfTokensThatFlipByConstructionDiffer) {
  write_documents({200});
  EXPECT_EQ(text_of(routes({"tensorwise", "rowwise"}, "bf16")),
            R"({"type":"routes","recipe":"tensorwise","reference":"bf16","layer":0,"tokens":64,"experts_per_token":2,)"
            R"("differ":0.0,"experts_differ":0.0})"
            "\n"
            R"({"type":"routes","recipe":"tensorwise","reference":"bf16","layer":1,"tokens":64,"experts_per_token":2,)"
            R"("differ":0.375,"experts_differ":0.1875})"
            "\n"
            R"({"type":"routes","recipe":"rowwise","reference":"bf16","layer":0,"tokens":64,"experts_per_token":2,)"
            R"("differ":0.0,"experts_differ":0.0})"
            "\n"
            R"({"type":"routes","recipe":"rowwise","reference":"bf16","layer":1,"tokens":64,"experts_per_token":2,)"
            R"("differ":0.0,"experts_differ":0.0})"
            "\n");
}

// Shares of layer 1.
std::vector<double> differ(const std::vector<json::Value>& records) {
  std::vector<double> shares;
  for (const json::Value& r : records)
    if (r.as_object().get_int("layer", "record") == 1) shares.push_back(r.as_object().at("differ").as_double());
  return shares;
}

TEST_F(Routes, TheReferenceMayBeAnyPrecision) {
  write_documents({200});
  const std::vector<std::string> recipes = {"rowwise", "tensorwise"};
  const std::vector<json::Value> exact = routes(recipes, "fp32");
  EXPECT_EQ(differ(exact), (std::vector<double>{0, 0, 0.375})) << "bf16 first";
  EXPECT_EQ(exact.front().as_object().get_string("recipe", "record"), "bf16");
  EXPECT_EQ(differ(routes(recipes, "tensorwise")), (std::vector<double>{0.375, 0}));
}

TEST_F(Routes, PaddingIsLeftOut) {
  write_documents({16, 8, 8, 8});
  const std::vector<json::Value> found = routes({"tensorwise"}, "bf16", data::DocumentMode::separate);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[1].as_object().get_int("tokens", "record"), 40);
  EXPECT_EQ(differ(found), std::vector<double>{0.375});
}

TEST_F(Routes, ABisectionIsRefused) {
  write_documents({200});
  settings::InspectConfig c;
  c.model = at("m.h5"), c.data = at("d.h5"), c.bisection.emplace();
  EXPECT_HOLDS(test::error_of([&] { (void)inspect_checkpoint(c, *comm::solo(), {}); }), "m.h5: has experts, ");
}

}  // namespace
}  // namespace fp8::inspect
