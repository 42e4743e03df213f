// What the differences of two sets of gradients suggest.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "fp8/convert/fit.h"
#include "tensor_files.h"

namespace fp8::convert {
namespace {

// Gradients of three layers with two routers, an embedding and a norm.
GivenSet gradients() {
  GivenSet set{{"model.embed_tokens.weight", {{5, 4}, noise(20, 1)}}, {"model.norm.weight", {{4}, noise(4, 2)}}};
  for (int layer = 0; layer < 3; ++layer) {
    const std::string in = "model.layers." + std::to_string(layer) + ".";
    double seed = 10.0 * layer;
    for (const char* name : {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
                             "mlp.gate.weight", "input_layernorm.weight"})
      set[in + name] = {{8, 4}, noise(32, seed += 3)};
  }
  return set;
}

// The set with tensors whose name contains `part` times `factor`.
GivenSet times(GivenSet set, const std::string& part, double factor) {
  for (auto& [name, given] : set)
    if (name.find(part) != std::string::npos)
      for (double& v : given.values) v *= factor;
  return set;
}

TEST_F(FitTest, FactorsAreNamed) {
  const GivenSet a = gradients();
  EXPECT_EQ(suggested(a, a), "");
  EXPECT_EQ(suggested(a, times(a, "", 4)),
            "B is 4 times A: a sum over 4 ranks or micro-batches instead of their mean\n");
  EXPECT_EQ(suggested(a, times(a, "", 0.125)),
            "B is A divided by 8: a mean over 8 ranks or micro-batches instead of their sum\n");
  EXPECT_EQ(suggested(a, times(a, "", 1.3)), "B is A times 1.30\n");
  EXPECT_EQ(suggested(a, times(a, "", -1)), "B is A with the opposite sign\n");
  EXPECT_EQ(suggested(a, times(a, "", 0)), "all of B is zero\n");
  EXPECT_EQ(suggested(a, times(a, "mlp.gate", 2)),
            "each router is 2.00 times too large; the other 14 tensors are equal\n");
  EXPECT_EQ(suggested(a, times(a, "q_proj", 0.5)),
            "each q_proj is 2.00 times too small; the other 14 tensors are equal\n");
  EXPECT_EQ(suggested(a, times(times(a, "q_proj", 3), "k_proj", 3)),
            "each k_proj and q_proj is 3.00 times too large; the other 11 tensors are equal\n");
  EXPECT_EQ(suggested(a, times(a, "embed", 2)),
            "embed_tokens is 2.00 times too large; the other 16 tensors are equal\n");
  EXPECT_EQ(suggested(a, times(a, "layers.2", 0)),
            "all 5 tensors of layer 2 are zero in B; the other 12 tensors are equal\n");
  EXPECT_EQ(suggested(a, times(a, "layers.1", 2)),
            "all 5 tensors of layer 1 are 2.00 times too large; the other 12 tensors are equal\n");
  EXPECT_EQ(suggested(a, times(times(a, "0.mlp.gate", 1.2), "2.mlp.gate", 2.7)),
            "router alone differs, in 2 of 3 tensors\n");
  EXPECT_EQ(suggested(a, times(times(times(a, "0.mlp.gate", 1.2), "1.mlp.gate", 1.8), "2.mlp.gate", 2.7)),
            "each router is 1.20 to 2.70 times too large; the other 14 tensors are equal\n");
  // Rounding hides no large factor, and makes no small one.
  const auto rounded = [](GivenSet set, double error) {
    for (auto& [name, given] : set) {
      const std::vector<double> errors = noise(static_cast<std::int64_t>(given.values.size()), 99);
      for (std::size_t i = 0; i < errors.size(); ++i) given.values[i] += error * errors[i];
    }
    return set;
  };
  GivenSet b = a;
  b.erase("model.norm.weight");  // of four elements, too few to tell rounding from a factor
  EXPECT_NE(suggested(b, rounded(b, 0.2)).find("every tensor differs by 0.18 to 0.19: rounding, or a mean of means"),
            std::string::npos);
  EXPECT_NE(suggested(b, rounded(times(b, "", 4), 0.05)).find("B is 4 times A: "), std::string::npos);
  EXPECT_NE(suggested(b, rounded(times(b, "mlp.gate", 2), 0.1)).find("each router is "), std::string::npos);
  GivenSet turned = a;
  for (auto& [name, given] : turned)
    if (name.find("q_proj") != std::string::npos) given = interleaved(given, 8);
  EXPECT_NE(suggested(a, turned).find("each q_proj has the norm of A and another direction"), std::string::npos);
}

// The set without tensors whose name contains `part`.
GivenSet without(GivenSet set, const std::string& part) {
  std::erase_if(set, [&](const auto& entry) { return entry.first.find(part) != std::string::npos; });
  return set;
}

TEST_F(FitTest, WhatCouldNotBeComparedIsCounted) {
  const GivenSet a = gradients();
  const GivenSet one{{"model.norm.weight", times(a, "", 2).at("model.norm.weight")}};
  EXPECT_EQ(suggested(a, one),
            "B is twice A in 1 of 17 tensors: a sum over 2 ranks or micro-batches instead of their mean; "
            "16 are only in A\n");
  EXPECT_EQ(suggested(one, times(a, "", 0)), "B is zero in 1 of 17 tensors; 16 are only in B\n");
  EXPECT_EQ(suggested(a, without(times(a, "layers.1", 0), "1.mlp")),
            "4 of 5 tensors of layer 1 are zero in B; 1 is only in A\nlayer 1 alone differs, in 5 of 5 tensors\n");
  EXPECT_EQ(suggested(a, without(times(a, "layers.1", 3), "1.mlp")),
            "4 of 5 tensors of layer 1 are 3.00 times too large; 1 is only in A\n"
            "layer 1 alone differs, in 5 of 5 tensors\n");
  EXPECT_EQ(suggested(without(a, "1.mlp"), times(a, "mlp.gate", 2)),
            "2 of 3 router are 2.00 times too large; 1 is only in B\nrouter alone differs, in 3 of 3 tensors\n");
  GivenSet b = times(a, "mlp.gate", 2);
  b["model.layers.0.mlp.gate.weight"] = {{4, 8}, noise(32, 1)};
  EXPECT_EQ(suggested(a, b),
            "2 of 3 router are 2.00 times too large; 1 is of another shape\nrouter alone differs, in 3 of 3 tensors\n");
  b = times(a, "mlp.gate", 2);
  b.at("model.layers.0.mlp.gate.weight").values[3] = NAN;
  EXPECT_EQ(suggested(a, b), "router alone differs, in 3 of 3 tensors\n");
  // Zeros on both sides are of any factor, and tensors that an earlier line explains are not in a later one.
  const GivenSet idle = times(a, "0.mlp.gate", 0);
  EXPECT_EQ(suggested(idle, times(idle, "mlp.gate", 0)), "each router is zero in B; the other 14 tensors are equal\n");
  EXPECT_EQ(suggested(without(idle, "norm"), times(idle, "", 0)), "B is zero in 13 of 17 tensors; 4 are only in B\n");
  EXPECT_EQ(suggested(idle, times(idle, "mlp.gate", 2)),
            "2 of 3 router are 2.00 times too large; 1 is zero in both; the other 15 tensors are equal\n");
  EXPECT_EQ(suggested(a, times(times(a, "layers.1", 0), "q_proj", 2)),
            "all 5 tensors of layer 1 are zero in B\n2 of 3 q_proj are 2.00 times too large\n");
}

TEST_F(FitTest, FactorsOfAnySizeAreWritten) {
  GivenSet a = gradients();
  for (auto& [name, given] : a) given.type = DType::f64;
  EXPECT_EQ(suggested(a, times(a, "", 50.3)), "B is A times 50.30\n");
  EXPECT_EQ(suggested(a, times(a, "", 1e20)), "B is A times 1e+20\n");
  EXPECT_EQ(suggested(a, times(a, "", 1e-200)), "B is A times 1e-200\n");
  EXPECT_EQ(suggested(a, times(a, "", 1e100)), "B is A times 1e+100\n");
  EXPECT_EQ(suggested(a, times(a, "mlp.gate", 1e30)),
            "each router is 1e+30 times too large; the other 14 tensors are equal\n");
  EXPECT_EQ(suggested(a, times(a, "mlp.gate", 1e-30)),
            "each router is 1e-30 times A; the other 14 tensors are equal\n");
  // Not zero, though its square is, and a factor that f64 cannot hold.
  EXPECT_EQ(suggested(times(a, "", 1e300), times(a, "", 1e-300)).find("zero"), std::string::npos);
  EXPECT_EQ(suggested(times(a, "", 1e-300), times(a, "", 1e300)).find("times"), std::string::npos);
  const GivenSet far{{"model.layers.1000000000000000000001.a.weight", {{2}, {1, 2}}},
                     {"model.layers.1000000000000000000002.b.weight", {{2}, {1, 2}}},
                     {"c", {{2}, {1, 2}}}};
  EXPECT_EQ(suggested(far, times(far, "layers", 0)).find("layer 1"), std::string::npos);
}

TEST_F(FitTest, TheOneThatDiffersIsNamed) {
  const GivenSet a = gradients();
  GivenSet b = a;
  b.at("model.layers.1.mlp.gate.weight") = a.at("model.layers.2.mlp.gate.weight");
  EXPECT_TRUE(suggested(a, b).starts_with("model.layers.1.mlp.gate.weight alone differs: relative L2 "))
      << suggested(a, b);
  EXPECT_EQ(suggested(a, times(a, "1.mlp.gate", 2)),
            "model.layers.1.mlp.gate.weight alone differs: 2.00 times too large\n");
  EXPECT_EQ(suggested(a, times(a, "1.mlp.gate", 0)), "model.layers.1.mlp.gate.weight alone differs: zero in B\n");
  EXPECT_EQ(suggested(a, without(a, "norm.weight")), "4 tensors are only in A\n");
  EXPECT_EQ(suggested(a, without(a, "layers.1")), "layer 1 alone differs: 5 of 5 tensors are only in A\n");
  GivenSet renumbered;
  for (const auto& [name, given] : a) {
    const std::size_t at = name.find("layers.0");
    renumbered[at == std::string::npos ? name : std::string(name).replace(at, 8, "layers.9")] = given;
  }
  EXPECT_EQ(suggested(a, renumbered), "5 tensors are only in A: layer 0; 5 tensors are only in B: layer 9\n");
  EXPECT_EQ(suggested(a, without(a, "s.")), "16 tensors are only in A: layers 0 to 2 and 1 other\n");
  EXPECT_EQ(suggested(a, without(a, "model.norm.weight")), "model.norm.weight alone differs: only in A\n");
  GivenSet noisy = a;
  for (auto& [name, given] : noisy) given.values[0] *= 1 + 1e-5;
  EXPECT_TRUE(suggested(a, times(times(noisy, "1.mlp.gate", 2), "1.self_attn.q", 0.3))
                  .starts_with("layer 1 alone differs by more than "));
  EXPECT_NE(suggested(a, times(noisy, "mlp.gate", 2)).find("; the other 14 tensors differ by at most "),
            std::string::npos);
  // A bound draws the line where no gap does.
  const GivenSet near = times(times(a, "1.mlp.gate", 1.5), "0.self_attn.k_proj", 0.7);
  EXPECT_EQ(suggested(a, near), "");
  EXPECT_EQ(suggested(a, near, 0.4),
            "model.layers.1.mlp.gate.weight alone differs by more than 0.3: 1.50 times too large\n");
}

// Weights have no causes of gradients.
TEST_F(FitTest, OfWeightsTheFactorAloneIsNamed) {
  const GivenSet a = gradients();
  std::vector<std::string> folders;
  for (const char* name : {"x", "y"}) {
    std::filesystem::create_directories(at(name));
    test::write_file(at(name + std::string("/config.json")), "{}");
    (void)write(name + std::string("/model.safetensors"), name[0] == 'x' ? a : times(a, "", 2));
    folders.push_back(at(name));
  }
  EXPECT_EQ(suggestions(compare_files(folders[0], folders[1], TensorNames::huggingface), 0),
            std::vector<std::string>{"B is twice A"});
}

// Gradients of `count` micro-batches: in each tensor a part that is common and one of their own, as large.
std::vector<GivenSet> micro_batches(unsigned count) {
  std::vector<GivenSet> parts(count, without(gradients(), "model.norm"));
  const auto random = [](unsigned seed) {
    std::mt19937 generator(seed);
    std::vector<double> values(4096);
    for (double& v : values) v = static_cast<double>(generator()) / 0x1p31 - 1;
    return values;
  };
  for (unsigned i = 0; i < count; ++i) {
    unsigned seed = 0;
    for (auto& [name, given] : parts[i]) {
      given = {{64, 64}, random(++seed)};
      const std::vector<double> own = random(1000 * (i + 1) + seed);
      for (std::size_t j = 0; j < own.size(); ++j) given.values[j] += own[j];
    }
  }
  return parts;
}

// The sum of sets, each times a weight.
GivenSet sum_of(const std::vector<GivenSet>& parts, const std::vector<double>& weights) {
  GivenSet sum = times(parts[0], "", weights[0]);
  for (std::size_t i = 1; i < parts.size(); ++i)
    for (auto& [name, given] : sum)
      for (std::size_t j = 0; j < given.values.size(); ++j) given.values[j] += weights[i] * parts[i].at(name).values[j];
  return sum;
}

TEST_F(FitTest, SamplesThatAreMissingAreNamed) {
  const std::vector<GivenSet> parts = micro_batches(4);
  const GivenSet mean = sum_of(parts, {0.25, 0.25, 0.25, 0.25});
  const auto names = [&](const GivenSet& b, const std::string& text) {
    const std::string found = suggested(mean, b);
    return found.find(text) != std::string::npos && found.find('\n') == found.size() - 1;
  };
  EXPECT_TRUE(names(sum_of(parts, {0.25, 0, 0, 0}), "only one of 4 micro-batches or ranks counts"));
  EXPECT_TRUE(names(sum_of(parts, {0.25, 0.25, 0.25, 0}), "a micro-batch or a rank does not count"));
  EXPECT_TRUE(names(parts[2], "only one micro-batch of several, divided by its own number of targets"));
  EXPECT_TRUE(
      names(sum_of(micro_batches(8), {0, 0, 0, 0, 0.25, 0.25, 0.25, 0.25}), "other samples, weights or targets"));
  EXPECT_TRUE(names(sum_of(parts, {0.3, 0.2, 0.25, 0.25}), "or a mean of means, where micro-batches"));
  EXPECT_TRUE(suggested(mean, without(sum_of(parts, {0.25, 0, 0, 0}), "embed")).starts_with("15 of 16 tensors have "));
}

TEST_F(FitTest, TheLossesOfBothSidesAreCompared) {
  const GivenSet a = gradients();
  const auto with = [&](const std::string& loss, const GivenSet& b, double bound = 0) {
    const Fit f = compare_files(write("a.safetensors", a, {{"loss", "5.5"}, {"precision", "fp32"}}),
                                write("b.safetensors", b, {{"loss", loss}}), TensorNames::huggingface);
    const std::vector<std::string> found = suggestions(f, bound);
    return found.empty() ? "" : found[0];
  };
  EXPECT_EQ(with("5.5", times(a, "", 2)), "loss 5.5 of A and 5.5 of B: the forward pass agrees");
  EXPECT_EQ(with("5.50001", times(a, "", 2)),
            "loss 5.5 of A and 5.50001 of B, relative difference 1.8e-06: the forward pass agrees");
  EXPECT_EQ(with("11", a),
            "loss 5.5 of A and 11 of B, relative difference 1: the forward pass differs, by its samples, weights or "
            "targets");
  EXPECT_EQ(with("5.501", a), "loss 5.5 of A and 5.501 of B, relative difference 0.00018");
  EXPECT_EQ(with("5.501", a, 0.01), "");
  EXPECT_EQ(with("5.5", a), "");
  for (const char* none : {"NaN", "tensor(5.5)", ""}) EXPECT_EQ(with(none, a), "") << none;
}

// Metadata as fp8-step writes them, of step 1 where none is given.
TEST_F(FitTest, MetadataThatDifferAreNamedFirst) {
  using Metadata = std::map<std::string, std::string>;
  const std::vector<GivenSet> parts = micro_batches(2);
  const GivenSet mean = sum_of(parts, {0.5, 0.5}), half = sum_of(parts, {0.5, 0});
  const auto found = [&](const GivenSet& b, const Metadata& of_a, const Metadata& of_b, double bound = 0) {
    const Fit f =
        compare_files(write("a.safetensors", mean, of_a), write("b.safetensors", b, of_b), TensorNames::huggingface);
    std::string text;
    for (const std::string& line : suggestions(f, bound)) text += line + "\n";
    return text;
  };
  EXPECT_EQ(found(half, {{"tokens", "256"}, {"step", "1"}}, {{"tokens", "512"}, {"step", "1"}}),
            "B is the gradient of 512 tokens, A of 256\n");
  EXPECT_EQ(found(times(mean, "", 2), {{"tokens", "256"}}, {{"tokens", "512"}}),
            "B is the gradient of 512 tokens, A of 256\nB is twice A\n");
  EXPECT_EQ(found(half, {{"tokens", "256"}, {"step", "1"}}, {{"tokens", "512"}, {"step", "2"}}),
            "A is the gradient of step 1, after 256 tokens of its run, and B of step 2, after 512 tokens of its run: "
            "the samples differ\n");
  EXPECT_NE(found(half, {{"tokens", "256"}}, {{"tokens", "256"}}).find("samples are missing"), std::string::npos);
  EXPECT_EQ(found(mean, {{"tokens", "256"}}, {{"tokens", "512"}}), "");
  GivenSet rounded = mean;
  for (auto& [name, given] : rounded)
    for (std::size_t i = 0; i < given.values.size(); i += 2) given.values[i] *= 1.1;
  const Metadata fp32{{"precision", "fp32"}, {"recipe", "none"}}, fp8{{"precision", "fp8"}, {"recipe", "tensorwise"}};
  EXPECT_EQ(found(rounded, fp32, fp8),
            "A was computed in fp32, B in fp8 tensorwise: differences of rounding are expected, see fp8-debug(7)\n");
  EXPECT_EQ(found(rounded, fp32, fp8, 0.5), "");
  EXPECT_EQ(found(rounded, fp8, fp8), "");
}

TEST_F(FitTest, GradientsComparedWithWeightsAreNamed) {
  const GivenSet a = gradients();
  std::filesystem::create_directories(at("x"));
  test::write_file(at("x/config.json"), "{}");
  (void)write("x/model.safetensors", a);
  const std::string b = write("b.safetensors", times(a, "", 2), {{"grad_norm", "2.5"}});
  EXPECT_EQ(suggestions(compare_files(at("x"), b, TensorNames::huggingface), 0),
            std::vector<std::string>{"A has weights and B gradients, by its metadata: they are not expected to agree"});
  EXPECT_EQ(
      suggestions(compare_files(b, at("x"), TensorNames::huggingface), 0),
      std::vector<std::string>{"A has gradients, by its metadata, and B weights: they are not expected to agree"});
}

TEST_F(FitTest, NamesOfOtherSystemsAreRecognized) {
  const Given g{{2}, {1, 2}};
  const GivenSet ours{{"model.layers.0.self_attn.v_proj.weight", g}, {"model.norm.weight", g}, {"lm_head.weight", g}};
  const auto found = [&](const GivenSet& theirs, TensorNames names) {
    std::string text;
    for (const std::string& line : suggestions(compare(ours, theirs, names), 0)) text += line + "\n";
    return text.substr(0, text.find(", which"));
  };
  const GivenSet titan{{"layers.0.attention.wv.weight", g}, {"norm.weight", g}},
      megatron{{"decoder.layers.0.mlp.linear_fc2.weight", g}};
  EXPECT_EQ(found(titan, TensorNames::huggingface), "2 tensors of B without counterpart have names of torchtitan");
  EXPECT_EQ(found(titan, TensorNames::torchtitan).find("torchtitan"), std::string::npos);
  EXPECT_EQ(found(megatron, TensorNames::huggingface), "1 tensor of B without counterpart has a name of megatron");
  EXPECT_EQ(found(megatron, TensorNames::megatron).find("megatron"), std::string::npos);
  EXPECT_EQ(found({}, TensorNames::huggingface).find("names"), std::string::npos);
}

TEST_F(FitTest, TwoExpertsThatDifferMostAreOfANearTie) {
  GivenSet a;
  for (const char* name :
       {"0.mlp.experts.0.up_proj", "0.mlp.experts.0.down_proj", "0.mlp.experts.1.up_proj", "0.mlp.experts.2.up_proj",
        "0.mlp.experts.2.down_proj", "1.mlp.experts.0.up_proj", "0.mlp.gate", "1.mlp.gate"})
    a[std::string("model.layers.") + name + ".weight"] = {{8, 4}, noise(32, static_cast<double>(a.size()))};
  // Whether the line is there if an element of the tensors changes, and all others by rounding.
  const auto says = [&](const std::vector<std::pair<std::string, double>>& sizes, double rounding = 1e-6) {
    GivenSet b = a;
    for (auto& [name, given] : b) given.values[1] += rounding;
    for (const auto& [part, size] : sizes)
      for (auto& [name, given] : b)
        if (name.find(part) != std::string::npos) given.values[0] += size;
    return suggested(a, b).find(
               "experts 0 and 2 of model.layers.0.mlp.experts differ most: a token whose logits are "
               "nearly equal may have another expert, which is no defect; see Near ties in "
               "fp8-moe(7)\n") != std::string::npos;
  };
  EXPECT_TRUE(says({{"0.mlp.experts.0", 0.1}, {"experts.2", 0.1}, {"experts.1", 0.002}, {"0.mlp.gate", 0.1}}));
  EXPECT_FALSE(says({{"0.mlp.experts.0", 0.1}, {"experts.2", 0.1}, {"experts.1", 0.1}, {"gate", 0.1}})) << "three";
  EXPECT_FALSE(says({{"0.mlp.experts.0", 0.1}, {"gate", 0.1}})) << "one";
  EXPECT_FALSE(says({{"0.mlp.experts.0", 9}, {"experts.2", 9}, {"gate", 0.1}})) << "more than a token changes";
  EXPECT_FALSE(says({{"1.mlp.experts.0", 0.1}, {"experts.2", 0.1}, {"gate", 0.1}})) << "of two layers";
  EXPECT_FALSE(says({{"0.mlp.experts.0", 0.1}, {"experts.2", 0.1}})) << "the router agrees";
  EXPECT_FALSE(says({{"experts.0.up", 0.1}, {"experts.2.up", 0.1}, {"gate", 0.1}})) << "one matrix of each";
  EXPECT_FALSE(says({{"0.mlp.experts.0", 0.1}, {"experts.2", 0.1}, {"0.mlp.gate", 0.1}}, 0)) << "others are equal";
  const GivenSet scaled = times(times(a, "0.mlp.experts.0", 1.1), "experts.2", 1.1);
  EXPECT_EQ(suggested(a, times(scaled, "gate", 1.01)).find("Near ties"), std::string::npos) << "a factor";
}

}  // namespace
}  // namespace fp8::convert
