// The parameter table of a decoder, in order of computation, and the compute precision of its linears.
#include "fp8/model/parameters.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "alignment.h"
#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"

namespace fp8::model {
namespace {

constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";

// The name without its last part.
std::string module_of(const std::string& name) { return name.substr(0, name.rfind('.')); }

// Appends parameters; tracks the first free row of each slot.
class Builder {
 public:
  explicit Builder(const std::optional<hf::LoraConfig>& lora) : lora_(lora) {
    if (lora) targets_.insert(lora->targets.begin(), lora->targets.end());
  }
  void unit(int number) { unit_ = number; }
  void expert(int number) { expert_ = number; }
  void add(const std::string& name, std::vector<std::int64_t> shape, ParameterRole role, Slot slot,
           int tensor_parallel_axis) {
    Parameter p;
    p.name = name;
    p.decay = shape.size() > 1;
    p.shape = std::move(shape);
    p.role = role;
    p.unit = unit_;
    p.expert = expert_;
    p.slot = slot;
    if (!table_.empty() && table_.back().unit == unit_ && table_.back().slot == slot) {
      p.slot_row = table_.back().slot_row + table_.back().rows();
    }
    p.tensor_parallel_axis = tensor_parallel_axis;
    p.trainable = !lora_ || role == ParameterRole::adapter;
    checked_product(p.shape, name);
    table_.push_back(std::move(p));
  }
  // The adapters of the targets among the last weights, which are of one slot. Where tensor parallelism splits the
  // weight's rows it splits B's, and where columns, A's.
  void add_adapters() {
    if (!lora_) return;
    const Parameter last = table_.back();
    const auto* const slots = std::ranges::find(kAdaptedSlots, last.slot, &AdaptedSlot::linear);
    auto first = table_.end();
    while (first != table_.begin() && (first - 1)->unit == last.unit && (first - 1)->slot == last.slot) --first;
    std::vector<Parameter> targets;
    for (; first != table_.end(); ++first) {
      if (targets_.contains(module_of(first->name))) targets.push_back(*first);
    }
    const int axis = last.tensor_parallel_axis;
    for (const Parameter& p : targets) {
      expert_ = p.expert;
      add(module_of(p.name) + std::string(kA), {lora_->rank, p.cols()}, ParameterRole::adapter, slots->a,
          axis == 1 ? 1 : -1);
    }
    for (const Parameter& p : targets) {
      expert_ = p.expert;
      add(module_of(p.name) + std::string(kB), {p.rows(), lora_->rank}, ParameterRole::adapter, slots->b,
          axis == 0 ? 0 : -1);
    }
    expert_ = -1;
  }
  std::vector<Parameter> take() { return std::move(table_); }

