// The model of a KempnerForge configuration as a config.json.
// Source: kempnerforge/config/model.py and model/{transformer,mlp,moe,router,init}.py at commit 5666d0d.
#include <algorithm>
#include <cmath>

#include "kempner.h"

namespace fp8::foreign {
namespace {

std::int64_t hidden_width(const Mapping& m) {
  if (m.has("ffn_hidden_dim")) return m.whole("ffn_hidden_dim", 0);
  const double dim = static_cast<double>(m.whole("dim", 4096));
  const std::int64_t raw = whole_part(4 * dim * (2.0 / 3) * m.number("ffn_dim_multiplier", 1));
  return (raw + 255) / 256 * 256;
}

std::int64_t expert_width(const Mapping& m) {
  const double raw = std::trunc(static_cast<double>(hidden_width(m)) * m.number("moe_expert_ffn_multiplier", 1)) / 16;
  return std::max<std::int64_t>(16, 16 * whole_part(std::nearbyint(raw)));
}

// Refuses a setting with another value than the one that is built here.
void only(Mapping& m, std::string_view path, const json::Value& value, const std::string& reason) {
  const json::Value* found = m.keys().value(m.path_of(path));
  if (found == nullptr || found->is_null()) return;
  const bool same =
      *found == value || (found->is_number() && value.is_number() && found->as_double() == value.as_double());
  if (same)
    m.note(path, Class::mapped, {}, "the only value that is built here");
  else
    m.refuse(path, reason);
}

void answer_experts(Mapping& m, json::Object& config) {
  const std::int64_t experts = m.whole("num_experts", 0);
  if (experts == 0) {
    m.note("num_experts", Class::mapped, {}, "a dense model");
    for (const char* key :
         {"moe_top_k", "moe_frequency", "moe_router", "moe_shared_experts", "moe_aux_loss_weight",
          "moe_capacity_factor", "moe_sequence_aux_loss_weight", "moe_gradient_scale", "moe_bias_schedule",
          "moe_packed_experts", "moe_expert_ffn_multiplier", "moe_router_z_loss_weight"})
      m.note(key, Class::does_nothing, {}, "num_experts is 0");
    return;
  }
  const bool qwen = m.flag("qk_norm", false);
  m.note("num_experts", Class::mapped, qwen ? "num_experts" : "num_local_experts");
  config.set(qwen ? "num_experts" : "num_local_experts", experts);
  m.answer("moe_top_k", 2, Class::mapped, "num_experts_per_tok");
  config.set("num_experts_per_tok", m.whole("moe_top_k", 2));
  const std::int64_t frequency = m.whole("moe_frequency", 1);
  if (frequency != 1 && !qwen)
    m.refuse("moe_frequency", "experts in some layers only are built here for qwen3_moe, which has qk_norm");
  else
    m.answer("moe_frequency", 1, Class::mapped, qwen ? "decoder_sparse_step" : "");
  config.set(qwen ? "moe_intermediate_size" : "intermediate_size", expert_width(m));
  if (qwen) {
    config.set("decoder_sparse_step", frequency);
    config.set("norm_topk_prob", true);
    config.set("mlp_only_layers", json::Array());
  }
  m.note("moe_expert_ffn_multiplier", Class::mapped, qwen ? "moe_intermediate_size" : "intermediate_size");
  only(m, "moe_router", "softmax_topk", "routers with sigmoid scores and a bias are not built here");
  only(m, "moe_shared_experts", 0, "shared experts are not built here");
  only(m, "moe_capacity_factor", 0, "no token is dropped here: an expert takes all rows that its router sends");
  only(m, "moe_gradient_scale", false, "outputs of experts are not scaled by their load here");
  m.note("moe_sequence_aux_loss_weight", Class::does_nothing, {}, "read only by router sigmoid_topk");
  m.note("moe_bias_schedule", Class::does_nothing, {}, "read only by router sigmoid_topk");
  m.note("moe_packed_experts", Class::no_effect, {}, "how weights of experts are stored");
  m.set(
      "moe_aux_loss_weight", 0.01, "aux-loss", m.number("moe_aux_loss_weight", 0.01), Class::differs,
      "the loss of each layer is computed over a micro-batch of a rank there, over the micro-batch of all ranks here");
  m.set("moe_router_z_loss_weight", 0, "z-loss", m.number("moe_router_z_loss_weight", 0));
}

}  // namespace

void read_kempner_model(Mapping& m) {
  json::Object config;
  const bool qk_norm = m.flag("qk_norm", false);
  const bool experts = m.whole("num_experts", 0) > 0;
  config.set("model_type", experts ? (qk_norm ? "qwen3_moe" : "mixtral") : (qk_norm ? "qwen3" : "llama"));
  const std::int64_t dim = m.whole("dim", 4096), heads = m.whole("n_heads", 32);
  if (heads <= 0 || dim <= 0 || dim % heads != 0) m.keys().refuse(m.path_of("n_heads"), "does not divide dim");
  const auto whole = [&](const char* path, std::int64_t fallback, const char* name) {
    m.answer(path, fallback, Class::mapped, name);
    config.set(name, m.whole(path, fallback));
  };
  whole("dim", 4096, "hidden_size");
  whole("n_layers", 32, "num_hidden_layers");
  whole("n_heads", 32, "num_attention_heads");
  whole("n_kv_heads", heads, "num_key_value_heads");
  whole("vocab_size", 32000, "vocab_size");
  whole("max_seq_len", 2048, "max_position_embeddings");
  config.set("head_dim", dim / heads);
  config.set("intermediate_size", hidden_width(m));
  m.answer("ffn_dim_multiplier", 1.0, Class::mapped, "intermediate_size",
           m.has("ffn_hidden_dim") ? "ffn_hidden_dim decides" : "");
  m.note("ffn_hidden_dim", Class::mapped, "intermediate_size");
  answer_experts(m, config);

  m.answer("norm_eps", 1e-5, Class::mapped, "rms_norm_eps",
           qk_norm && m.number("norm_eps", 1e-5) != 1e-5 ? "norms of q and k have 1e-05 there" : "");
  config.set("rms_norm_eps", m.number("norm_eps", 1e-5));
  m.answer("rope_theta", 10000.0, Class::mapped, "rope_theta");
  config.set("rope_theta", m.number("rope_theta", 10000));
  m.answer("tie_embeddings", false, Class::mapped, "tie_word_embeddings");
  config.set("tie_word_embeddings", m.flag("tie_embeddings", false));
  m.note("qk_norm", Class::mapped, qk_norm ? "model_type qwen3" : "");
  m.answer("init_std", 0.02, Class::differs, "initializer_range",
           "o_proj and down_proj begin with the deviation divided by sqrt(2 n_layers) there, and with the same here");
  config.set("initializer_range", m.number("init_std", 0.02));
  config.set("hidden_act", "silu");
  config.set("attention_bias", false);
  config.set("mlp_bias", false);
  only(m, "norm_type", "rmsnorm", "LayerNorm is not built here");
  only(m, "activation", "silu", "feed-forward layers without a gate are not built here");
  only(m, "model_type", "transformer", "a model that KempnerForge does not have itself");
  m.note("sdpa_backend", Class::no_effect, {}, "kernels of attention");
  m.import().config = std::move(config);
}

}  // namespace fp8::foreign
