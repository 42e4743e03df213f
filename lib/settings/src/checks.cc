// Checks that a run and an evaluation share.
#include "fp8/settings/checks.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "fp8/cli/command.h"
#include "fp8/model/checkpoint.h"
#include "fp8/model/record.h"
#include "fp8/model/stages.h"
#include "fp8/settings/lora.h"
#include "fp8/settings/setting.h"
#include "fp8/shard/state_tensors.h"

namespace fp8::settings {

namespace {

constexpr std::int64_t kDefaultLength = 1024;
constexpr double kMuchPadding = 0.1;  // share of all tokens

// Whether the model is as fp8-init made it, also after fp8-convert, so that no tokenizer has been used with it.
bool untrained(const ckpt::Checkpoint& model) {
  const json::Value& made_by = model.provenance();
  if (!made_by.is_array() || made_by.as_array().empty()) return false;
  const auto made_with = [](const json::Value& entry, std::string_view tool) {
    const json::Value* name = entry.is_object() ? entry.as_object().find("tool") : nullptr;
    return name != nullptr && name->is_string() && name->as_string() == tool;
  };
  const std::span entries(made_by.as_array());
  return made_with(entries.front(), "fp8-init") &&
         std::ranges::all_of(entries.subspan(1), [&](const json::Value& e) { return made_with(e, "fp8-convert"); });
}

// Whether weights and moments of this format can be trained.
bool trainable(DType type) { return type == DType::f32 || type == DType::bf16; }

// Throws Error for flags of FP8 that contradict FP4, if all linears of low precision are FP4.
void check_fp4(const PrecisionConfig& precision) {
  const std::vector<const quant::Recipe*> recipes = precision.recipes_used();
  if (recipes.empty() || !std::ranges::all_of(recipes, &quant::Recipe::fp4)) return;
  const auto refuse = [&](const char* flag, const char* why) {
    throw Error(cli::flag_name(flag) + ": " + why + " under " + cli::flag_name("recipe") + " nvfp4");
  };
  const auto typed = [&](const char* flag) {
    return std::ranges::find(precision.typed, flag) != precision.typed.end();
  };
  if (precision.e4m3_gradients || typed("fp8-format")) refuse("fp8-format", "no operand is FP8");
  if (precision.power_of_2 == true) refuse("power-of-2-scales", "scales of blocks are E4M3");
  if (precision.fp8_all_gather && typed("fp8-all-gather"))
    refuse("fp8-all-gather", "weights are gathered in the format of activations");
}

}  // namespace

void check_precision(const PrecisionConfig& precision) {
  if (precision.precision == Precision::fp32 && precision.execution.activation != DType::f32)
    throw Error(cli::flag_name("activations") + ": bf16 contradicts " + cli::flag_name("precision") + " fp32");
  if (precision.precision == Precision::bf16 && precision.execution.activation != DType::bf16)
    throw Error(cli::flag_name("activations") + ": f32 needs " + cli::flag_name("precision") + " fp32 or fp8");
  const bool fp8 = precision.precision == Precision::fp8;
  if (precision.rowwise_single_copy && !(fp8 && precision.has_rowwise()))
    throw Error(cli::flag_name("rowwise-single-copy") + ": needs " + cli::flag_name("precision") + " fp8 and " +
                cli::flag_name("recipe") + " rowwise");
  if (precision.fuse_projections && !(fp8 && precision.has_tensor_scales()))
    throw Error(cli::flag_name("fuse-projections") + ": needs " + cli::flag_name("precision") + " fp8 and " +
                cli::flag_name("recipe") + " tensorwise or current, which have a scale for each tensor");
  if (!fp8 && precision.accumulation != gemm::Accumulation::f32)
    throw Error(cli::flag_name("accumulate") + ": " + std::string(name_of(precision.accumulation)) + " needs " +
                cli::flag_name("precision") + " fp8");
  for (const quant::Recipe* recipe : precision.recipes_used())
    if (recipe->emulated_everywhere() && precision.accumulation != gemm::Accumulation::f32)
      throw Error(cli::flag_name("accumulate") + ": " + std::string(name_of(precision.accumulation)) +
                  ": this chip has no " + "GEMM of " + cli::flag_name("recipe") + " " + std::string(recipe->name));
  check_fp4(precision);
}

void check_unfused(const PrecisionConfig& precision) {
  if (precision.fuse_projections)
    throw Error(cli::flag_name("fuse-projections") +
                ": adapters and FP8 codes belong to single projections, which are not fused");
}

std::string note_of_unused(const PrecisionConfig& precision, const std::vector<std::string>& recipes) {
  const bool fp8 = precision.precision == Precision::fp8;
  const auto acts = [&](const Setting& s) {
    return fp8 && std::ranges::any_of(recipes, [&](const std::string& name) {
             const bool single = precision.rowwise_single_copy && name == "rowwise";
             return s.acts(single ? precision.variant_of(name) : quant::find_recipe(name));
           });
  };
  std::string flags, names;
  for (const std::string& flag : precision.given) {
    const auto of_fp8 = std::ranges::find_if(
        all_settings(), [&](const Setting& s) { return s.flag.name == flag && s.acts != nullptr; });
    if (of_fp8 != all_settings().end() && !acts(*of_fp8)) flags += (flags.empty() ? "" : ", ") + cli::flag_name(flag);
  }
  for (const std::string& name : recipes) names += (names.empty() ? " " : ", ") + name;
  if (flags.empty()) return "";
  return flags + ": no effect " +
         (fp8 ? "under " + cli::flag_name("recipe") + names : "without " + cli::flag_name("precision") + " fp8");
}

std::string note_of_fusion(const PrecisionConfig& precision, const std::vector<model::Parameter>& table) {
  if (!precision.fuse_projections || std::ranges::any_of(table, &model::Parameter::fused)) return "";
  return cli::flag_name("fuse-projections") +
         ": no effect: no layer has q, k and v, or gate and up, all in FP8 and in the same GEMMs";
}

void check_statistics(const RunConfig& c) {
  if (c.precision.fuse_projections && c.stats_every > 0)
    throw Error(cli::flag_name("tensor-stats-every") + ": measures each projection alone, which " +
                cli::flag_name("fuse-projections") + " does not compute");
}

namespace {

// Throws Error for a flag of experts if no layer has any.
void require_experts(const char* flag, const std::string& path, const hf::ModelConfig& model) {
  if (model.sparse_layers() > 0) return;
  throw Error(cli::flag_name(flag) + ": " + path +
              (model.experts ? ": all layers are dense, so that there are no experts" : " has no experts"));
}

}  // namespace

void check_expert_parallel(std::int64_t ep, const std::string& path, const hf::ModelConfig& model) {
  if (ep > 1) require_experts("ep", path, model);
}

void check_experts(const RunConfig& c, const std::string& path, const hf::ModelConfig& model) {
  check_expert_parallel(c.ep, path, model);
  for (const auto& [name, wanted] : {std::pair("aux-loss", c.aux_loss > 0), {"z-loss", c.z_loss > 0}})
    if (wanted) require_experts(name, path, model);
}

model::UnitCosts costs_of_units(const hf::ModelConfig& model, const std::vector<model::Parameter>& table,
                                std::int64_t length, device::DeviceType device) {
  // With 124 million parameters the layers of a step in FP8 took 1.24 to 1.33 times as long as in bf16 under
  // tensorwise, rowwise, delayed and blockwise.
  constexpr double kEmulated = 1.3;
  return model::unit_costs(model, table, length, device == device::DeviceType::host ? kEmulated : 1);
}

std::vector<int> layers_of_stages(const Config& c, const model::UnitCosts& costs) {
  return c.stages.empty() ? model::divide_layers(costs, static_cast<int>(c.pp)) : c.stages;
}

std::string note_of_routers(const PrecisionConfig& precision, const std::vector<model::Parameter>& table) {
  std::string filters;
  for (const std::string& filter : precision.selection.filters) {
    const auto matches = [&](const auto& wanted) {
      return std::ranges::any_of(
          table, [&](const model::Parameter& p) { return wanted(p) && model::filter_matches(filter, p.name); });
    };
    if (matches([](const model::Parameter& p) { return p.role == model::ParameterRole::router; }) &&
        !matches([](const model::Parameter& p) { return p.matmul(); }))
      filters += (filters.empty() ? " " : ", ") + filter;
  }
  return filters.empty() ? "" : cli::flag_name("filter") + filters + ": no effect: routers are never FP8";
}

std::string note_of_expert_rows(const RunConfig& c) {
  return c.ep == 1 && c.expert_rows != RunConfig().expert_rows
             ? cli::flag_name("expert-rows") + ": no effect with " + cli::flag_name("ep") + " 1"
             : "";
}

void check_settings(const RunConfig& c) {
  check_lora_settings(c);
  check_statistics(c);
  if (c.schedule.min_lr > c.schedule.lr) throw Error(cli::flag_name("min-lr") + ": above " + cli::flag_name("lr"));
  if (c.schedule.warmup_from && c.schedule.warmup == 0 && c.warmup_ratio == 0)
    throw Error(cli::flag_name("warmup-from") + ": needs " + cli::flag_name("warmup-steps") + " or " +
                cli::flag_name("warmup-ratio"));
  if (c.schedule.warmup_from.value_or(0) > c.schedule.lr)
    throw Error(cli::flag_name("warmup-from") + ": above " + cli::flag_name("lr"));
  if (c.schedule.decay_steps > 0 && c.schedule.kind != optim::ScheduleKind::wsd)
    throw Error(cli::flag_name("decay-steps") + ": only with " + cli::flag_name("schedule") + " wsd");
  if (c.schedule.decay_shape != optim::DecayShape::linear && c.schedule.kind != optim::ScheduleKind::wsd)
    throw Error(cli::flag_name("decay-shape") + ": only with " + cli::flag_name("schedule") + " wsd");
  if (c.sample_every > 0 && !c.sample_prompt)
    throw Error(cli::flag_name("sample-every") + ": needs " + cli::flag_name("sample-prompt"));
  if (!c.eval_data.empty()) return;
  if (c.eval_every > 0) throw Error(cli::flag_name("eval-every") + ": needs " + cli::flag_name("eval-data"));
  if (c.keep_best) throw Error(cli::flag_name("keep-best") + ": needs " + cli::flag_name("eval-data"));
}

void check_micro_batch(std::int64_t sequences, std::int64_t length) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
  if (sequences > kMost / length)
    throw Error(cli::flag_name("batch-size") + ": " + std::to_string(sequences) + " sequences of " +
                std::to_string(length) + " tokens, " + std::to_string(kMost) + " tokens at most");
}

