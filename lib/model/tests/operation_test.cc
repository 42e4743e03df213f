// An observer of operations gets each result once, in order of execution, as the layers use it, and changes no bit of a
// pass.
#include "fp8/model/operation.h"

#include <gtest/gtest.h>

#include <cmath>

#include "decoder_reference.h"
#include "fp8/model/decoder.h"
#include "fp8/ops/norm.h"

namespace fp8::model {
namespace {

using dtype::DType;
using tensor::Tensor;

// The results by name, forward and backward in their order; pieces are joined.
struct Observed final : OperationObserver {
  explicit Observed(int layer_count) : layers(layer_count) {}
  void observe(const Context& ctx, const Operation& operation, const View& result) override {
    const std::string name = std::string(operation.backward ? "d " : "") + full_name(operation, layers);
    if (!values.contains(name)) names.push_back(name);
    const Tensor copy(DType::f32, {result.shape[0], result.shape[1]});
    ops::copy(ctx, result, copy.view());
    std::vector<float>& all = values[name];
    all.insert(all.end(), copy.as<float>(), copy.as<float>() + copy.view().size());
  }
  int layers;
  std::vector<std::string> names;
  std::map<std::string, std::vector<float>> values;
};

struct Pass {
  std::vector<float> losses;
  reference::Tensors gradients;
};

Pass run_observed(const hf::ModelConfig& config, reference::Text& text, DType activation, Recompute recompute,
                  OperationObserver* observer) {
  const auto table = parameter_table(config);
  reference::MemorySource source(config, table, reference::some_weights(table), activation);
  device::Arena arena(std::size_t{8} << 20, device::DeviceType::host);
  Context ctx;
  ctx.arena = &arena;
  gemm::Engine engine;
  const Batch batch = text.batch();
  const Tensor losses(DType::f32, {batch.rows()});
  reference::train(Decoder(config, {activation, recompute, observer}), ctx, engine, source, batch, 1, losses.view());
  Pass pass{{losses.as<float>(), losses.as<float>() + batch.rows()}, {}};
  for (const Parameter& p : table) pass.gradients[p.name] = source.gradient(p);
  return pass;
}

hf::ModelConfig config_with_norms() {
  hf::ModelConfig config = reference::small_config();
  config.qk_norm = true;
  return config;
}

// The names of one layer in forward and in backward.
std::vector<std::string> names_of_layer(const std::string& layer, bool backward) {
  const std::vector<std::string> forward{"input_layernorm",
                                         "self_attn.q_proj",
                                         "self_attn.k_proj",
                                         "self_attn.v_proj",
                                         "self_attn.q_norm",
                                         "self_attn.k_norm",
                                         "self_attn.rope",
                                         "self_attn.attention",
                                         "self_attn.o_proj",
                                         "self_attn.residual",
                                         "post_attention_layernorm",
                                         "mlp.gate_proj",
                                         "mlp.up_proj",
                                         "mlp.swiglu",
                                         "mlp.down_proj",
                                         "mlp.residual"};
  const std::vector<std::string> back{
      "mlp.down_proj",    "mlp.swiglu",          "mlp.gate_up_proj", "post_attention_layernorm",
      "self_attn.o_proj", "self_attn.attention", "self_attn.rope",   "self_attn.q_norm",
      "self_attn.k_norm", "self_attn.qkv_proj",  "input_layernorm"};
  std::vector<std::string> names;
  for (const std::string& name : backward ? back : forward)
    names.push_back((backward ? "d model.layers." : "model.layers.") + layer + "." + name);
  return names;
}

TEST(Operations, AreObservedOnceInOrderOfExecution) {
  const hf::ModelConfig config = config_with_norms();
  ASSERT_EQ(config.num_hidden_layers, 2);
  std::vector<std::string> expected{"model.embed_tokens"};
  const auto add = [&](const std::vector<std::string>& names) {
    expected.insert(expected.end(), names.begin(), names.end());
  };
  add(names_of_layer("0", false));
  add(names_of_layer("1", false));
  add({"model.norm", "lm_head", "loss", "d loss", "d lm_head", "d model.norm"});
  add(names_of_layer("1", true));
  add(names_of_layer("0", true));
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    reference::Text text = reference::some_text(2, 5, config.vocab_size, 1);
    Observed observed(2);
    run_observed(config, text, DType::bf16, recompute, &observed);
    EXPECT_EQ(observed.names, expected);
    for (const auto& [name, values] : observed.values)
      EXPECT_EQ(values.size() % 10, 0u) << name << ": a row for each token, once";
    EXPECT_EQ(observed.values.at("loss").size(), 10u);
  }
}

TEST(Operations, ObservingChangesNoBit) {
  const hf::ModelConfig config = config_with_norms();
  for (const DType activation : {DType::f32, DType::bf16}) {
    reference::Text text = reference::some_text(2, 5, config.vocab_size, 1);
    Observed observed(2);
    const Pass with = run_observed(config, text, activation, Recompute::none, &observed);
    const Pass without = run_observed(config, text, activation, Recompute::none, nullptr);
    EXPECT_EQ(with.losses, without.losses);
    EXPECT_EQ(with.gradients, without.gradients);
  }
}

TEST(Operations, ResultsAreThoseThatTheLayersUse) {
  const hf::ModelConfig config = config_with_norms();
  reference::Text text = reference::some_text(2, 5, config.vocab_size, 1);
  Observed o(2);
  const Pass pass = run_observed(config, text, DType::f32, Recompute::none, &o);
  EXPECT_EQ(o.values.at("loss"), pass.losses);
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    const auto& before = o.values.at(layer == "model.layers.0." ? "model.embed_tokens" : "model.layers.0.mlp.residual");
    const auto &mid = o.values.at(layer + "self_attn.residual"), &attended = o.values.at(layer + "self_attn.o_proj");
    const auto &after = o.values.at(layer + "mlp.residual"), &down = o.values.at(layer + "mlp.down_proj");
    for (std::size_t i = 0; i < mid.size(); ++i) {
      EXPECT_EQ(mid[i], before[i] + attended[i]);
      EXPECT_EQ(after[i], mid[i] + down[i]);
    }
    const auto &gate = o.values.at(layer + "mlp.gate_proj"), &up = o.values.at(layer + "mlp.up_proj");
    for (std::size_t i = 0; i < gate.size(); ++i)
      EXPECT_NEAR(o.values.at(layer + "mlp.swiglu")[i], gate[i] / (1 + std::exp(-gate[i])) * up[i], 1e-6f);
  }
  // The gradient of the logits of a token: the softmax, less 1 at the target; its sum is 0.
  const std::vector<float>& d_logits = o.values.at("d loss");
  const auto vocabulary = static_cast<std::size_t>(config.vocab_size);
  for (std::size_t row = 0; row < 10; ++row) {
    float sum = 0, least = 0;
    for (std::size_t i = 0; i < vocabulary; ++i) {
      sum += d_logits[row * vocabulary + i];
      least = std::min(least, d_logits[row * vocabulary + i]);
    }
    EXPECT_NEAR(sum, 0, 1e-6f);
    EXPECT_EQ(least < 0, pass.losses[row] != 0);
  }
}

}  // namespace
}  // namespace fp8::model