 private:
  const std::optional<hf::LoraConfig>& lora_;
  std::set<std::string> targets_;
  std::vector<Parameter> table_;
  int unit_ = 0, expert_ = -1;
};

void add_attention(Builder& b, const hf::ModelConfig& c, const std::string& prefix) {
  const std::int64_t q = c.query_size(), kv = c.key_value_size();
  b.add(prefix + "input_layernorm.weight", {c.hidden_size}, ParameterRole::norm, Slot::input_norm, -1);
  const std::string attention = prefix + "self_attn.";
  b.add(attention + "q_proj.weight", {q, c.hidden_size}, ParameterRole::linear, Slot::qkv, 0);
  b.add(attention + "k_proj.weight", {kv, c.hidden_size}, ParameterRole::linear, Slot::qkv, 0);
  b.add(attention + "v_proj.weight", {kv, c.hidden_size}, ParameterRole::linear, Slot::qkv, 0);
  b.add_adapters();
  if (c.attention_bias_qkv) {
    b.add(attention + "q_proj.bias", {q}, ParameterRole::bias, Slot::qkv_bias, 0);
    b.add(attention + "k_proj.bias", {kv}, ParameterRole::bias, Slot::qkv_bias, 0);
    b.add(attention + "v_proj.bias", {kv}, ParameterRole::bias, Slot::qkv_bias, 0);
  }
  if (c.qk_norm) {
    b.add(attention + "q_norm.weight", {c.head_dim}, ParameterRole::norm, Slot::q_norm, -1);
    b.add(attention + "k_norm.weight", {c.head_dim}, ParameterRole::norm, Slot::k_norm, -1);
  }
  b.add(attention + "o_proj.weight", {c.hidden_size, q}, ParameterRole::linear, Slot::o, 1);
  b.add_adapters();
  if (c.attention_bias_o) b.add(attention + "o_proj.bias", {c.hidden_size}, ParameterRole::bias, Slot::o_bias, -1);
}

void add_mlp(Builder& b, const hf::ModelConfig& c, const std::string& prefix) {
  const std::int64_t f = c.intermediate_size;
  b.add(prefix + "post_attention_layernorm.weight", {c.hidden_size}, ParameterRole::norm, Slot::post_norm, -1);
  const std::string mlp = prefix + "mlp.";
  b.add(mlp + "gate_proj.weight", {f, c.hidden_size}, ParameterRole::linear, Slot::gate_up, 0);
  b.add(mlp + "up_proj.weight", {f, c.hidden_size}, ParameterRole::linear, Slot::gate_up, 0);
  b.add_adapters();
  if (c.mlp_bias) {
    b.add(mlp + "gate_proj.bias", {f}, ParameterRole::bias, Slot::gate_up_bias, 0);
    b.add(mlp + "up_proj.bias", {f}, ParameterRole::bias, Slot::gate_up_bias, 0);
  }
  b.add(mlp + "down_proj.weight", {c.hidden_size, f}, ParameterRole::linear, Slot::down, 1);
  b.add_adapters();
  if (c.mlp_bias) b.add(mlp + "down_proj.bias", {c.hidden_size}, ParameterRole::bias, Slot::down_bias, -1);
}

void add_experts(Builder& b, const hf::ModelConfig& c, const std::string& prefix) {
  const hf::ExpertsConfig& e = *c.experts;
  const hf::ExpertNames names = hf::expert_names(c.family);
  b.add(prefix + "post_attention_layernorm.weight", {c.hidden_size}, ParameterRole::norm, Slot::post_norm, -1);
  const std::string block = prefix + names.block + ".";
  b.add(block + "gate.weight", {e.count, c.hidden_size}, ParameterRole::router, Slot::router, -1);
  const auto add = [&](int expert, const char* name, std::vector<std::int64_t> shape, Slot slot) {
    b.expert(expert);
    b.add(block + "experts." + std::to_string(expert) + "." + name + ".weight", std::move(shape), ParameterRole::linear,
          slot, -1);
    b.expert(-1);
  };
  const int count = checked_cast<int>(e.count, "experts");
  for (int i = 0; i < count; ++i) {
    add(i, names.gate, {e.intermediate_size, c.hidden_size}, Slot::experts_gate_up);
    add(i, names.up, {e.intermediate_size, c.hidden_size}, Slot::experts_gate_up);
  }
  b.add_adapters();
  for (int i = 0; i < count; ++i) add(i, names.down, {c.hidden_size, e.intermediate_size}, Slot::experts_down);
  b.add_adapters();
}

void check_gemm_rules(const std::vector<Parameter>& table, const std::vector<GemmRule>& rules) {
  for (const GemmRule& rule : rules) {
    const bool used = rule.glob.empty() || std::any_of(table.begin(), table.end(), [&](const Parameter& p) {
                        return p.matmul() && filter_matches(rule.glob, p.name);
                      });
    if (!used) throw Error("fp8-gemms " + rule.glob + "=" + name_of(rule.gemms) + ": matches no linear of the model");
  }
}

// Sets the recipes of matmuls. The parameters of a slot are adjacent in the table.
void assign_recipes(std::vector<Parameter>& table, const quant::Recipe& of_model,
                    const std::vector<RecipeRule>& rules) {
  const RecipeRule* none = nullptr;
  std::vector<const RecipeRule*> applied(table.size(), none);
  for (const RecipeRule& rule : rules) {
    const std::string text = "recipe " + rule.glob + "=" + std::string(rule.recipe->name);
    bool used = false;
    for (std::size_t i = 0; i < table.size(); ++i)
      if (table[i].matmul() && filter_matches(rule.glob, table[i].name)) applied[i] = &rule, used = true;
    if (!used) throw Error(text + ": matches no linear of the model");
  }
  for (std::size_t i = 0; i < table.size(); ++i) {
    Parameter& p = table[i];
    p.recipe = applied[i] != nullptr && applied[i]->recipe != &of_model ? applied[i]->recipe : nullptr;
    if (i == 0 || !p.matmul() || table[i - 1].unit != p.unit || table[i - 1].slot != p.slot) continue;
    const RecipeRule* const rule = applied[i] != nullptr ? applied[i] : applied[i - 1];
    if (p.recipe != table[i - 1].recipe)
      throw Error(
          "recipe " + rule->glob + "=" + std::string(rule->recipe->name) + ": " + table[i - 1].name + " and " + p.name +
          (p.expert != table[i - 1].expert ? " are experts of one layer, so they need the same recipe"
                                           : " have the same input, which is cast once, so they need the same recipe"));
  }
}

// Thresholds measured by torchao on one H100: below them the casts cost more than FP8 saves.
bool too_small(const quant::Recipe& recipe, std::int64_t n, std::int64_t k) {
  if (recipe.forward.w.granularity == quant::Granularity::tensor) return k <= 4096 && n <= 1024;
  return n <= 2048 || k <= 1024 || (n <= 4096 && k <= 2048);
}

// Why a linear stays in bf16; empty if it does not.
std::string reason_against(const Parameter& p, const PrecisionRules& options, const quant::Recipe& recipe) {
  for (const std::string& filter : options.filters) {
    if (filter_matches(filter, p.name)) return "filter " + filter;
  }
  if (p.role == ParameterRole::head && !options.lm_head) return "LM head";
  if (p.rows() % kAlignment != 0) return std::to_string(p.rows()) + " rows are not a multiple of 16";
  if (p.cols() % kAlignment != 0) return std::to_string(p.cols()) + " columns are not a multiple of 16";
  if (options.auto_filter && too_small(recipe, p.rows(), p.cols())) return "too small to gain (auto-filter)";
  return {};
}

void check_filters(const std::vector<Parameter>& table, const PrecisionRules& options) {
  for (const std::string& filter : options.filters) {
    const bool used =
        std::any_of(table.begin(), table.end(), [&](const Parameter& p) { return filter_matches(filter, p.name); });
    // A tied model has no tensor lm_head.weight, but a filter may still exclude its head.
    if (!used && !filter_matches(filter, "lm_head.weight")) {
      const std::string wider = "*." + filter;
      const bool ends =
          std::any_of(table.begin(), table.end(), [&](const Parameter& p) { return filter_matches(wider, p.name); });
      std::vector<Hint> hints;
      if (ends) hints.push_back({"filter", "'" + wider + "'"});
      throw Error("filter " + filter + ": matches no tensor of the model", std::move(hints));
    }
  }
}

}  // namespace

bool filter_matches(const std::string& filter, const std::string& name) {
  return glob_match(filter, name) || glob_match(filter, module_of(name));
}

std::vector<Parameter> parameter_table(const hf::ModelConfig& config) {
  Builder b(config.lora);
  b.add("model.embed_tokens.weight", {config.vocab_size, config.hidden_size}, ParameterRole::embedding, Slot::embedding,
        0);
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    b.unit(checked_cast<int>(i + 1, "num_hidden_layers"));
    const std::string prefix = "model.layers." + std::to_string(i) + ".";
    add_attention(b, config, prefix);
    if (config.is_sparse(i))
      add_experts(b, config, prefix);
    else
      add_mlp(b, config, prefix);
  }
  b.unit(checked_cast<int>(config.num_hidden_layers + 1, "num_hidden_layers"));
  b.add("model.norm.weight", {config.hidden_size}, ParameterRole::norm, Slot::final_norm, -1);
  if (!config.tie_word_embeddings) {
    b.add("lm_head.weight", {config.vocab_size, config.hidden_size}, ParameterRole::head, Slot::head, 0);
  }
  std::vector<Parameter> table = b.take();
  assign_precisions(table, {});
  return table;
}