void check_vocabulary(const data::TokenFile& tokens, const hf::ModelConfig& model) {
  if (tokens.info().vocab_size > model.vocab_size)
    throw Error(tokens.path() + ": made with a vocabulary of " + std::to_string(tokens.info().vocab_size) +
                ", the model's has " + std::to_string(model.vocab_size));
}

std::optional<std::string> tokenizer_of(const ckpt::Checkpoint& model, bool any) {
  try {
    return model::tokenizer_id(model);
  } catch (const Error& e) {
    if (any) return std::nullopt;
    throw Error(std::string(e.what()) + "; " + cli::flag_name("any-tokenizer") + " goes on without it");
  }
}

std::string check_tokenizer(const data::TokenFile& tokens, const ckpt::Checkpoint& model,
                            const std::optional<std::string>& known, bool any) {
  const std::optional<std::string>& made_with = tokens.info().tokenizer;
  if (!made_with)
    return tokens.path() + ": which tokenizer made it is not known, so it is not compared with the model's " +
           "(fp8-tokenize --tokenizer records it)";
  if (known && *known != *made_with && !any)
    throw Error(tokens.path() + ": made with another tokenizer (" + *made_with + ") than the model's (" + *known +
                "); make it again with the model's, or give " + cli::flag_name("any-tokenizer"));
  if (known || untrained(model)) return "";
  return model.path() + ": has no tokenizer to compare with that of " + tokens.path() + " (" + *made_with + ")";
}

