// The commands of fp8-step, fp8-eval and fp8-inspect, and what the settings of each say together.
#include "fp8/settings/flags.h"

#include <algorithm>
#include <sstream>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/ckpt/find.h"
#include "fp8/json/json.h"
#include "fp8/model/record.h"
#include "fp8/settings/checks.h"
#include "fp8/settings/lora.h"
#include "fp8/settings/setting.h"
#include "rows.h"

namespace fp8::settings {
namespace {

using cli::flag_name;

cli::Command command_of(Tool tool, const char* name, std::string about, std::string example, const std::string& metavar,
                        const std::string& use) {
  cli::Command c;
  c.name = name;
  c.about = std::move(about);
  c.example = std::move(example);
  c.positionals = {cli::checkpoint_argument("model", metavar, "checkpoint " + use)};
  c.launched = true;
  c.flags = flags_of(tool);
  return c;
}

// The checkpoint, if it can be opened: without one the flags are printed as given.
std::optional<ckpt::Checkpoint> open_model(const std::string& model) {
  try {
    return model::open_checkpoint(model::resolve_checkpoint_argument(model));
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Sets the length of packed sequences in `flags` unless a length is given, which is compared with it. A token file that
// cannot be opened is reported by the run.
void set_packed_length(json::Value& flags, const RunConfig& config) {
  std::optional<data::TokenFile> tokens;
  try {
    tokens.emplace(config.data);
  } catch (const Error&) {
    return;
  }
  if (config.seq_length > 0) return data::check_length(*tokens, config.seq_length);
  if (const auto& packed = tokens->info().sequence_length) set_length(flags, *packed);
}

void check_exclusive(const Arguments& a, const char* one, const char* other) {
  if (a.has(one) && a.has(other)) throw Error(flag_name(one) + ": contradicts " + flag_name(other));
}

void check_run(const RunConfig& c, const Arguments& a) {
  if (const auto dropout = c.lora.dropout; dropout && static_cast<float>(*dropout) >= 1)
    throw Error(flag_name("lora-dropout") + ": " +
                (*dropout < 1 ? format_double(*dropout) + " is 1 in f32, which" : "1") + " leaves out everything");
  if (c.paranoid > 0 && !c.precision.execution.attention.deterministic)
    throw Error(flag_name("paranoid") + ": contradicts " + flag_name("no-deterministic"));
  if (c.sample_prompt && !a.has_value("sample-every"))
    throw Error(flag_name("sample-prompt") + ": needs " + flag_name("sample-every"));
}

// The precision that `list` sets, flags separated by blanks; it is the value of `flag`, with whose name errors begin.
PrecisionSide precision_side(const std::string& flag, const std::string& list) {
  cli::Command command;
  command.flags = flags_of(kSide);
  std::istringstream in(list);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  try {
    const Arguments a = cli::parse(command, words);
    Config c;
    read_settings(a, kSide, c);
    return {list, c.precision, c.device};
  } catch (const Error& e) {
    throw Error(flag_name(flag) + ": " + e.what(), e.code());
  }
}

// The recipes to compute: the names in the last value of --recipe that has some, where `all` is every recipe that the
// other settings allow; and GLOB=NAME of all values. bf16 is one of them if `plain`.
void read_recipes(const Arguments& a, bool plain, PrecisionConfig& precision, Recipes& c) {
  std::vector<std::string> lists{"all"};
  if (plain) lists.emplace_back(kPlainRecipe);
  const bool hopper = precision.accumulation != gemm::Accumulation::f32;
  for (const std::string& list : a.list("recipe")) {
    std::vector<std::string> names;
    for (const std::string& part : parts_of({list})) {
      if (part == "all") {
        c.all_recipes = true;
        for (const quant::Recipe& r : quant::recipes())
          if (!(hopper && r.emulated_everywhere())) names.emplace_back(r.name);
      } else if (!add_linear_recipe(part, precision)) {
        names.push_back(known_recipe(part, "recipe", lists));
      }
    }
    if (!names.empty()) c.recipes = std::move(names);
  }
  if (c.recipes.empty()) c.recipes = {precision.recipe};
  for (auto name = c.recipes.begin(); name != c.recipes.end();)  // once each
    name = std::find(c.recipes.begin(), name, *name) != name ? c.recipes.erase(name) : name + 1;
  precision.recipe = c.recipes.front() == kPlainRecipe ? c.recipes.back() : c.recipes.front();
  if (precision.recipe == kPlainRecipe)
    throw Error(flag_name("recipe") + ": bf16: is to be compared with a recipe; alone it is " + flag_name("precision") +
                " bf16");
}

// Throws Error for flags that have no effect on a bisection, whose sides have flags of precision of their own.
void check_bisection(const Arguments& a) {
  const bool bisects = a.has("bisect");
  if (bisects != a.has("against"))
    throw Error(flag_name(bisects ? "bisect" : "against") + ": needs " + flag_name(bisects ? "against" : "bisect"));
  if (!bisects && a.has("bound")) throw Error(flag_name("bound") + ": needs " + flag_name("bisect"));
  if (!bisects) return;
  for (const cli::Flag& flag : flags_of(kSide))
    if (flag.name != "precision" && a.has(flag.name))
      throw Error(flag_name(flag.name) + ": not together with " + flag_name("bisect") +
                  "; its lists of flags may have it");
  for (const char* flag :
       {"layers", "blocks", "routes", "sensitivity", "batches", "recommend", "recommend-recipe", "top", "output"})
    if (a.has(flag)) throw Error(flag_name(flag) + ": not together with " + flag_name("bisect"));
}

// Throws Error for flags that do not fit --sensitivity and --recommend, of which `c` has the values.
void check_recommendation(const Arguments& a, InspectConfig& c) {
  constexpr std::int64_t kRowsBesideAnswer = 10;
  if (c.recommend && !a.has("top")) c.top = kRowsBesideAnswer;
  if (c.recommend && (c.output.empty() || c.recipes.size() > 1))
    throw Error(flag_name("recommend") + (c.output.empty() ? ": needs --output FILE" : ": needs one recipe"));
  for (const char* flag : {"output", "recommend-recipe"})
    if (!c.recommend && a.has(flag)) throw Error(flag_name(flag) + ": needs " + flag_name("recommend"));
  if (a.has("batches") && !c.sensitivity && !c.recommend)
    throw Error(flag_name("batches") + ": needs " + flag_name("sensitivity") + " or " + flag_name("recommend"));
  if (c.recommend_recipe.empty()) return;
  if (known_recipe(c.recommend_recipe, "recommend-recipe") == c.precision.recipe && c.precision.linear_recipes.empty())
    throw Error(flag_name("recommend-recipe") + ": " + c.recommend_recipe + ": every linear has this recipe already");
  PrecisionConfig other = c.precision;
  other.linear_recipes.push_back({"*", c.recommend_recipe});
  check_precision(other);
}

// Whether a file is YAML or TOML by its name, as the configurations of other trainers are.
bool has_suffix_of_others(const std::string& path) {
  return path.ends_with(".yaml") || path.ends_with(".yml") || path.ends_with(".toml");
}

// Whether a name is none of the flags, also with a hyphen for each underscore. The names of DeepSpeed, LLaMA-Factory
// and transformers have underscores, those of flags have none.
bool has_key_of_others(const cli::Command& command, const json::Value& config) {
  return std::ranges::any_of(config.as_object(), [&](const json::Member& member) {
    std::string name(member.key);
    if (name.find('_') == std::string::npos) return false;
    std::ranges::replace(name, '_', '-');
    return std::ranges::find(command.flags, name, &cli::Flag::name) == command.flags.end();
  });
}

}  // namespace

cli::Command step_command() {
  return command_of(kStep, "fp8-step", "train a model: sharded optimizer steps in fp32, bf16 or FP8",
                    "mpirun -n 2 fp8-step model.h5 --data data.h5 --out run --steps 100 --precision fp8", "MODEL",
                    "whose weights to start from");
}

RunConfig step_config(const Arguments& a) {
  check_exclusive(a, "steps", "epochs");
  check_exclusive(a, "warmup-steps", "warmup-ratio");
  RunConfig c;
  read_settings(a, kStep, c);
  check_run(c, a);
  if (c.stats_every > 0) c.precision.given.emplace_back("tensor-stats-every");
  c.rolling = !a.has("save-every") && !a.has("keep");
  if (a.has("config")) c.config_file = a.text("config");
  return c;
}

cli::Arguments with_config(const cli::Command& command, cli::Arguments arguments) {
  if (!arguments.has("config")) return arguments;
  const std::string path = arguments.text("config");
  const json::Limits limits{.max_depth = 16, .max_bytes = std::size_t{1} << 24U};
  bool other = has_suffix_of_others(path);
  try {
    const json::Value config = json::parse_object_file(path, "a configuration", limits);
    other = other || has_key_of_others(command, config);
    cli::parse_config(command, config, arguments, path);
  } catch (const Error& e) {
    if (!other) throw;
    throw Error(std::string(e.what()) + "; fp8-import reads configurations of other trainers", e.code(), e.hints());
  }
  return arguments;
}

json::Value printed_config(const RunConfig& config) {
  PrecisionConfig resolved = config.precision;
  std::vector<std::string> notes;  // which the run prints
  if (!config.out.empty())
    if (const auto newest = ckpt::Finder(config.out, ckpt::Which::last, {}).next())
      continue_precision(resolved, *newest, notes);
  // Standard input is read once, by the run.
  if (const auto checkpoint = config.model == "-" ? std::nullopt : open_model(config.model)) {
    const hf::ModelConfig model = hf::parse_config(checkpoint->config(), checkpoint->path());
    if (config.lora.wanted() || model.lora) take_recipe_of_codes(resolved, *checkpoint, model::parameter_table(model));
  } else if (config.model != "-") {
    check_new_adapters(config.lora);
  }
  check_fp8_flags(resolved);
  check_precision(resolved);
  json::Value flags = config.flags;
  set_resolved(flags, config.precision, resolved);
  if (!config.data.empty()) set_packed_length(flags, config);
  return flags;
}

cli::Command eval_command() {
  return command_of(kEval, "fp8-eval", "loss and perplexity of a checkpoint on a token file",
                    "fp8-eval run/step-00000100 --data data.h5", "CHECKPOINT", "to evaluate");
}

EvalConfig eval_config(const Arguments& a) {
  EvalConfig c;
  read_settings(a, kEval, c);
  read_recipes(a, true, c.precision, c);
  return c;
}

cli::Command inspect_command() {
  return command_of(kInspect, "fp8-inspect", "what FP8 does to each linear of a model on a batch",
                    "fp8-inspect run/step-00000100 --data data.h5 --recipe tensorwise,rowwise", "CHECKPOINT",
                    "to inspect");
}

InspectConfig inspect_config(const Arguments& a) {
  check_bisection(a);
  InspectConfig c;
  read_settings(a, kInspect, c);
  c.precision.precision = Precision::fp8;
  read_recipes(a, false, c.precision, c);
  check_recommendation(a, c);
  if (a.has("routes")) {
    known_recipe(c.routes, "routes", {kPlainRecipe, kExactRecipe});
    check_precision(precision_of_routes(c));
  }
  if (a.has("bisect"))
    c.bisection = {precision_side("bisect", a.text("bisect")), precision_side("against", a.text("against")),
                   a.has("bound") ? std::optional(a.real("bound")) : std::nullopt};
  return c;
}

cli::Command plan_command() {
  cli::Command c =
      command_of(kPlan, "fp8-plan", "memory, speed and communication of a run on ranks that need not exist",
                 "fp8-plan llama3-8b --machine h100-sxm --ranks 8", "MODEL|CONFIG.json|PRESET", "to plan for");
  c.positionals.front().help = "checkpoint, configuration, folder of Hugging Face, or name of a preset";
  c.launched = false;
  return c;
}

PlanConfig plan_config(const Arguments& a) {
  PlanConfig c;
  c.model = a.positional("model");
  read_settings(a, kPlan, c);
  check_lora_settings(c);
  if (a.has("recipe") && c.precision.precision != Precision::fp8)
    throw Error(flag_name("recipe") + ": contradicts " + flag_name("precision") + " " +
                std::string(name_of(c.precision.precision)));
  if (c.require_gain && c.precision.precision != Precision::fp8)
    throw Error(flag_name("require-gain") + ": needs a recipe");
  if (c.precision.precision == Precision::fp8)
    read_recipes(a, true, c.precision, c);
  else
    c.recipes = {std::string(name_of(c.precision.precision))};
  return c;
}

std::string step_flags(const RunConfig& config) {
  const RunConfig defaults;
  std::string text;
  for (const Setting& s : all_settings()) {
    const bool planned = std::ranges::any_of(
        all_settings(), [&](const Setting& p) { return (p.tools & kPlan) != 0 && p.flag.name == s.flag.name; });
    if ((s.tools & kStep) == 0 || !planned || !s.value || s.flag.name == "force") continue;
    const json::Value value = s.value(config);
    if (value == s.value(defaults)) continue;
    const auto one = [&](const json::Value& v) {
      text += " " + flag_name(s.flag.name) + " " + (v.is_string() ? v.as_string() : json::dump(v));
    };
    if (value.is_bool()) {
      text += " " + flag_name((value.as_bool() ? "" : "no-") + s.flag.name);
    } else if (value.is_array()) {
      for (const json::Value& v : value.as_array()) one(v);
    } else if (!value.is_null()) {
      one(value);
    }
  }
  return text;
}

}  // namespace fp8::settings
