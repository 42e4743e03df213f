#include "flags.h"

#include <algorithm>
#include <array>

#include "fp8/base/error.h"
#include "fp8/base/text.h"

namespace fp8::judge {
namespace {

using cli::Flag;
using cli::FlagKind;

constexpr const char* kAll = "all";

constexpr std::array<std::pair<const char*, Form>, 5> kForms{{{"auto", Form::automatic},
                                                              {"jsonl", Form::plain},
                                                              {"nemo-rl", Form::nemo_rl},
                                                              {"vllm", Form::vllm},
                                                              {"sglang", Form::sglang}}};

std::vector<std::string> with_all(std::vector<std::string> names) {
  names.insert(names.begin(), kAll);
  return names;
}

std::vector<Flag> input_flags() {
  std::vector<std::string> forms;
  for (const auto& [name, form] : kForms) forms.emplace_back(name);
  return {{.name = "from",
           .kind = FlagKind::choice,
           .metavar = "FORM",
           .default_text = "auto",
           .help = "form of ROLLOUTS: the plain form, or what NeMo-RL, vLLM or SGLang write (auto: by their members)",
           .choices = std::move(forms)},
          {.name = "trainer", .help = "judge the log-probabilities of the trainer (NeMo-RL), not of the server"},
          {.name = "sequences",
           .kind = FlagKind::integer,
           .metavar = "N",
           .help = "judge only the first N sequences [all]",
           .min = 1,
           .max = 1e15}};
}

std::vector<Flag> candidate_flags() {
  return {{.name = "recipe",
           .kind = FlagKind::list,
           .metavar = "NAME,...",
           .default_text = kAll,
           .help = "recipes to compute beside fp32 and bf16, see fp8-recipes(7); NAME/server has scales that are not "
                   "powers of two; all: those that fit the model",
           .suggestions = with_all(candidate_recipes())},
          {.name = "also",
           .kind = FlagKind::list,
           .metavar = "CHECKPOINT,...",
           .help = "other checkpoints, with which each precision is computed too"},
          {.name = "batch-size",
           .kind = FlagKind::integer,
           .metavar = "N",
           .default_text = "1",
           .help = "successive sequences of equal length that are computed together; scales of tensors depend on it",
           .min = 1,
           .max = 1e6},
          {.name = "device",
           .kind = FlagKind::choice,
           .metavar = "NAME",
           .default_text = "auto",
           .help = "device to compute on (auto: GPUs if every rank has one, otherwise the CPU)",
           .choices = {"auto", "cpu", "cuda"}}};
}

std::vector<Flag> output_flags() {
  return {{.name = "worst",
           .kind = FlagKind::integer,
           .metavar = "N",
           .default_text = "0",
           .help = "print the N tokens of each candidate with the largest difference",
           .min = 0,
           .max = 1e6},
          {.name = "gate",
           .kind = FlagKind::text,
           .metavar = "NAME|X",
           .help = "status 1 if a figure is beyond the bar of nemo-rl, prime-rl or verl, or k3 is above X [no gate]",
           .suggestions = {"nemo-rl", "prime-rl", "verl"}},
          {.name = "plot",
           .kind = FlagKind::path,
           .metavar = "FILE",
           .help = "draw k3 by position and by probability of the token, as .svg or .png"},
          cli::force_flag(),
          cli::json_flag(),
          {.name = "timeout",
           .kind = FlagKind::integer,
           .metavar = "SECONDS",
           .default_text = "600",
           .help = "seconds that a collective may wait for a rank; 0: no limit",
           .min = 0,
           .max = 1e15}};
}

// The parts of lists, which are separated by commas.
std::vector<std::string> parts_of(const std::vector<std::string>& lists, const std::string& flag) {
  std::vector<std::string> parts;
  for (const std::string& list : lists)
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      parts.push_back(list.substr(begin, end - begin));
      if (parts.back().empty()) throw Error(cli::flag_name(flag) + ": '" + excerpt(list) + "': a name is empty");
      begin = end + 1;
    }
  return parts;
}

void read_recipes(const cli::Arguments& a, JudgeConfig& config) {
  const std::vector<std::string> known = candidate_recipes();
  for (const std::string& name : parts_of(a.list("recipe"), "recipe")) {
    if (name == kAll) {
      config.all_recipes = true;
      config.recipes = known;
      return;
    }
    if (name == "bf16" || name == "fp32") continue;  // always candidates
    if (std::ranges::find(known, name) == known.end())
      throw Error(cli::flag_name("recipe") + ": '" + excerpt(name) + "' is unknown" + cli::did_you_mean(name, known));
    if (std::ranges::find(config.recipes, name) == config.recipes.end()) config.recipes.push_back(name);
  }
}

}  // namespace

cli::Command command() {
  cli::Command c;
  c.name = "fp8-judge";
  c.about = "which precision, temperature or checkpoint made these log-probabilities";
  c.example = "fp8-judge model.h5 train_data_step12.jsonl --gate nemo-rl";
  c.positionals = {cli::checkpoint_argument("model", "MODEL", "checkpoint that the server should have"),
                   {.name = "rollouts",
                    .metavar = "ROLLOUTS",
                    .help = "files of token ids with log-probabilities, as JSON Lines",
                    .repeated = true}};
  c.launched = true;
  const auto add = [&](std::vector<Flag> flags, const char* group) {
    for (Flag& flag : flags) {
      flag.group = group;
      c.flags.push_back(std::move(flag));
    }
  };
  add(input_flags(), "Rollouts");
  add(candidate_flags(), "Candidates");
  add(output_flags(), "Output");
  return c;
}

JudgeConfig config_of(const cli::Arguments& a) {
  JudgeConfig c;
  c.model = a.positional("model");
  c.rollouts = a.positionals("rollouts");
  if (std::ranges::find(c.rollouts, "-") != c.rollouts.end())
    throw Error("ROLLOUTS: -: each candidate reads the rollouts again, which a pipe cannot; write them to a file");
  const std::string form = a.text("from");
  for (const auto& [name, value] : kForms)
    if (form == name) c.form = value;
  c.trainer = a.flag("trainer");
  if (a.has("sequences")) c.sequences = a.integer("sequences");
  read_recipes(a, c);
  if (a.has("also")) c.also = parts_of(a.list("also"), "also");
  c.batch_size = a.integer("batch-size");
  const std::string device = a.text("device");
  if (device != "auto") c.device = device == "cpu" ? device::DeviceType::host : device::DeviceType::cuda;
  c.worst = a.integer("worst");
  if (a.has("gate")) c.gate = gate_of(a.text("gate"));
  if (a.has("plot")) c.plot = a.text("plot");
  c.force = a.flag("force");
  return c;
}

}  // namespace fp8::judge