namespace {

// The length of packed sequences that hold the longest document of a sampler that splits none: with a token of padding,
// as they have, and where its length does not fit or is not known exactly, in the next multiple of 8.
std::int64_t packing_length(const data::Sampler& sampler) {
  const std::int64_t length = sampler.tokens_per_sample();
  return sampler.bounds(1).longest < length ? length : (length + 9) / 8 * 8;
}

}  // namespace

std::vector<std::string> document_notes(const data::TokenFile& tokens, const data::Sampler& sampler) {
  std::string split, padded;
  const std::int64_t length = sampler.tokens_per_sample();
  if (sampler.split_documents() > 0)
    split = tokens.path() + ": " + std::to_string(sampler.split_documents()) + " of " +
            std::to_string(tokens.info().documents) + " documents are longer than " + std::to_string(length) +
            " tokens and are split";
  const double share = static_cast<double>(sampler.padding()) / static_cast<double>(sampler.samples() * length);
  if (share > kMuchPadding)
    padded = tokens.path() + ": each document is a sequence of its own, so " +
             std::to_string(std::lround(100 * share)) + " % of the tokens are padding" +
             (tokens.info().mask && split.empty() ? "; fp8-tokenize --pack " + std::to_string(packing_length(sampler)) +
                                                        " puts several conversations into a sequence"
                                                  : "");
  return {split, padded};
}

