// Translation of names by tables.
#include "tensor_names.h"

#include <algorithm>
#include <array>
#include <utility>

#include "fp8/hf/adapter.h"

namespace fp8::convert {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

constexpr std::array<Pair, 4> kModel{{{"tok_embeddings.weight", "model.embed_tokens.weight"},
                                      {"norm.weight", "model.norm.weight"},
                                      {"output.weight", "lm_head.weight"},
                                      {"lm_head.weight", "lm_head.weight"}}};

constexpr std::array<Pair, 19> kLayer{{{"attention.wq.weight", "self_attn.q_proj.weight"},
                                       {"attention.wk.weight", "self_attn.k_proj.weight"},
                                       {"attention.wv.weight", "self_attn.v_proj.weight"},
                                       {"attention.qkv_linear.wq.weight", "self_attn.q_proj.weight"},
                                       {"attention.qkv_linear.wk.weight", "self_attn.k_proj.weight"},
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
                                       {"moe.experts.w1", "mlp.experts.{}.gate_proj.weight"},
                                       {"moe.experts.w3", "mlp.experts.{}.up_proj.weight"},
                                       {"moe.experts.w2", "mlp.experts.{}.down_proj.weight"}}};

constexpr std::array<std::string_view, 3> kWrappers{"_orig_mod.", "_fsdp_wrapped_module.",
                                                    "_checkpoint_wrapped_module."};

template <std::size_t N>
std::optional<std::string> find_in(const std::array<Pair, N>& table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Pair::first);
  return found == table.end() ? std::nullopt : std::optional(std::string(found->second));
}

void remove_all(std::string& text, std::string_view part) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) text.erase(at, part.size());
}

}  // namespace

std::string without_wrappers(std::string_view name) {
  std::string text(name);
  for (const std::string_view wrapper : kWrappers) remove_all(text, wrapper);
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
  return key;
}

std::optional<TorchtitanName> from_torchtitan(std::string_view name) {
  const std::string bare = without_wrappers(name);
  if (auto found = find_in(kModel, bare)) return TorchtitanName{*std::move(found)};
  constexpr std::string_view kLayers = "layers.";
  if (!bare.starts_with(kLayers)) return std::nullopt;
  const std::size_t dot = bare.find('.', kLayers.size());
  if (dot == std::string::npos || dot == kLayers.size() || bare.find_first_not_of("0123456789", kLayers.size()) != dot)
    return std::nullopt;
  const std::string_view part = std::string_view(bare).substr(dot + 1);
  const auto found = find_in(kLayer, part);
  if (!found) return std::nullopt;
  return TorchtitanName{"model." + bare.substr(0, dot + 1) + *found,
                        part.ends_with(".wq.weight") || part.ends_with(".wk.weight"), part.starts_with("moe.experts.")};
}

}  // namespace fp8::convert
