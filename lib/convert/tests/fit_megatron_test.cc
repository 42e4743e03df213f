// Comparison with tensors of Megatron-LM: names of both layer specs, fused q, k and v, fused gate and up, padded
// vocabularies, and what cannot be split.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tensor_files.h"

namespace fp8::convert {
namespace {

using test::error_of;

// The model: 6 query heads and 2 key/value heads of 4, so that a group has rows of 3 queries, a key and a value.
constexpr std::int64_t kQuery = 6, kKeyValue = 2, kHead = 4, kWidth = 5, kInner = 7, kVocabulary = 10;
const std::map<std::string, std::string> kHeads{
    {"attention_heads", R"({"num_attention_heads":6,"num_key_value_heads":2,"head_dim":4})"}};

// A tensor whose values differ from those of every other one.
Given numbers(const std::vector<std::int64_t>& shape) {
  static double seed = 0;
  return {shape, noise(shape[0] * (shape.size() == 2 ? shape[1] : 1), seed += 1.37)};
}

std::string layer_name(int layer, const std::string& rest) { return "model.layers." + std::to_string(layer) + rest; }

// All parameters of two layers, with biases and norms of q and k.
GivenSet our_tensors() {
  GivenSet ours{{"model.embed_tokens.weight", numbers({kVocabulary, kWidth})},
                {"model.norm.weight", numbers({kWidth})},
                {"lm_head.weight", numbers({kVocabulary, kWidth})}};
  for (int layer = 0; layer < 2; ++layer) {
    const auto add = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
      ours[layer_name(layer, name + ".weight")] = numbers({rows, columns});
      ours[layer_name(layer, name + ".bias")] = numbers({rows});
    };
    add(".self_attn.q_proj", kQuery * kHead, kWidth);
    add(".self_attn.k_proj", kKeyValue * kHead, kWidth);
    add(".self_attn.v_proj", kKeyValue * kHead, kWidth);
    add(".self_attn.o_proj", kWidth, kQuery * kHead);
    add(".mlp.gate_proj", kInner, kWidth);
    add(".mlp.up_proj", kInner, kWidth);
    add(".mlp.down_proj", kWidth, kInner);
    ours[layer_name(layer, ".self_attn.q_norm.weight")] = numbers({kHead});
    ours[layer_name(layer, ".self_attn.k_norm.weight")] = numbers({kHead});
    ours[layer_name(layer, ".input_layernorm.weight")] = numbers({kWidth});
    ours[layer_name(layer, ".post_attention_layernorm.weight")] = numbers({kWidth});
  }
  return ours;
}

// Appends rows [first, first + count) of `from`.
void append(Given& to, const Given& from, std::int64_t first, std::int64_t count) {
  if (to.shape.empty()) to = {from.shape, {}}, to.shape[0] = 0;
  const std::int64_t columns = from.shape.size() == 2 ? from.shape[1] : 1;
  to.shape[0] += count;
  const auto begin = from.values.begin() + first * columns;
  to.values.insert(to.values.end(), begin, begin + count * columns);
}

// Rows as linear_qkv has them: q1 q2 q3 k1 v1 q4 q5 q6 k2 v2.
Given grouped(const Given& q, const Given& k, const Given& v) {
  Given out;
  constexpr std::int64_t kGroup = kQuery / kKeyValue * kHead;
  for (std::int64_t group = 0; group < kKeyValue; ++group) {
    append(out, q, group * kGroup, kGroup);
    append(out, k, group * kHead, kHead);
    append(out, v, group * kHead, kHead);
  }
  return out;
}

// All rows of each tensor after those of the one before.
Given stacked(const std::vector<Given>& tensors) {
  Given out;
  for (const Given& t : tensors) append(out, t, 0, t.shape[0]);
  return out;
}

enum class Spec { transformer_engine, local };

// Our tensors as Megatron-LM has them.
GivenSet their_tensors(const GivenSet& ours, Spec spec, const std::string& prefix = "") {
  const bool te = spec == Spec::transformer_engine;
  GivenSet theirs{{prefix + "embedding.word_embeddings.weight", ours.at("model.embed_tokens.weight")},
                  {prefix + "decoder.final_layernorm.weight", ours.at("model.norm.weight")},
                  {prefix + "output_layer.weight", ours.at("lm_head.weight")}};
  for (int layer = 0; layer < 2; ++layer) {
    const auto of = [&](const std::string& name) { return ours.at(layer_name(layer, name)); };
    const std::string in = prefix + "decoder.layers." + std::to_string(layer) + ".";
    for (const std::string kind : {".weight", ".bias"}) {
      theirs[in + "self_attention.linear_qkv" + kind] =
          grouped(of(".self_attn.q_proj" + kind), of(".self_attn.k_proj" + kind), of(".self_attn.v_proj" + kind));
      theirs[in + "self_attention.linear_proj" + kind] = of(".self_attn.o_proj" + kind);
      theirs[in + "mlp.linear_fc1" + kind] = stacked({of(".mlp.gate_proj" + kind), of(".mlp.up_proj" + kind)});
      theirs[in + "mlp.linear_fc2" + kind] = of(".mlp.down_proj" + kind);
    }
    theirs[in + "self_attention.q_layernorm.weight"] = of(".self_attn.q_norm.weight");
    theirs[in + "self_attention.k_layernorm.weight"] = of(".self_attn.k_norm.weight");
    theirs[in + (te ? "self_attention.linear_qkv.layer_norm_weight" : "input_layernorm.weight")] =
        of(".input_layernorm.weight");
    theirs[in + (te ? "mlp.linear_fc1.layer_norm_weight" : "pre_mlp_layernorm.weight")] =
        of(".post_attention_layernorm.weight");
  }
  return theirs;
}

class MegatronTest : public FitTest {
 protected:
  // A has the heads in its metadata, as gradients of fp8-step do.
  Fit against(const GivenSet& ours, const GivenSet& theirs, bool swapped = false) {
    const std::string a = write("ours.safetensors", ours, kHeads), b = write("theirs.safetensors", theirs);
    return compare_files(swapped ? b : a, swapped ? a : b, TensorNames::megatron);
  }
  std::string refusal(const GivenSet& theirs) {
    return error_of([&] { (void)against(our_tensors(), theirs); });
  }
  // "name (note), " of each tensor that is not equal.
  static std::string differing(const Fit& fit) {
    std::string text;
    for (const TensorFit& t : fit.tensors)
      if (!t.within(0)) text += t.name + (t.note.empty() ? "" : " (" + t.note + ")") + ", ";
    return text;
  }
};

TEST_F(MegatronTest, BothSpecsHaveOurTensors) {
  const GivenSet ours = our_tensors();
  for (const Spec spec : {Spec::transformer_engine, Spec::local})
    for (const bool swapped : {false, true}) {
      const Fit fit = against(ours, their_tensors(ours, spec), swapped);
      EXPECT_EQ(differing(fit), "");
      EXPECT_EQ(fit.tensors.size(), ours.size());
      for (const TensorFit& t : fit.tensors) EXPECT_TRUE(ours.contains(t.name)) << t.name;
    }
  EXPECT_EQ(differing(against(ours, their_tensors(ours, Spec::local, "module.module."))), "");
}

TEST_F(MegatronTest, AFactorInOneKeyProjectionIsNamed) {
  const GivenSet ours = our_tensors();
  for (const Spec spec : {Spec::transformer_engine, Spec::local}) {
    GivenSet changed = ours;
    for (double& v : changed.at("model.layers.1.self_attn.k_proj.weight").values) v *= 2;
    const Fit fit = against(ours, their_tensors(changed, spec));
    EXPECT_EQ(differing(fit), "model.layers.1.self_attn.k_proj.weight, ");
    EXPECT_DOUBLE_EQ(fit.tensors[0].factor, 2);
    EXPECT_DOUBLE_EQ(fit.tensors[0].cosine, 1);
  }
}

TEST_F(MegatronTest, AnotherOrderOfRowsDiffers) {
  const GivenSet ours = our_tensors();
  const std::string in = "model.layers.0.self_attn.";
  const Given &q = ours.at(in + "q_proj.weight"), &k = ours.at(in + "k_proj.weight"),
              &v = ours.at(in + "v_proj.weight");
  GivenSet theirs = their_tensors(ours, Spec::local);
  theirs["decoder.layers.0.self_attention.linear_qkv.weight"] = stacked({q, k, v});
  const std::string all = differing(against(ours, theirs));
  for (const char* part : {"q_proj", "k_proj", "v_proj"}) EXPECT_NE(all.find(in + part + ".weight"), std::string::npos);
  theirs = their_tensors(ours, Spec::local);
  theirs["decoder.layers.0.mlp.linear_fc1.bias"] =
      stacked({ours.at("model.layers.0.mlp.up_proj.bias"), ours.at("model.layers.0.mlp.gate_proj.bias")});
  EXPECT_EQ(std::ranges::count(differing(against(ours, theirs)), ','), 2);
}

TEST_F(MegatronTest, RowsBeyondTheVocabularyAreIgnoredIfZero) {
  const GivenSet ours = our_tensors();
  GivenSet theirs = their_tensors(ours, Spec::transformer_engine);
  const Given zeros{{6, kWidth}, std::vector<double>(6 * kWidth)};
  for (const char* name : {"embedding.word_embeddings.weight", "output_layer.weight"})
    theirs[name] = stacked({theirs.at(name), zeros});
  EXPECT_EQ(differing(against(ours, theirs)), "");
  EXPECT_EQ(differing(against(ours, theirs, true)), "");
  std::vector<double>& output = theirs.at("output_layer.weight").values;
  output[(kVocabulary + 1) * kWidth] = 3;
  output.back() = NAN;
  const Fit fit = against(ours, theirs);
  EXPECT_EQ(differing(fit), "lm_head.weight (2 rows of B beyond the 10 of A are not zero), ");
  EXPECT_EQ(fit.tensors[0].relative_l2, 0);
  output.back() = 0;
  EXPECT_EQ(differing(against(ours, theirs, true)), "lm_head.weight (1 row of A beyond the 10 of B is not zero), ");
  output[0] = INFINITY;
  EXPECT_EQ(differing(against(ours, theirs)),
            "lm_head.weight (1 element of B not finite; 1 row of B beyond the 10 of A is not zero), ");
  // Other tensors have no padding, and a vocabulary that lacks rows is none.
  theirs = their_tensors(ours, Spec::local);
  theirs["decoder.final_layernorm.weight"] = stacked({ours.at("model.norm.weight"), {{3}, {0, 0, 0}}});
  theirs["output_layer.weight"] = {{2, kWidth}, noise(2 * kWidth, 0)};
  EXPECT_EQ(differing(against(ours, theirs)),
            "lm_head.weight (shapes differ: 10x5 and 2x5), model.norm.weight (shapes differ: 5 and 8), ");
}

TEST_F(MegatronTest, PaddingDoesNotHideAFactor) {
  const GivenSet ours = our_tensors();
  GivenSet theirs = their_tensors(ours, Spec::transformer_engine);
  theirs["output_layer.weight"] = stacked({theirs.at("output_layer.weight"), numbers({6, kWidth})});
  for (auto& [name, given] : theirs)
    for (double& v : given.values) v *= 4;
  const std::vector<std::string> found = suggestions(against(ours, theirs), 0);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0], "B is 4 times A: a sum over 4 ranks or micro-batches instead of their mean");
}

