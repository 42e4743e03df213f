// The model of an AutoModel recipe: weights or a configuration, types, kernels, FP8 and adapters.
// Source: nemo_automodel/_transformers/auto_model.py, components/quantization/fp8.py, components/_peft/lora.py,
// components/models/common/utils.py and components/optim/precision_warnings.py at commit 36044ad3.
#include <algorithm>
#include <array>
#include <filesystem>

#include "automodel.h"
#include "families.h"
#include "fp8/json/json.h"

namespace fp8::foreign {
namespace {

constexpr std::string_view kKernels = "kernels";

constexpr std::array<KeyRow, 21> kModelRows = {{
    {"model.attn_implementation", Class::no_effect, "", "kernels of attention"},
    {"model.force_hf", Class::no_effect, "", "which classes compute the model"},
    {"model.use_liger_kernel", Class::no_effect, "", kKernels},
    {"model.use_sdpa_patching", Class::no_effect, "", kKernels},
    {"model.trust_remote_code", Class::no_effect, "", "no code of a model is run here"},
    {"model.output_hidden_states", Class::no_effect, "", "what the fused loss reads"},
    {"model.text_config.output_hidden_states", Class::no_effect, "", "what the fused loss reads"},
    {"model.backend._target_", Class::no_effect, "", kKernels},
    {"model.backend.attn", Class::no_effect, "", "kernels of attention"},
    {"model.backend.linear", Class::no_effect, "", "kernels of linears"},
    {"model.backend.rms_norm", Class::no_effect, "", "kernels of norms, which are computed in f32 here"},
    {"model.backend.rope*", Class::no_effect, "", kKernels},
    {"model.backend.compile_attn", Class::no_effect, "", kKernels},
    {"model.backend.dispatcher*", Class::no_effect, "", "how tokens travel to experts: see --ep"},
    {"model.backend.mok*", Class::no_effect, "", "how tokens travel to experts: see --ep"},
    {"model.backend.enable_*", Class::no_effect, "", "how weights are sharded and read"},
    {"model.backend.gate_precision", Class::mapped, "", "routers are computed in f32 here"},
    {"model.mtp_*", Class::no_counterpart, "", "heads that predict several tokens are not trained here"},
    {"model.kda_*", Class::no_counterpart, "", "linear attention is not built here"},
    {"model.config.name_or_path", Class::no_effect, "", "a name"},
    {"model.*", Class::no_counterpart, "", "an argument of the model that is not read here"},
}};

std::string weights_type(const Mapping& m) {
  const std::string type = is_given(m, "model.torch_dtype") ? m.text("model.torch_dtype", "auto") : "auto";
  return type.substr(type.rfind('.') + 1);
}

void read_types(Mapping& m) {
  Import& import = m.import();
  const std::string type = weights_type(m), optimizer = m.text("optimizer._target_", "");
  import.set("precision", "bf16");
  const char* path = "model.torch_dtype";
  if (is_given(m, "peft")) {
    m.answer(path, "auto", Class::differs, "", "adapters and their moments have the type of the model there, f32 here");
    return;
  }
  const bool keeps_f32 = optimizer.ends_with("FusedAdam") && m.flag("optimizer.master_weights", true);
  const bool wide = type == "auto" || type == "float32" || type == "fp32" || type == "float";
  if (wide || keeps_f32) {
    import.set("master", "fp32");
    import.set("moments", "fp32");
    m.answer(path, "float32", Class::mapped, "--master fp32 --moments fp32",
             keeps_f32 ? "the optimizer keeps f32 weights" : "computes in bf16");
    return;
  }
  if (type != "bf16" && type != "bfloat16") return m.refuse(path, "weights are f32 or bf16 here");
  import.set("master", "bf16");
  import.set("moments", "bf16");
  m.answer(path, "bf16", Class::differs, "--master bf16 --moments bf16",
           "weights and moments are bf16 there too; here they are rounded stochastically");
}

// The config.json that a model without weights has: that of --model with the values of the file, or the file's alone.
void read_config(Mapping& m) {
  Import& import = m.import();
  const json::Value* node = m.keys().value("model.config");
  if (node == nullptr || node->is_null()) {
    import.missing.emplace_back("model: the file names no configuration of the model");
    return;
  }
  if (node->is_string()) {
    import.model_name = node->as_string();
    m.note("model.config", Class::mapped, "fp8-init");
  }
  for (const char* path : {"model.config.pretrained_model_name_or_path", "model.config.name_or_path"})
    if (import.model_name.value_or("").empty() && m.has(path)) import.model_name = m.text(path, "");
  const std::string target = m.text("model.config._target_", "");
  m.note("model.config._target_", Class::mapped, "fp8-init");
  m.note("model.config.pretrained_model_name_or_path", Class::mapped, "fp8-init");
  m.note("model.config.trust_remote_code", Class::no_effect, {}, "no code of a model is run here");
  m.note("model.config.use_cache", Class::no_effect, {}, "a cache of generation");
  for (const char* path : {"model.config._attn_implementation", "model.config.attn_implementation_new"})
    m.note(path, Class::no_effect, {}, "kernels of attention");

  json::Object config;
  const std::filesystem::path file = std::filesystem::path(import.options.model.value_or("")) / "config.json";
  std::error_code ignored;
  if (import.options.model && std::filesystem::is_regular_file(file, ignored))
    config = json::parse_file(file.string()).as_object();
  if (node->is_object())
    for (const auto& [key, value] : node->as_object()) {
      if (key.starts_with("_") || key == "pretrained_model_name_or_path" || key == "name_or_path" ||
          key == "trust_remote_code" || key == "attn_implementation_new")
        continue;
      config.set(key, value);
      if (!value.is_object()) m.note("model.config." + key, Class::mapped, "config.json");
    }
  if (target.ends_with("Qwen3MoeConfig")) config.set("model_type", "qwen3_moe");
  if (config.contains("model_type"))
    import.config = std::move(config);
  else if (untrained_family(import.model_name.value_or("")).empty())
    import.missing.push_back("model: the config.json of " + import.model_name.value_or("the model") +
                             ": name its folder with --model");
}

void read_name(Mapping& m) {
  Import& import = m.import();
  const std::string target = m.text("model._target_", "");
  const bool from_config = target.ends_with(".from_config");
  if (!is_python_name(target, "NeMoAutoModelForCausalLM.from_pretrained") &&
      !is_python_name(target, "NeMoAutoModelForCausalLM.from_config"))
    m.refuse("model._target_", "only causal language models of Hugging Face's form are trained here");
  else
    m.note("model._target_", Class::mapped, from_config ? "fp8-init" : "fp8-convert");
  const char* path = "model.pretrained_model_name_or_path";
  if (m.has(path)) import.model_name = m.text(path, "");
  if (from_config) read_config(m);
  if (!from_config && !m.flag("model.load_base_model", true))
    m.refuse("model.load_base_model", "weights of this architecture are not drawn: use fp8-init on its config.json");
  else
    m.note("model.load_base_model", Class::mapped, {}, "the weights are read");
  const std::string name = import.model_name.value_or("");
  const std::string_view family = import.options.model ? std::string_view() : untrained_family(name);
  const char* stated = m.has(path) ? path
                       : m.has("model.config.pretrained_model_name_or_path")
                           ? "model.config.pretrained_model_name_or_path"
                           : "model.config";
  if (!family.empty())
    m.import().answers.push_back({m.document().path, stated, name, {}, Class::no_counterpart, family_reason(family)});
  else if (!from_config && name.empty())
    import.missing.emplace_back("model: the file names none");
  m.note(path, Class::mapped, "fp8-convert");
}

void read_backend(Mapping& m) {
  Import& import = m.import();
  if (m.flag("model.backend.fake_balanced_gate", false))
    m.refuse("model.backend.fake_balanced_gate", "routers that ignore their input are for measuring speed alone");
  else
    m.note("model.backend.fake_balanced_gate", Class::mapped, {}, "off");
  const std::string experts = m.text("model.backend.experts", "");
  if (experts == "torch_mm_mxfp8")
    m.refuse("model.backend.experts", "MXFP8 for experts alone is not a recipe; the nearest is --recipe mxfp8");
  else
    m.note("model.backend.experts", Class::no_effect, {}, "kernels of experts");
  if (m.whole("model.num_nextn_predict_layers", 0) > 0)
    m.refuse("model.num_nextn_predict_layers", "heads that predict several tokens are not trained here");
  else
    m.note("model.num_nextn_predict_layers", Class::mapped, {}, "off");
  if (!m.has("model.backend.te_fp8")) return;
  m.note("model.backend.te_fp8._target_", Class::mapped, "--precision fp8");
  const std::string recipe = m.text("model.backend.te_fp8.recipe", "current");
  if (m.text("model.backend.linear", "te") != "te" && experts != "te") {
    m.note("model.backend.te_fp8", Class::does_nothing, {},
           "neither linears nor experts are those of TransformerEngine");
    return;
  }
  import.set("precision", "fp8");
  if (recipe != "current" && recipe != "block" && recipe != "mxfp8")
    return m.refuse("model.backend.te_fp8.recipe", "not a recipe here; see fp8-recipes(7)");
  m.set("model.backend.te_fp8.recipe", "current", "recipe", recipe == "block" ? "blockwise" : recipe);
}

// Answers the keys of the fp8 block that its recipe does not read.
void read_fp8_gather(Mapping& m, bool tensorwise) {
  if (!tensorwise) {
    for (const char* path : {"fp8.enable_fsdp_float8_all_gather", "fp8.precompute_float8_dynamic_scale_for_fsdp",
                             "fp8.force_recompute_fp8_weight_in_bwd", "fp8.emulate"})
      m.note(path, Class::does_nothing, {}, "read only with recipe tensorwise");
    m.import().set("fp8-all-gather", false);
    return;
  }
  const bool gather = m.flag("fp8.enable_fsdp_float8_all_gather", false);
  m.set("fp8.enable_fsdp_float8_all_gather", false, "fp8-all-gather", gather);
  m.note("fp8.precompute_float8_dynamic_scale_for_fsdp", gather ? Class::no_effect : Class::does_nothing, {},
         gather ? "scales are computed before the all-gather here" : "read only with FP8 all-gather");
  m.note("fp8.force_recompute_fp8_weight_in_bwd", Class::no_effect, {}, "whether FP8 weights are kept: the same codes");
  if (m.flag("fp8.emulate", false))
    m.set("fp8.emulate", false, "emulate", true);
  else
    m.note("fp8.emulate", Class::mapped, {}, "off");
}

void read_fp8(Mapping& m) {
  Import& import = m.import();
  if (!m.has("fp8")) return;
  if (!m.flag("fp8.enabled", false)) return m.note("fp8", Class::does_nothing, {}, "fp8.enabled is not true");
  m.note("fp8.enabled", Class::mapped, "--precision fp8");
  m.note("fp8._target_", Class::mapped, "--precision fp8");
  import.set("precision", "fp8");
  const std::string recipe = is_given(m, "fp8.recipe_name") ? m.text("fp8.recipe_name", "") : "tensorwise";
  if (recipe != "tensorwise" && recipe != "rowwise" && recipe != "rowwise_with_gw_hp")
    m.keys().refuse("fp8.recipe_name", "must be tensorwise, rowwise or rowwise_with_gw_hp");
  m.set("fp8.recipe_name", "tensorwise", "recipe", recipe);
  read_fp8_gather(m, recipe == "tensorwise");

  // A module is left out if its name contains one of these; the head is a linear like others.
  json::Array filters;
  bool head = true;
  std::string here;
  if (const json::Value* names = m.keys().value("fp8.filter_fqns"); names != nullptr && names->is_array())
    for (const json::Value& name : names->as_array()) {
      const std::string text = name.is_string() ? name.as_string() : "";
      if (std::string_view("lm_head").find(text) != std::string_view::npos) head = false;
      if (text != "lm_head") filters.push_back("*" + text + "*");
    }
  if (head) here = "--fp8-lm-head";
  if (!filters.empty()) here += (here.empty() ? "" : " ") + flag_text("filter", filters);
  m.answer("fp8.filter_fqns", json::Array(), Class::mapped, here, head ? "" : "the LM head stays in bf16");
  import.set("fp8-lm-head", head);
  if (!filters.empty()) import.set("filter", std::move(filters));
}

}  // namespace

void read_automodel_model(Mapping& m) {
  read_types(m);
  read_name(m);
  read_backend(m);
  read_fp8(m);
}

std::span<const KeyRow> automodel_model_rows() { return kModelRows; }

void read_automodel_peft(Mapping& m) {
  Import& import = m.import();
  if (!is_given(m, "peft")) return;
  m.note("peft._target_", Class::mapped, "--lora-rank");
  m.set("peft.dim", 8, "lora-rank", m.whole("peft.dim", 8));
  m.set("peft.alpha", 32, "lora-alpha", m.number("peft.alpha", 32));
  const double dropout = m.number("peft.dropout", 0);
  const bool after = m.text("peft.dropout_position", "post") == "post";
  m.set("peft.dropout", 0.0, "lora-dropout", dropout, dropout > 0 && after ? Class::differs : Class::mapped,
        dropout > 0 && after ? "outputs of adapters are left out there, inputs of A here" : "");
  m.note("peft.dropout_position", dropout > 0 ? Class::mapped : Class::does_nothing, {},
         dropout > 0 ? "" : "peft.dropout is 0");
  json::Array targets;
  const json::Value* names = m.keys().value("peft.target_modules");
  if (names != nullptr && names->is_string()) targets.push_back(names->as_string());
  if (names != nullptr && names->is_array()) targets = names->as_array();
  const bool all = m.flag("peft.match_all_linear", false) || m.has("peft.exclude_modules") ||
                   std::ranges::find(targets, json::Value("*")) != targets.end();
  if (all) targets = json::Array{"all"};
  if (targets.empty()) targets = json::Array{"*_proj"};
  const char* path = m.has("peft.match_all_linear")  ? "peft.match_all_linear"
                     : m.has("peft.exclude_modules") ? "peft.exclude_modules"
                                                     : "peft.target_modules";
  m.set(path, json::Array{"*_proj"}, "lora-targets", targets, all ? Class::differs : Class::mapped,
        all ? "the LM head has an adapter there too, and not here" : "");
  m.note("peft.target_modules", Class::mapped, "--lora-targets");
  m.note("peft.lora_A_init", Class::differs, {}, "A begins with another distribution");
  for (const char* key : {"peft.use_triton", "peft.use_memory_efficient_lora"})
    m.note(key, Class::no_effect, {}, kKernels.data());
  if (m.flag("peft.use_dora", false)) m.refuse("peft.use_dora", "DoRA is not built here; the nearest is plain LoRA");
  m.note("peft.use_dora", Class::mapped, {}, "off");
  if (m.flag("peft.moe_rank_scaling", false))
    m.refuse("peft.moe_rank_scaling", "adapters of experts have the rank of the others here");
  m.note("peft.moe_rank_scaling", Class::mapped, {}, "off");
  m.note("peft.lora_dtype", Class::differs, {}, "adapters are f32 here");
  import.set("decay", "all");
}

}  // namespace fp8::foreign
