// Comparison of sets of tensors: figures of every format and shape, names and rotary order of torchtitan, patterns.
#include "fp8/convert/fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "tensor_files.h"

namespace fp8::convert {
namespace {

using test::error_of;

TEST_F(FitTest, FiguresAreThoseOfTheDefinitions) {
  const TensorFit f = one({{2, 2}, {1, 2, 3, 4}}, {{2, 2}, {2, 4, 6, 9}});
  EXPECT_DOUBLE_EQ(f.relative_l2, std::sqrt((1 + 4 + 9 + 25) / 30.0));
  EXPECT_DOUBLE_EQ(f.cosine, (2 + 8 + 18 + 36) / std::sqrt(30.0 * (4 + 16 + 36 + 81)));
  EXPECT_DOUBLE_EQ(f.factor, 64 / 30.0);
  EXPECT_TRUE(f.within(1.2) && !f.within(1.1));
}

TEST_F(FitTest, ZeroEmptyAndScalarTensors) {
  const TensorFit both = one({{2}, {0, 0}}, {{2}, {0, 0}});
  EXPECT_TRUE(both.relative_l2 == 0 && std::isnan(both.cosine) && std::isnan(both.factor) && both.within(0));
  const TensorFit b_zero = one({{2}, {1, 1}}, {{2}, {0, 0}});
  EXPECT_TRUE(b_zero.relative_l2 == 1 && std::isnan(b_zero.cosine) && b_zero.factor == 0);
  const TensorFit a_zero = one({{2}, {0, 0}}, {{2}, {1, 0}});
  EXPECT_TRUE(std::isinf(a_zero.relative_l2) && std::isnan(a_zero.factor) && !a_zero.within(1e300));
  const TensorFit scalar = one({{}, {2}}, {{}, {3}});
  EXPECT_TRUE(scalar.relative_l2 == 0.5 && scalar.cosine == 1 && scalar.factor == 1.5);
  const TensorFit empty = one({{0, 3}, {}}, {{0, 3}, {}});
  EXPECT_TRUE(empty.relative_l2 == 0 && empty.within(0));
}

TEST_F(FitTest, FormatsAreComparedByTheirValues) {
  const std::vector<double> values{1, -2, 0.5, 3};
  for (const DType type : {DType::f32, DType::bf16, DType::f64}) {
    const TensorFit f = one({{4}, values, DType::f64}, {{4}, values, type});
    EXPECT_TRUE(f.relative_l2 == 0 && f.factor == 1) << dtype::name_of(type);
  }
  EXPECT_EQ(one({{2}, {1, 7}, DType::i32}, {{2}, {1, 7}}).relative_l2, 0);
  // A difference that only f64 can hold.
  EXPECT_GT(one({{2}, {1, 1}, DType::f64}, {{2}, {1, 1 + 1e-12}, DType::f64}).relative_l2, 5e-13);
  const TensorFit tiny = one({{2}, {1e100, 1e-200}, DType::f64}, {{2}, {1e100, 3e-200}, DType::f64});
  EXPECT_NEAR(tiny.relative_l2 / 2e-300, 1, 1e-6);
  EXPECT_FALSE(tiny.within(0));
  for (const double size : {1e-200, 1e300}) {  // whose squares f64 cannot hold
    const TensorFit f = one({{2}, {size, size}, DType::f64}, {{2}, {3 * size, 3 * size}, DType::f64});
    EXPECT_NEAR(f.relative_l2, 2, 1e-12);
    EXPECT_NEAR(f.factor, 3, 1e-12);
  }
}

TEST_F(FitTest, WhatIsNotFiniteIsNeverWithinABound) {
  for (const double bad : {static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    const Given good{{2}, {1, 2}}, broken{{2}, {1, bad}};
    EXPECT_EQ(one(good, broken).note, "1 element of B not finite");
    EXPECT_EQ(one(broken, broken).note, "1 element of A and 1 element of B not finite");
    EXPECT_FALSE(one(broken, broken).within(1e300));
    EXPECT_TRUE(std::isnan(one(good, broken).relative_l2));
  }
}

TEST_F(FitTest, TheWorstComeFirst) {
  const Fit f =
      compare({{"a", {{1}, {1}}}, {"b", {{1}, {1}}}, {"c", {{1}, {0}}}, {"d", {{2}, {1, 1}}}, {"x", {{1}, {1}}}},
              {{"a", {{1}, {1}}}, {"b", {{1}, {2}}}, {"c", {{1}, {1}}}, {"d", {{1}, {1}}}, {"y", {{1}, {1}}}});
  std::string order;
  for (const TensorFit& t : f.tensors) order += t.name + (t.note.empty() ? "" : " (" + t.note + ")") + ", ";
  EXPECT_EQ(order, "d (shapes differ: 2 and 1), x (only in A), y (only in B), c, b, a, ");
}

TEST_F(FitTest, NamesOfAdaptersAndWrappersMatch) {
  const Given g{{2}, {1, 2}};
  const Fit f = compare(
      {{"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", g}, {"model.norm.weight", g}},
      {{"model.layers.0.self_attn.q_proj.lora_A.default.weight", g}, {"module._orig_mod.model.norm.weight", g}});
  ASSERT_EQ(f.tensors.size(), 2u);
  EXPECT_EQ(f.tensors[0].name, "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight");
  for (const TensorFit& t : f.tensors) EXPECT_TRUE(t.within(0)) << t.name << t.note;
  EXPECT_NE(error_of([&] {
              (void)compare({{"module.a", g}, {"a", g}}, {});
            }).find("two tensors of one name"),
            std::string::npos);
}

TEST_F(FitTest, TorchtitansNamesAndRotaryOrderAreTranslated) {
  const std::int64_t head = 8;
  const Given q{{32, 6}, noise(192, 1)}, k{{16, 6}, noise(96, 2)}, v{{16, 6}, noise(96, 3)}, n{{6}, noise(6, 4)};
  const GivenSet ours{{"model.embed_tokens.weight", v},
                      {"model.layers.11.self_attn.q_proj.weight", q},
                      {"model.layers.11.self_attn.k_proj.weight", k},
                      {"model.layers.11.self_attn.v_proj.weight", v},
                      {"model.layers.11.self_attn.o_proj.weight", v},
                      {"model.layers.11.mlp.gate_proj.weight", q},
                      {"model.layers.11.mlp.up_proj.weight", k},
                      {"model.layers.11.mlp.down_proj.weight", v},
                      {"model.layers.11.input_layernorm.weight", n},
                      {"model.layers.11.post_attention_layernorm.weight", n},
                      {"model.norm.weight", n},
                      {"lm_head.weight", q}};
  const GivenSet theirs{{"tok_embeddings.weight", v},
                        {"layers.11.attention.wq.weight", interleaved(q, head)},
                        {"layers.11.attention.wk.weight", interleaved(k, head)},
                        {"layers.11.attention.wv.weight", v},
                        {"layers.11.attention.wo.weight", v},
                        {"layers.11.feed_forward.w1.weight", q},
                        {"layers.11.feed_forward.w3.weight", k},
                        {"layers.11.feed_forward.w2.weight", v},
                        {"layers.11.attention_norm.weight", n},
                        {"layers.11.ffn_norm.weight", n},
                        {"norm.weight", n},
                        {"output.weight", q}};
  for (const bool swapped : {false, true}) {
    const Fit f = compare(swapped ? theirs : ours, swapped ? ours : theirs, TensorNames::torchtitan);
    EXPECT_EQ(f.head_dim, head);
    EXPECT_EQ(f.tensors.size(), ours.size());
    for (const TensorFit& t : f.tensors) EXPECT_TRUE(t.within(0) && ours.contains(t.name)) << t.name << " " << t.note;
  }
  const Fit untranslated = compare(ours, theirs);
  EXPECT_EQ(untranslated.tensors.size(), 2 * ours.size());
}

TEST_F(FitTest, TorchtitansQwenRotatesHalvesAndStacksExperts) {
  const Given q{{16, 6}, noise(96, 1)}, n{{8}, noise(8, 2)}, e0{{3, 2}, noise(6, 3)}, e1{{3, 2}, noise(6, 4)};
  Given stacked{{2, 3, 2}, e0.values};
  stacked.values.insert(stacked.values.end(), e1.values.begin(), e1.values.end());
  const Fit f = compare({{"model.layers.0.self_attn.q_proj.weight", q},
                         {"model.layers.0.self_attn.q_norm.weight", n},
                         {"model.layers.0.mlp.gate.weight", q},
                         {"model.layers.0.mlp.experts.0.up_proj.weight", e0},
                         {"model.layers.0.mlp.experts.1.up_proj.weight", e1}},
                        {{"layers.0.attention.qkv_linear.wq.weight", q},
                         {"layers.0.attention.q_norm.weight", n},
                         {"layers.0.moe.router.gate.weight", q},
                         {"layers.0.moe.experts.w3", stacked}},
                        TensorNames::torchtitan);
  EXPECT_EQ(f.tensors.size(), 5u);
  for (const TensorFit& t : f.tensors) EXPECT_TRUE(t.within(0)) << t.name << " " << t.note;
}

// transformers 5 has the experts of a layer in one tensor, gate before up; Mixtral's published names are others.
TEST_F(FitTest, ExpertsOfOneTensorAreComparedOneByOne) {
  const auto part = [](int seed) { return Given{{3, 2}, noise(6, seed)}; };
  const auto joined = [&](std::vector<std::int64_t> shape, int first) {
    Given all{std::move(shape), {}};
    for (int i = first; i < first + 4; ++i)
      for (const double value : part(i).values) all.values.push_back(value);
    return all;
  };
  const Given gate_up = joined({2, 6, 2}, 1);  // gate, up of expert 0, gate, up of expert 1
  const GivenSet fused{{"model.layers.7.mlp.gate.weight", part(9)},
                       {"model.layers.7.mlp.experts.gate_up_proj", gate_up},
                       {"model.layers.7.mlp.experts.down_proj", joined({4, 3, 2}, 5)}};
  for (const bool mixtral : {false, true}) {
    const std::string block = mixtral ? "model.layers.7.block_sparse_moe." : "model.layers.7.mlp.";
    GivenSet alone{{block + "gate.weight", part(9)}};
    for (int e = 0; e < 4; ++e) {
      const std::string expert = block + "experts." + std::to_string(e) + ".";
      alone.insert({expert + (mixtral ? "w2" : "down_proj") + ".weight", part(5 + e)});
      if (e > 1) continue;
      alone.insert({expert + (mixtral ? "w1" : "gate_proj") + ".weight", part(1 + 2 * e)});
      alone.insert({expert + (mixtral ? "w3" : "up_proj") + ".weight", part(2 + 2 * e)});
    }
    const Fit f = compare(alone, fused);
    EXPECT_EQ(f.tensors.size(), 9u);
    for (const TensorFit& t : f.tensors) EXPECT_TRUE(t.within(0)) << t.name << " " << t.note;
  }
  EXPECT_NE(error_of([&] {
              (void)compare({}, {{"model.layers.7.mlp.experts.gate_up_proj", {{2, 3, 2}, noise(12, 1)}}});
            }).find("an odd number of rows is not that of gate and up"),
            std::string::npos);
}

TEST_F(FitTest, EmptyTensorsMayHaveAnyOtherExtent) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 60;
  const Fit f = compare({{"t", {{0, kLarge, kLarge}, {}}}}, {{"t", {{0, kLarge, kLarge}, {}}}});
  EXPECT_TRUE(f.tensors.at(0).within(0)) << f.tensors.at(0).note;
  for (const std::vector<std::int64_t>& shape : {std::vector<std::int64_t>{kLarge, 0, 1}, {70000, 0, 1}}) {
    const std::string name = "layers.0.moe.experts.w1";
    EXPECT_EQ(error_of([&] {
                (void)compare({}, {{name, {shape, {}}}}, TensorNames::torchtitan);
              }),
              at("b" + std::to_string(shape[0] == kLarge ? 2 : 3) + ".safetensors: ") + name + ": " +
                  std::to_string(shape[0]) + " experts, at most 65536");
  }
}

TEST_F(FitTest, TheHeadOfAConfigurationIsUsed) {
  const Given q{{32, 6}, noise(192, 1)};
  std::filesystem::create_directories(at("hf"));
  test::write_file(at("hf/config.json"),
                   R"({"model_type":"llama","vocab_size":16,"hidden_size":32,"intermediate_size":24,
                       "num_hidden_layers":1,"num_attention_heads":2})");
  (void)write("hf/model.safetensors", {{"model.layers.0.self_attn.q_proj.weight", q}});
  const TensorSet a(at("hf"), TensorNames::torchtitan);
  EXPECT_EQ(a.heads().value().dim, 16);
  const TensorSet b(write("b.safetensors", {{"layers.0.attention.wq.weight", interleaved(q, 16)}}),
                    TensorNames::torchtitan);
  const Fit f = fit(a, b);
  EXPECT_TRUE(f.tensors.at(0).within(0) && f.head_dim == 0);
}

TEST_F(FitTest, AnIndexMustAgreeWithItsFiles) {
  const Given g{{2}, {1, 2}};
  std::filesystem::create_directories(at("hf"));
  (void)write("hf/one.safetensors", {{"a", g}});
  const auto index = [&](const std::string& text) {
    test::write_file(at("hf/model.safetensors.index.json"), R"({"weight_map":{)" + text + "}}");
    return error_of([&] { const TensorSet set(at("hf"), TensorNames::huggingface); });
  };
  EXPECT_EQ(index(R"("a":"one.safetensors")"), "no error");
  EXPECT_EQ(index(R"("a":"one.safetensors","b":"one.safetensors")"),
            at("hf/one.safetensors") + ": has no tensor \"b\", which the index names");
}

TEST_F(FitTest, WhatIsNoSetIsRefused) {
  EXPECT_FALSE(TensorSet::is_safetensors(at("")));
  test::write_file(at("text"), "not a checkpoint");
  EXPECT_FALSE(TensorSet::is_safetensors(at("text")));
  (void)write("named", {{"t", {{1}, {1}}}});
  EXPECT_TRUE(TensorSet::is_safetensors(at("named")));
  test::write_file(at("bad.safetensors"), "short");
  EXPECT_NE(error_of([&] {
              const TensorSet set(at("bad.safetensors"), TensorNames::huggingface);
            }).find("bad.safetensors: not a safetensors file"),
            std::string::npos);
}

}  // namespace
}  // namespace fp8::convert