std::string adapted_module(const Parameter& adapter) { return adapter.name.substr(0, adapter.name.size() - kA.size()); }

void assign_precisions(std::vector<Parameter>& table, const PrecisionRules& options) {
  const quant::Recipe& recipe = options.recipe != nullptr ? *options.recipe : quant::recipes().front();
  check_filters(table, options);
  check_gemm_rules(table, options.gemms);
  assign_recipes(table, recipe, options.recipes);
  for (Parameter& p : table) {
    switch (p.role) {
      case ParameterRole::embedding:
        p.reason = "embedding";
        break;
      case ParameterRole::norm:
        p.reason = "norm";
        break;
      case ParameterRole::bias:
        p.reason = "bias";
        break;
      case ParameterRole::adapter:
        p.reason = "adapter";
        break;
      case ParameterRole::router:
        p.reason = "router";
        break;
      case ParameterRole::linear:
      case ParameterRole::head:
        p.reason = reason_against(p, options, p.recipe != nullptr ? *p.recipe : recipe);
        break;
    }
    p.fp8 = p.reason.empty();
    p.gemms = {};
    for (const GemmRule& rule : options.gemms)
      if (rule.glob.empty() || filter_matches(rule.glob, p.name)) p.gemms = rule.gemms;
  }
}

void assign_muon(std::vector<Parameter>& table) {
  for (Parameter& p : table) p.muon = p.role == ParameterRole::linear && p.trainable;
}

