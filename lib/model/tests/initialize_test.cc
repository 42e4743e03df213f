// Initial weights: their key, their distribution, the file.
#include "fp8/model/initialize.h"

#include <cmath>
#include <fstream>
#include <iterator>

#include "fp8/dtype/element.h"
#include "golden_models.h"

namespace fp8::model {
namespace {

using test::error_of;

hf::ModelConfig tiny_config() {
  return hf::parse_config(json::object({{"model_type", "qwen2"},
                                        {"vocab_size", 48},
                                        {"hidden_size", 32},
                                        {"intermediate_size", 80},
                                        {"num_hidden_layers", 1},
                                        {"num_attention_heads", 4},
                                        {"num_key_value_heads", 2},
                                        {"initializer_range", 0.5}}),
                          "small");
}

Parameter matrix(const std::string& name, std::int64_t rows, std::int64_t cols) {
  Parameter p;
  p.name = name;
  p.shape = {rows, cols};
  return p;
}

std::vector<float> values(const Parameter& p, std::uint64_t seed, std::int64_t begin, std::int64_t count) {
  std::vector<float> out(static_cast<std::size_t>(count));
  initial_values(p, 0.02, seed, begin, out);
  return out;
}

TEST(InitialValues, APieceEqualsThatPartOfTheWhole) {
  const Parameter p = matrix("w", 10, 7);
  const std::vector<float> whole = values(p, 3, 0, 70);
  for (const std::int64_t begin : {0, 1, 2, 3, 5, 69}) {
    const std::vector<float> piece = values(p, 3, begin, 70 - begin);
    EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + begin)) << begin;
  }
}

TEST(InitialValues, KeyedBySeedAndName) {
  const std::vector<float> base = values(matrix("w", 8, 8), 0, 0, 64);
  EXPECT_EQ(values(matrix("w", 8, 8), 0, 0, 64), base);
  EXPECT_NE(values(matrix("w", 8, 8), 1, 0, 64), base);
  EXPECT_NE(values(matrix("v", 8, 8), 0, 0, 64), base);
}

// Kaiming uniform with a = sqrt(5), as PEFT: within 1 / sqrt(columns), with the deviation of a uniform distribution.
TEST(InitialValues, OfAdapters) {
  Parameter a = matrix("model.layers.0.mlp.up_proj.lora_A.weight", 64, 400), b = a;
  a.role = b.role = ParameterRole::adapter;
  a.slot = Slot::gate_up_a;
  b.slot = Slot::gate_up_b;
  double squares = 0, most = 0;
  for (const float v : values(a, 1, 0, a.size())) {
    squares += static_cast<double>(v) * static_cast<double>(v);
    most = std::fmax(most, std::fabs(static_cast<double>(v)));
  }
  EXPECT_LE(most, 0.05);
  EXPECT_GT(most, 0.0499);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(a.size())), 0.05 / std::sqrt(3), 0.0005);
  for (const float v : values(b, 1, 0, b.size())) EXPECT_EQ(v, 0);
}

// These numbers must not change: every model made from a seed depends on them.
TEST(InitialValues, AreStable) {
  const std::vector<float> got = values(matrix("model.embed_tokens.weight", 2, 2), 42, 0, 4);
  const std::vector<float> wanted = {-0.00714307791F, -0.00386819197F, -0.0270109847F, 0.00580438413F};
  EXPECT_EQ(got, wanted);
}

TEST(InitialValues, AreNormal) {
  const std::vector<float> x = values(matrix("w", 1000, 1000), 7, 0, 1000000);
  double sum = 0, squares = 0, fourth = 0;
  for (const float v : x) {
    const double z = static_cast<double>(v) / 0.02;
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
  }
  EXPECT_NEAR(sum / 1e6, 0, 0.004);
  EXPECT_NEAR(squares / 1e6, 1, 0.006);
  EXPECT_NEAR(fourth / 1e6, 3, 0.04);
}

class Initialize : public test::FolderTest {
 protected:
  std::string bytes(const std::string& name) const { return test::read_file(at(name)); }
};