TEST_F(MegatronTest, TheHeadsOfAConfigurationAreUsed) {
  const GivenSet ours = our_tensors();
  std::filesystem::create_directories(at("hf"));
  test::write_file(at("hf/config.json"),
                   R"({"model_type":"qwen3","vocab_size":10,"hidden_size":6,"intermediate_size":7,"head_dim":4,
                       "num_hidden_layers":2,"num_attention_heads":6,"num_key_value_heads":2})");
  (void)write("hf/model.safetensors", ours);
  const std::string theirs = write("theirs.safetensors", their_tensors(ours, Spec::local));
  EXPECT_EQ(differing(compare_files(at("hf"), theirs, TensorNames::megatron)), "");
  EXPECT_EQ(differing(compare_files(theirs, at("hf"), TensorNames::megatron)), "");
}

TEST_F(MegatronTest, WhatCannotBeSplitIsRefused) {
  const GivenSet ours = our_tensors();
  const std::string qkv = "decoder.layers.1.self_attention.linear_qkv.weight",
                    fc1 = "decoder.layers.1.mlp.linear_fc1.bias";
  const std::string file = at("theirs.safetensors") + ": ";
  const auto with = [&](const std::string& name, const Given& given) {
    GivenSet theirs = their_tensors(ours, Spec::transformer_engine);
    theirs[name] = given;
    return theirs;
  };
  EXPECT_EQ(refusal(with(qkv, numbers({20, kWidth}))),
            file + qkv +
                ": its shape is 20x5, but 6 query and 2 key/value heads of 4 have 40 rows; parts of tensor parallelism "
                "must be merged first");
  EXPECT_EQ(refusal(with(fc1, numbers({9}))),
            file + fc1 + ": its shape, 9, is not that of gate and up, of which each has half of the rows");
  EXPECT_NE(refusal(with(qkv, {{}, {1}})).find(qkv + ": its shape is scalar, "), std::string::npos);
  EXPECT_NE(refusal(with(fc1, {{}, {1}})).find(fc1 + ": its shape, scalar, "), std::string::npos);
  EXPECT_NE(refusal(with(qkv, {{0, kWidth}, {}})).find(qkv + ": its shape is 0x5, "), std::string::npos);
  EXPECT_NE(refusal(with(qkv, {{40, 1, 1}, noise(40, 0)})).find(qkv + ": its shape is 40x1x1, "), std::string::npos);
  EXPECT_NE(refusal(with("decoder.layers.1.input_layernorm.weight", numbers({kWidth}))).find("two tensors of one name"),
            std::string::npos);
  EXPECT_NE(error_of([&] { (void)compare(ours, their_tensors(ours, Spec::local), TensorNames::megatron); })
                .find("decoder.layers.0.self_attention.linear_qkv.bias: is split by the number of heads, which neither "
                      "side has: compare with a checkpoint, a folder with config.json, or gradients of fp8-step"),
            std::string::npos);
}

TEST_F(MegatronTest, ForgedHeadsAreRefused) {
  const auto refused = [&](const std::string& text) {
    const std::string path = write("forged.safetensors", {{"t", {{1}, {1}}}}, {{"attention_heads", text}});
    return error_of([&] { const TensorSet set(path, TensorNames::huggingface); });
  };
  const std::string what = at("forged.safetensors") + ": attention_heads in __metadata__: ";
  EXPECT_NE(refused("sdpa").find(what), std::string::npos);
  EXPECT_EQ(refused("[]"), what + "not an object");
  EXPECT_NE(refused(R"({"num_attention_heads":2,"num_key_value_heads":2})").find(what), std::string::npos);
  for (const char* bad : {"0", "-4", "1048577", "9223372036854775807"})
    EXPECT_EQ(refused(R"({"num_attention_heads":2,"num_key_value_heads":2,"head_dim":)" + std::string(bad) + "}"),
              what + "head_dim is not from 1 to 1048576");
  EXPECT_EQ(refused(R"({"num_attention_heads":3,"num_key_value_heads":2,"head_dim":8})"),
            what + "num_key_value_heads does not divide num_attention_heads");
}

}  // namespace
}  // namespace fp8::convert