std::int64_t resolved_length(std::int64_t asked, const data::TokenInfo& tokens, const hf::ModelConfig& model) {
  const std::int64_t usual = tokens.sequence_length.value_or(std::min(kDefaultLength, model.max_position_embeddings));
  const std::int64_t t = asked > 0 ? asked : usual;
  model.check_sequence_length(t);
  return t;
}

void set_length(json::Value& flags, std::int64_t length) {
  if (flags.is_object()) flags.as_object().set("seq-length", length);
}

std::string note_of_length(std::int64_t length, const hf::ModelConfig& model) {
  if (length <= model.max_position_embeddings) return "";
  return cli::flag_name("seq-length") + ": " + std::to_string(length) +
         " tokens are more than the model's context of " + std::to_string(model.max_position_embeddings);
}

namespace {

// Gives the parameters of the model at `path` their precisions, by the settings or, where they do not select linears,
// by `recorded`, unless that is null.
void set_precisions(const PrecisionConfig& precision, const ckpt::Checkpoint* recorded, const std::string& path,
                    std::vector<model::Parameter>& table) {
  model::PrecisionRules precisions = precision.selection;
  precisions.recipe = precision.recipe_or_null();
  for (const LinearRecipe& r : precision.linear_recipes)
    precisions.recipes.push_back({r.glob, &precision.variant_of(r.recipe)});
  model::assign_precisions(table, precisions);
  if (recorded != nullptr && precisions.filters.empty() && !precisions.auto_filter && !precisions.lm_head)
    model::read_precisions(*recorded, table);
  if (std::ranges::any_of(table, [](const auto& p) { return !p.trainable; })) check_unfused(precision);
  if (precision.fuse_projections) model::fuse_projections(table);
  const bool any = std::any_of(table.begin(), table.end(), [](const auto& p) { return p.fp8; });
  if (precisions.recipe == nullptr || any) return;
  const bool small = std::ranges::any_of(table, [](const auto& p) { return p.reason.ends_with("(auto-filter)"); });
  throw Error(path + ": no linear of this model can run in FP8 (" +
                  (small ? cli::flag_name("auto-filter") + " leaves out those that could" : "fp8-info shows why") +
                  "); use " + cli::flag_name("precision") + " bf16",
              Exit::fp8_missing);
}

}  // namespace

std::vector<model::Parameter> table_with_precisions(const hf::ModelConfig& model, const PrecisionConfig& precision,
                                                    const ckpt::Checkpoint& checkpoint,
                                                    const ckpt::Checkpoint& recorded) {
  std::vector<model::Parameter> table = model::parameter_table(model);
  if (checkpoint.kind() == ckpt::FileKind::quantized)  // codes have no gradients; other parameters stay as they are
    for (model::Parameter& p : table) p.trainable = p.trainable && p.role == model::ParameterRole::adapter;
  check_trainable(checkpoint, table);
  set_precisions(precision, &recorded, checkpoint.path(), table);
  check_codes_run(checkpoint, table);
  return table;
}

std::vector<model::Parameter> table_with_precisions(const hf::ModelConfig& model, const PrecisionConfig& precision,
                                                    const std::string& path, DType stored) {
  std::vector<model::Parameter> table = model::parameter_table(model);
  for (model::Parameter& p : table) p.stored = stored;
  set_precisions(precision, nullptr, path, table);
  return table;
}