TEST_F(Initialize, WritesTheWholeModel) {
  const InitSummary summary = initialize(tiny_config(), at("m.h5"), {.seed = 5, .origin = {"t", "1", "t x"}});
  const ckpt::Checkpoint c = ckpt::Checkpoint::open(at("m.h5"));
  c.verify();
  EXPECT_EQ(c.kind(), ckpt::FileKind::model);
  const std::vector<Parameter> table = parameter_table(tiny_config());
  EXPECT_EQ(c.tensors().size(), table.size());
  EXPECT_EQ(summary.tensors, static_cast<std::int64_t>(table.size()));
  EXPECT_EQ(summary.bytes, static_cast<std::uint64_t>(summary.parameters) * 4);
  for (const Parameter& p : table) {
    const ckpt::TensorMeta& meta = c.at("weights/" + p.name);
    EXPECT_EQ(meta.shape, p.shape);
    EXPECT_EQ(meta.dtype, dtype::DType::f32);
    EXPECT_EQ(meta.precision, p.precision());
    EXPECT_EQ(meta.reason, p.reason);
    std::vector<float> wanted(static_cast<std::size_t>(p.size()));
    initial_values(p, 0.5, 5, 0, wanted);
    EXPECT_EQ(test::weight(c, p.name), wanted) << p.name;
  }
  EXPECT_EQ(test::weight(c, "model.norm.weight"), std::vector<float>(32, 1.0F));
  EXPECT_EQ(test::weight(c, "model.layers.0.self_attn.k_proj.bias"), std::vector<float>(16, 0.0F));
  EXPECT_TRUE(hf::same_model(hf::parse_config(c.config(), "c"), tiny_config()));
  EXPECT_EQ(c.config().as_object().at("dtype").as_string(), "float32");
  EXPECT_EQ(c.provenance().as_array()[0].as_object().at("command").as_string(), "t x");
}

TEST_F(Initialize, Bf16IsTheSameRounded) {
  initialize(tiny_config(), at("a.h5"), {});
  initialize(tiny_config(), at("b.h5"), {.dtype = dtype::DType::bf16});
  const ckpt::Checkpoint a = ckpt::Checkpoint::open(at("a.h5")), b = ckpt::Checkpoint::open(at("b.h5"));
  std::vector<float> rounded = test::weight(a, "model.embed_tokens.weight");
  for (float& v : rounded) v = dtype::to_float(dtype::to_bf16(v));
  EXPECT_EQ(test::weight(b, "model.embed_tokens.weight"), rounded);
  EXPECT_EQ(b.config().as_object().at("dtype").as_string(), "bfloat16");
}

TEST_F(Initialize, EqualArgumentsGiveEqualBytes) {
  initialize(tiny_config(), at("a.h5"), {.seed = 1});
  initialize(tiny_config(), at("b.h5"), {.seed = 1});
  initialize(tiny_config(), at("c.h5"), {.seed = 2});
  EXPECT_EQ(bytes("a.h5"), bytes("b.h5"));
  EXPECT_NE(bytes("a.h5"), bytes("c.h5"));
}

TEST_F(Initialize, RefusesInvalidOptionsAndOutputs) {
  initialize(tiny_config(), at("a.h5"), {});
  EXPECT_EQ(error_of([&] { initialize(tiny_config(), at("a.h5"), {}); }), at("a.h5") + ": exists");
  initialize(tiny_config(), at("a.h5"), {.seed = 9, .force = true});
  EXPECT_NE(error_of([&] { initialize(tiny_config(), at("no/a.h5"), {}); }), "no error");
  EXPECT_EQ(error_of([&] { initialize(tiny_config(), at("b.h5"), {.dtype = dtype::DType::e4m3}); }),
            "dtype: weights are f32 or bf16");
  EXPECT_EQ(names(), std::vector<std::string>{"a.h5"});
}

TEST_F(Initialize, DryRunWritesNothing) {
  EXPECT_GT(initialize(tiny_config(), at("a.h5"), {.dry_run = true}).parameters, 0);
  EXPECT_TRUE(names().empty());
}

}  // namespace
}  // namespace fp8::model
