// Translation of names by tables.
#include "tensor_names.h"

#include <algorithm>
#include <array>
#include <span>

#include "fp8/hf/adapter.h"
#include "fp8/hf/config.h"

namespace fp8::convert {
namespace {

// Names of one system: those outside of layers, and those in a layer after `layers` and its number.
struct Row {
  std::string_view name, huggingface;  // the latter after "model.layers.N." in a layer
  Layout layout = Layout::same;
};
struct System {
  std::string_view layers;
  std::span<const Row> model, layer;
};

constexpr std::array<Row, 2> kHuggingfaceLayer{
    {{"mlp.experts.gate_up_proj", "mlp.experts.{}.{}_proj.weight", Layout::pairs},
     {"mlp.experts.down_proj", "mlp.experts.{}.down_proj.weight", Layout::experts}}};

constexpr std::array<Row, 4> kTorchtitanModel{{{"tok_embeddings.weight", "model.embed_tokens.weight"},
                                               {"norm.weight", "model.norm.weight"},
                                               {"output.weight", "lm_head.weight"},
                                               {"lm_head.weight", "lm_head.weight"}}};

constexpr std::array<Row, 19> kTorchtitanLayer{
    {{"attention.wq.weight", "self_attn.q_proj.weight", Layout::interleaved},
     {"attention.wk.weight", "self_attn.k_proj.weight", Layout::interleaved},
     {"attention.wv.weight", "self_attn.v_proj.weight"},
     {"attention.qkv_linear.wq.weight", "self_attn.q_proj.weight", Layout::interleaved},
     {"attention.qkv_linear.wk.weight", "self_attn.k_proj.weight", Layout::interleaved},
     {"attention.qkv_linear.wv.weight", "self_attn.v_proj.weight"},
     {"attention.wo.weight", "self_attn.o_proj.weight"},
     {"attention.q_norm.weight", "self_attn.q_norm.weight"},
     {"attention.k_norm.weight", "self_attn.k_norm.weight"},
     {"attention_norm.weight", "input_layernorm.weight"},
     {"ffn_norm.weight", "post_attention_layernorm.weight"},
     {"feed_forward.w1.weight", "mlp.gate_proj.weight"},
     {"feed_forward.w3.weight", "mlp.up_proj.weight"},
     {"feed_forward.w2.weight", "mlp.down_proj.weight"},
     {"moe.router.gate.weight", "mlp.gate.weight"},
     {"moe.gate.weight", "mlp.gate.weight"},
     {"moe.experts.w1", "mlp.experts.{}.gate_proj.weight", Layout::experts},
     {"moe.experts.w3", "mlp.experts.{}.up_proj.weight", Layout::experts},
     {"moe.experts.w2", "mlp.experts.{}.down_proj.weight", Layout::experts}}};

constexpr std::array<Row, 3> kMegatronModel{
    {{"embedding.word_embeddings.weight", "model.embed_tokens.weight", Layout::vocabulary},
     {"decoder.final_layernorm.weight", "model.norm.weight"},
     {"output_layer.weight", "lm_head.weight", Layout::vocabulary}}};

constexpr std::array<Row, 14> kMegatronLayer{
    {{"self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"},
     {"input_layernorm.weight", "input_layernorm.weight"},
     {"self_attention.linear_qkv.weight", "self_attn.{}_proj.weight", Layout::qkv},
     {"self_attention.linear_qkv.bias", "self_attn.{}_proj.bias", Layout::qkv},
     {"self_attention.q_layernorm.weight", "self_attn.q_norm.weight"},
     {"self_attention.k_layernorm.weight", "self_attn.k_norm.weight"},
     {"self_attention.linear_proj.weight", "self_attn.o_proj.weight"},
     {"self_attention.linear_proj.bias", "self_attn.o_proj.bias"},
     {"mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight"},
     {"pre_mlp_layernorm.weight", "post_attention_layernorm.weight"},
     {"mlp.linear_fc1.weight", "mlp.{}_proj.weight", Layout::gate_up},
     {"mlp.linear_fc1.bias", "mlp.{}_proj.bias", Layout::gate_up},
     {"mlp.linear_fc2.weight", "mlp.down_proj.weight"},
     {"mlp.linear_fc2.bias", "mlp.down_proj.bias"}}};

System system_of(TensorNames names) {
  if (names == TensorNames::torchtitan) return {"layers.", kTorchtitanModel, kTorchtitanLayer};
  if (names == TensorNames::megatron) return {"decoder.layers.", kMegatronModel, kMegatronLayer};
  return {"model.layers.", {}, kHuggingfaceLayer};
}

constexpr std::array<std::string_view, 3> kWrappers{"_orig_mod.", "_fsdp_wrapped_module.",
                                                    "_checkpoint_wrapped_module."};

std::optional<Translation> find_in(std::span<const Row> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Row::name);
  return found == table.end() ? std::nullopt
                              : std::optional(Translation{std::string(found->huggingface), found->layout});
}

void replace_all(std::string& text, std::string_view part, std::string_view by) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + by.size()))
    text.replace(at, part.size(), by);
}

// Gives the router and the experts of Mixtral the names of Qwen3-MoE.
void rename_experts(std::string& key) {
  const hf::ExpertNames mixtral = hf::expert_names(hf::Family::mixtral), qwen = hf::expert_names(hf::Family::qwen3_moe);
  const auto dotted = [](const char* part) { return "." + std::string(part) + "."; };
  if (key.find(dotted(mixtral.block)) == std::string::npos) return;
  using Names = hf::ExpertNames;
  for (const auto part : {&Names::block, &Names::gate, &Names::up, &Names::down})
    replace_all(key, dotted(mixtral.*part), dotted(qwen.*part));
}

// The Hugging Face name of a tensor of `system`, whose wrappers are removed.
std::optional<Translation> translate_in(const System& system, std::string_view bare) {
  if (auto found = find_in(system.model, bare)) return found;
  if (!bare.starts_with(system.layers)) return std::nullopt;
  const std::string_view rest = bare.substr(system.layers.size());
  const std::size_t dot = rest.find('.');
  if (dot == std::string_view::npos || dot == 0 || rest.find_first_not_of("0123456789") != dot) return std::nullopt;
  auto found = find_in(system.layer, rest.substr(dot + 1));
  if (found) found->name = "model.layers." + std::string(rest.substr(0, dot + 1)) + found->name;
  return found;
}

}  // namespace

std::string without_wrappers(std::string_view name) {
  std::string text(name);
  for (const std::string_view wrapper : kWrappers) replace_all(text, wrapper, "");
  while (text.starts_with("module.")) text.erase(0, std::string_view("module.").size());
  return text;
}

std::string key_of(std::string_view name) {
  std::string key = without_wrappers(name);
  if (key.starts_with(hf::kAdapterPrefix)) key.erase(0, hf::kAdapterPrefix.size());
  for (const char* matrix : {".lora_A", ".lora_B"}) {
    const std::string live = matrix + std::string(".default.weight");  // of a model in memory, not of a file
    if (key.ends_with(live)) key.replace(key.size() - live.size(), live.size(), matrix + std::string(".weight"));
  }
  rename_experts(key);
  return key;
}

std::optional<Translation> translate(std::string_view name, TensorNames names) {
  const std::string bare = without_wrappers(name);
  if (auto found = translate_in(system_of(names), bare)) return found;
  return translate_in(system_of(TensorNames::huggingface), bare);
}

bool is_name_of(std::string_view name, TensorNames system) {
  const std::string bare = without_wrappers(name);
  const auto found = translate_in(system_of(system), bare);
  return found && found->name != bare;
}

}  // namespace fp8::convert