void check_some_fp8(const std::vector<model::Parameter>& table, const PrecisionConfig& precision, bool backward) {
  const quant::Recipe* recipe = precision.recipe_or_null();
  if (recipe == nullptr) return;
  const bool any = std::ranges::any_of(table, [&](const model::Parameter& p) {
    return p.fp8 && (p.recipe != nullptr ? p.recipe : recipe)
                            ->fp8_gemms(backward ? p.gemms : quant::GemmSet{p.gemms.forward, false, false}) > 0;
  });
  if (!any)
    throw Error(cli::flag_name("fp8-gemms") + ": under recipe " + std::string(recipe->name) + " no GEMM " +
                    (backward ? "of a step" : "of a forward pass") + " runs in FP8; use " +
                    cli::flag_name("precision") + " bf16",
                Exit::fp8_missing);
}

const json::Value* recorded_phase(const ckpt::Checkpoint& checkpoint) {
  const json::Value& train = checkpoint.train();
  const json::Value* phase = train.is_object() ? train.as_object().find("phase") : nullptr;
  return phase != nullptr && phase->is_object() ? phase : nullptr;
}

bool has_scales_of(const ckpt::Checkpoint& checkpoint, const PrecisionConfig& precision) {
  const json::Value* phase = recorded_phase(checkpoint);
  if (phase == nullptr) return true;
  const json::Value now = phase_of(precision);
  return std::ranges::all_of(std::array{"fp8-format", "margin"}, [&](const char* name) {
    const json::Value *had = phase->as_object().find(name), *has = now.as_object().find(name);
    return had == nullptr || has == nullptr || *had == *has;
  });
}

std::vector<model::Parameter> active_table(std::vector<model::Parameter> table, const PrecisionConfig& precision) {
  if (precision.precision == Precision::fp8) return table;
  const std::string reason = cli::flag_name("precision") + " " + std::string(name_of(precision.precision));
  for (model::Parameter& p : table) {
    if (p.fp8) p.fp8 = false, p.reason = reason;
  }
  return table;
}

hf::ModelConfig config_to_train(const ckpt::Checkpoint& checkpoint, bool adapters) {
  hf::ModelConfig config = hf::parse_config(checkpoint.config(), checkpoint.path());
  if (checkpoint.kind() == ckpt::FileKind::quantized && !adapters && !config.lora)
    throw Error(checkpoint.path() + ": holds quantized weights, which cannot be trained; train adapters beside them " +
                "with " + cli::flag_name("lora-rank") + ", or dequantize it first: fp8-quantize " + checkpoint.path() +
                " --dequantize -o model.h5");
  return config;
}

void check_trainable(const ckpt::Checkpoint& checkpoint, std::vector<model::Parameter>& table) {
  const bool adapters = hf::parse_config(checkpoint.config(), checkpoint.path()).lora.has_value();
  std::vector<model::Parameter> held;
  for (const model::Parameter& p : table)
    if (adapters || p.role != model::ParameterRole::adapter) held.push_back(p);
  model::check_weights(checkpoint, held);
  for (model::Parameter& p : table) {
    const ckpt::TensorMeta* meta = checkpoint.find(std::string(ckpt::kWeights) + p.name);
    if (meta == nullptr) continue;  // a new adapter
    p.stored = meta->dtype;
    if (!trainable(p.stored) && (p.trainable || !is_coded(p.stored)))
      throw Error(checkpoint.path() + ": " + p.name + ": stored as " + std::string(dtype::name_of(p.stored)) +
                  ", which cannot be trained");
  }
  // Fused projections are one matrix of codes, or none.
  for (std::size_t i = 1; i < table.size(); ++i) {
    const model::Parameter &one = table[i - 1], &other = table[i];
    if (one.unit == other.unit && one.slot == other.slot && is_coded(one.stored) != is_coded(other.stored))
      throw Error(
          checkpoint.path() + ": " + one.name + " and " + other.name +
          ": one of them is stored as codes, the other is not; both have the same input, and need the same form");
  }
}

void check_moments(const ckpt::Checkpoint& checkpoint, const std::vector<model::Parameter>& table) {
  for (const shard::StateTensor& t : shard::state_tensors(table)) {
    if (t.weight) continue;
    const ckpt::TensorMeta& moment = checkpoint.at(t.name);
    const std::string what = checkpoint.path() + ": /" + moment.name;
    if (moment.shape != t.shape) throw Error(what + ": its shape is not that of the weight");
    if (!trainable(moment.dtype))
      throw Error(what + ": stored as " + std::string(dtype::name_of(moment.dtype)) + ", not f32 or bf16");
  }
}

}  // namespace fp8::settings