void fuse_projections(std::vector<Parameter>& table) {
  const auto of_slot = [](const Parameter& p) { return std::tuple(p.unit, p.slot, p.expert); };
  for (auto first = table.begin(); first != table.end();) {
    const auto end =
        std::find_if(first, table.end(), [&](const Parameter& p) { return of_slot(p) != of_slot(*first); });
    const bool fuses =
        std::all_of(first, end, [&](const Parameter& p) { return p.matmul() && p.fp8 && p.gemms == first->gemms; });
    for (auto p = first; p != end; ++p) p->fused = fuses && p != first;
    first = end;
  }
}

std::int64_t parameter_count(const std::vector<Parameter>& table) {
  std::int64_t n = 0;
  for (const Parameter& p : table) n = checked_add(n, p.size(), "number of parameters");
  return n;
}

std::int64_t trainable_count(const std::vector<Parameter>& table) {
  std::int64_t n = 0;
  for (const Parameter& p : table)
    if (p.trainable) n = checked_add(n, p.size(), "number of parameters");
  return n;
}

std::int64_t active_count(const hf::ModelConfig& config, const std::vector<Parameter>& table) {
  std::int64_t n = 0;
  for (const Parameter& p : table)  // the experts of a layer have equal sizes
    if (p.expert < 0 || p.expert < config.experts->per_token) n = checked_add(n, p.size(), "number of parameters");
  return n;
}

double training_flops_per_token(const hf::ModelConfig& config, const std::vector<Parameter>& table) {
  const auto flops_of = [](std::int64_t size, bool trainable) {
    return (trainable ? 6.0 : 4.0) * static_cast<double>(size);
  };
  double flops = config.tie_word_embeddings ? flops_of(config.vocab_size * config.hidden_size, !config.lora) : 0;
  const double active =
      config.experts ? static_cast<double>(config.experts->per_token) / static_cast<double>(config.experts->count)
                     : 1.0;
  for (const Parameter& p : table)
    if (p.matmul() || p.role == ParameterRole::adapter || p.role == ParameterRole::router)
      flops += flops_of(p.size(), p.trainable) * (p.expert >= 0 ? active : 1.0);
  return flops;
}

}  // namespace fp8::model
