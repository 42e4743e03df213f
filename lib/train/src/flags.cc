// Flags of fp8-step, fp8-eval and fp8-inspect.
#include "fp8/train/flags.h"

#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "make_flags.h"
#include "precision_flags.h"

namespace fp8::train {
namespace {

using cli::Flag;
using cli::FlagKind;

constexpr cli::Interval kDefaultInterval{0, std::int64_t{30} * 60};  // between checkpoints

std::vector<std::string> schedule_choices() {
  std::vector<std::string> names;
  for (const std::string_view n : optim::schedule_names()) names.emplace_back(n);
  return names;
}

Flag documents_flag(const std::string& group) {
  return choice("documents", "auto", {"auto", "joined", "separate"},
                "documents in a sequence: separate ones do not attend to each other (auto: separate if the file has a "
                "mask or packed sequences, otherwise joined)",
                group);
}

Flag any_tokenizer_flag(const std::string& group) {
  return toggle("any-tokenizer", "", "accept data made with another tokenizer than the model's", group);
}

void add_data(std::vector<Flag>& flags) {
  const std::string g = "Model and data";
  flags.push_back(path("data", "FILE", "token file to train on, from fp8-tokenize(1)", g));
  flags.push_back(path("eval-data", "FILE", "token file to evaluate on during the run [none]", g));
  flags.push_back(any_tokenizer_flag(g));
  flags.push_back(whole("seq-length", "", 1, "tokens in a sequence [the model's context, 1024 at most]", g));
  flags.push_back(whole("batch-size", "8", 1, "sequences in a micro-batch of one rank", g));
  flags.push_back(whole("grad-accumulation", "1", 1, "micro-batches that each rank computes per step", g));
  flags.push_back(choice("sampler", "shuffle", {"shuffle", "sequential"}, "order in which sequences are read", g));
  flags.push_back(documents_flag(g));
  flags.push_back(
      whole("steps", "", 1, "optimizer steps of the whole run, and length of the learning rate schedule", g));
  flags.push_back(
      real("epochs", "", 1e-9, 1e9, "length of the whole run in passes over the data, instead of --steps", g));
  flags.push_back(
      whole("until-step", "", 1, "step after which to save and stop; the schedule does not change [the last step]", g));
  flags.push_back(whole("seed", "0", 0, "seed of the sampler and of stochastic rounding", g));
}

void add_optimizer(std::vector<Flag>& flags) {
  const std::string g = "Optimizer";
  flags.push_back(real("lr", "3e-4", 0, 1e6, "learning rate after warmup", g));
  flags.push_back(choice("schedule", "cosine", schedule_choices(), "shape of the learning rate after warmup", g));
  flags.push_back(whole("warmup-steps", "0", 0, "steps over which the learning rate grows linearly", g));
  flags.push_back(
      real("warmup-ratio", "", 0, 1, "length of the warmup as a share of all steps, instead of --warmup-steps", g));
  flags.push_back(real("min-lr", "0", 0, 1e6, "learning rate at the last step", g));
  flags.push_back(
      whole("decay-steps", "0", 0, "steps at the end over which schedule wsd decreases the learning rate", g));
  flags.push_back(real("weight-decay", "0.1", 0, 1e6,
                       "weight decay of tensors with two or more dimensions, per unit of learning rate", g));
  flags.push_back({.name = "betas",
                   .kind = FlagKind::text,
                   .metavar = "B1,B2",
                   .default_text = "0.9,0.95",
                   .help = "decay rates of the moment estimates (AdamW beta1, beta2)",
                   .group = g});
  flags.push_back(real("eps", "1e-8", 0, 1, "number added to the square root of the second moment (AdamW epsilon)", g));
  flags.push_back(
      real("clip", "1.0", 0, 1e9, "largest norm of the gradient, which is scaled down to it; 0: no clipping", g));
  flags.push_back(
      choice("master", "fp32", {"fp32", "bf16"}, "format of the master weights (bf16: rounded stochastically)", g));
  flags.push_back(
      choice("moments", "fp32", {"fp32", "bf16"}, "format of AdamW's moments (bf16: rounded stochastically)", g));
}

void add_lora(std::vector<Flag>& flags) {
  const std::string g = "Adapters (LoRA)";
  flags.push_back(whole("lora-rank", "", 1, "train adapters of this rank beside linears, and freeze the model", g));
  flags.back().max = 65536;
  flags.push_back(real("lora-alpha", "", 1e-6, 1e6, "scaling of new adapters, times the rank [twice the rank]", g));
  flags.push_back(
      {.name = "lora-targets",
       .kind = FlagKind::list,
       .metavar = "GLOB,...",
       .help = "linears that get an adapter, by full name or its last part; all: every one of the layers [all]",
       .suggestions = {kAllTargets, "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
       .group = g});
  flags.push_back(
      real("lora-dropout", "", 0, 1, "probability that an input of an adapter is left out in training [0]", g));
  flags.push_back(toggle("rslora", "", "divide --lora-alpha by the square root of the rank, not by the rank", g));
  flags.push_back(
      path("lora", "FOLDER", "start from the PEFT adapter in a folder, with its rank, alpha and targets", g));
}

Flag timeout_flag(std::string group) {
  Flag f = whole("timeout", "600", 0, "seconds that a collective may wait for a rank; 0: no limit", std::move(group));
  f.metavar = "SECONDS";
  return f;
}

Flag json_on_terminals() {
  Flag f = cli::json_flag();
  f.help = "print JSON Lines on a terminal too, instead of a readable line for each record";
  return f;
}

void add_sharding(std::vector<Flag>& flags) {
  const std::string g = "Sharding and memory";
  flags.push_back(
      {.name = "zero",
       .kind = FlagKind::choice,
       .metavar = "STAGE",
       .default_text = "3",
       .help = "what is sharded over ranks (1: master weights and moments, 2: also gradients, 3: also compute weights)",
       .choices = {"1", "2", "3"},
       .group = g});
  flags.push_back(toggle("reshard-after-forward", "on",
                         "with --zero 3: reshard weights after forward and gather them again for backward", g));
  flags.push_back(toggle("deterministic", "on",
                         "compute attention on a GPU with equal bits in every run, which takes memory and time", g));
  flags.push_back(choice("recompute", "none", {"none", "selective", "full"},
                         "activations that backward recomputes instead of keeping them", g));
}

void add_saving_and_reports(std::vector<Flag>& flags) {
  const std::string s = "Saving and watching";
  flags.push_back(path("out", "FOLDER", "folder for checkpoints and log.jsonl; an unfinished run in it is resumed", s));
  flags.push_back({.name = "save-every",
                   .kind = FlagKind::interval,
                   .metavar = "N|TIME",
                   .help = "steps or time (90s, 30m, 2h) between checkpoints; 0: only the last step [30m]",
                   .group = s});
  flags.push_back(whole("keep", "", 0, "newest checkpoints to keep; 0: all [all; 2 if --save-every is not given]", s));
  flags.push_back(
      whole("milestone-every", "0", 0, "steps between checkpoints that --keep neither removes nor counts; 0: none", s));
  flags.push_back(toggle("keep-best", "",
                         "keep also the checkpoint with the lowest loss on --eval-data, evaluated at every save", s));
  flags.push_back(toggle("async-save", "",
                         "write checkpoints in the background; needs memory for a copy of weights and moments", s));
  flags.push_back(whole("log-every", "1", 1, "steps between step records", s));
  flags.push_back(
      whole("eval-every", "0", 0, "steps between evaluations on --eval-data, and at the last step; 0: none", s));
  flags.push_back(whole("eval-batches", "0", 0, "batches that each rank reads per evaluation; 0: the whole file", s));
  flags.push_back(
      whole("sample-every", "", 0, "steps between texts that the model generates, and at the last step; 0: none", s));
  flags.push_back(text("sample-prompt", "TEXT", "text that the model continues for --sample-every", s));
  flags.push_back(whole("sample-tokens", "64", 1, "most new tokens of a text of --sample-every", s));
  flags.push_back(whole("tensor-stats-every", "0", 0,
                        "steps between statistics of FP8 operands, which are written to tensors.jsonl; 0: none", s));
  flags.push_back(whole("paranoid", "0", 0, "steps between steps that are computed twice and compared; 0: none", s));
  flags.push_back(timeout_flag(s));
  flags.push_back(text("profile", "STEPS",
                       "steps to measure, as 3 or 3-5: a table of the time by kind of work, and a trace file", s));
  Flag config =
      path("config", "FILE", "JSON object of flag names and values; flags on the command line override it", s);
  config.in_config = false;
  Flag print = toggle("print-config", "", "write the resolved configuration to standard output and exit", s);
  print.in_config = false;
  flags.push_back(config);
  flags.push_back(print);
  flags.push_back({.name = "change",
                   .kind = FlagKind::list,
                   .metavar = "NAME,...",
                   .help = "settings that may differ from those of the run in --out, such as lr,batch,data",
                   .suggestions = {changeable_settings().begin(), changeable_settings().end()},
                   .group = s,
                   .in_config = false});
  flags.push_back(cli::dry_run_flag());
  flags.push_back(json_on_terminals());
}

dtype::DType stored(const std::string& name) { return name == "bf16" ? dtype::DType::bf16 : dtype::DType::f32; }

void read_betas(const std::string& betas, optim::Settings& s) {
  const std::size_t comma = betas.find(',');
  const auto b1 = parse_double(betas.substr(0, comma));
  const auto b2 = comma == std::string::npos ? std::nullopt : parse_double(betas.substr(comma + 1));
  if (!b1 || !b2 || *b1 < 0 || *b1 >= 1 || *b2 < 0 || *b2 >= 1)
    throw Error(flag_name("betas") + ": " + betas + ": needs two numbers from 0 up to, not including, 1");
  s.beta1 = static_cast<float>(*b1);
  s.beta2 = static_cast<float>(*b2);
}

void read_profile(const std::string& steps, RunConfig& c) {
  const std::size_t dash = steps.find('-');
  const auto first = parse_int64(steps.substr(0, dash));
  const auto last = dash == std::string::npos ? first : parse_int64(steps.substr(dash + 1));
  if (!first || !last || *first < 1 || *last < *first)
    throw Error(flag_name("profile") + ": " + steps + ": needs a step or two, as 3-5, counted from 1");
  c.profile_first = *first;
  c.profile_last = *last;
}

// The parts of all lists, which are separated by commas.
std::vector<std::string> parts_of(const std::vector<std::string>& lists) {
  std::vector<std::string> parts;
  for (const std::string& list : lists) {
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t end = std::min(list.find(',', begin), list.size());
      parts.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return parts;
}

std::vector<std::string> read_changes(const std::vector<std::string>& lists) {
  const auto known = changeable_settings();
  std::vector<std::string> names;
  for (const std::string& part : parts_of(lists)) {
    names.push_back(setting_name(part));
    if (std::find(known.begin(), known.end(), names.back()) != known.end()) continue;
    std::string all;
    for (const std::string_view name : known) all += (all.empty() ? "" : ", ") + std::string(name);
    throw Error(flag_name("change") + ": '" + excerpt(names.back()) + "' is not one of " + all);
  }
  return names;
}

LoraSettings lora_of(const cli::Arguments& a) {
  LoraSettings s;
  if (a.has_value("lora-rank")) s.rank = a.integer("lora-rank");
  if (a.has_value("lora-alpha")) s.alpha = a.real("lora-alpha");
  s.targets = parts_of(a.list("lora-targets"));
  if (a.has_value("lora-dropout")) s.dropout = a.real("lora-dropout");
  if (s.dropout && static_cast<float>(*s.dropout) >= 1)
    throw Error(flag_name("lora-dropout") + ": " +
                (*s.dropout < 1 ? format_double(*s.dropout) + " is 1 in f32, which" : "1") + " leaves out everything");
  s.rslora = a.flag("rslora");
  if (a.has_value("lora")) s.folder = a.text("lora");
  return s;
}

optim::Schedule schedule_of(const cli::Arguments& a) {
  optim::Schedule s;
  const std::string name = a.text("schedule");
  const auto names = optim::schedule_names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) s.kind = static_cast<optim::ScheduleKind>(i);
  }
  s.lr = a.real("lr");
  s.min_lr = a.real("min-lr");
  s.warmup = a.integer("warmup-steps");
  s.decay_steps = a.integer("decay-steps");
  return s;
}

void read_saving(const cli::Arguments& a, RunConfig& c) {
  const cli::Interval every = a.has("save-every") ? a.interval("save-every") : kDefaultInterval;
  c.save_every = every.count;
  c.save_seconds = static_cast<double>(every.seconds);
  c.rolling = !a.has("save-every") && !a.has("keep");
  c.keep = a.has("keep") ? a.integer("keep") : 0;
}

template <class T>
T or_zero(const cli::Arguments& a, const char* name, T (cli::Arguments::*get)(std::string_view) const) {
  return a.has_value(name) ? (a.*get)(name) : T{};
}

void check_exclusive(const cli::Arguments& a, const char* one, const char* other) {
  if (a.has(one) && a.has(other)) throw Error(flag_name(one) + ": contradicts " + flag_name(other));
}

// fp8-inspect measures each projection alone.
Flag fuse_flag() {
  return toggle("fuse-projections", "", "compute q, k, v as one FP8 linear, and gate, up: fewer GEMMs, other numbers",
                device_flag().group);
}

}  // namespace

std::string flag_name(std::string_view setting) { return "--" + std::string(setting); }

cli::Command step_command() {
  cli::Command c;
  c.name = "fp8-step";
  c.about = "train a model: sharded optimizer steps in fp32, bf16 or FP8";
  c.example = "mpirun -n 2 fp8-step model.h5 --data data.h5 --out run --steps 100 --precision fp8";
  c.positionals = {{.name = "model",
                    .metavar = "MODEL",
                    .help = "checkpoint whose weights to start from; -: read a checkpoint record from standard input"}};
  c.launched = true;
  add_data(c.flags);
  add_precision(c.flags);
  c.flags.push_back(fuse_flag());
  add_optimizer(c.flags);
  add_lora(c.flags);
  add_sharding(c.flags);
  add_saving_and_reports(c.flags);
  return c;
}

RunConfig step_config(const cli::Arguments& a) {
  check_exclusive(a, "steps", "epochs");
  check_exclusive(a, "warmup-steps", "warmup-ratio");
  RunConfig c;
  c.data = a.text("data");
  c.out = a.text("out");
  c.any_tokenizer = a.flag("any-tokenizer");
  c.eval_data = a.has_value("eval-data") ? a.text("eval-data") : "";
  c.seq_length = or_zero(a, "seq-length", &cli::Arguments::integer);
  c.batch_size = a.integer("batch-size");
  c.grad_accumulation = a.integer("grad-accumulation");
  c.sampler = *data::parse_sampler(a.text("sampler"));
  c.documents = *data::parse_documents(a.text("documents"));
  c.steps = or_zero(a, "steps", &cli::Arguments::integer);
  c.epochs = or_zero(a, "epochs", &cli::Arguments::real);
  c.until_step = or_zero(a, "until-step", &cli::Arguments::integer);
  c.seed = static_cast<std::uint64_t>(a.integer("seed"));
  c.change = read_changes(a.list("change"));
  c.precision = fused_precision_of(a);
  c.device = device_of(a);
  read_betas(a.text("betas"), c.optimizer);
  c.optimizer.eps = static_cast<float>(a.real("eps"));
  c.optimizer.weight_decay = static_cast<float>(a.real("weight-decay"));
  c.schedule = schedule_of(a);
  c.warmup_ratio = or_zero(a, "warmup-ratio", &cli::Arguments::real);
  c.clip = a.real("clip");
  c.lora = lora_of(a);
  c.master = stored(a.text("master"));
  c.moments = stored(a.text("moments"));
  c.zero = std::stoi(a.text("zero"));
  c.reshard_after_forward = a.flag("reshard-after-forward");
  const std::string recompute = a.text("recompute");
  c.recompute = recompute == "full"        ? model::Recompute::full
                : recompute == "selective" ? model::Recompute::selective
                                           : model::Recompute::none;
  read_saving(a, c);
  c.milestone_every = a.integer("milestone-every");
  c.keep_best = a.flag("keep-best");
  c.async_save = a.flag("async-save");
  c.log_every = a.integer("log-every");
  c.precision.attention.deterministic = a.flag("deterministic");
  c.paranoid = a.integer("paranoid");
  if (c.paranoid > 0 && !c.precision.attention.deterministic)
    throw Error(flag_name("paranoid") + ": contradicts " + flag_name("no-deterministic"));
  c.eval_every = a.integer("eval-every");
  c.eval_batches = a.integer("eval-batches");
  c.sample_every = or_zero(a, "sample-every", &cli::Arguments::integer);
  if (a.has_value("sample-prompt")) c.sample_prompt = a.text("sample-prompt");
  if (c.sample_prompt && !a.has_value("sample-every"))
    throw Error(flag_name("sample-prompt") + ": needs " + flag_name("sample-every"));
  c.sample_tokens = a.integer("sample-tokens");
  c.stats_every = a.integer("tensor-stats-every");
  if (c.stats_every > 0) c.precision.given.emplace_back("tensor-stats-every");
  if (a.has_value("profile")) read_profile(a.text("profile"), c);
  c.dry_run = a.flag("dry-run");
  return c;
}

namespace {

// The data of an evaluation and of an inspection.
void add_eval_data(std::vector<Flag>& flags, const std::string& g) {
  flags.push_back(path("data", "FILE", "token file, from fp8-tokenize(1)", g));
  flags.push_back(any_tokenizer_flag(g));
  flags.push_back(whole("seq-length", "", 1, "tokens in a sequence [the model's context, 1024 at most]", g));
  flags.push_back(whole("batch-size", "8", 1, "sequences in a batch of one rank", g));
  flags.push_back(documents_flag(g));
}

void read_eval_data(const cli::Arguments& a, EvalConfig& c) {
  c.data = a.text("data");
  c.any_tokenizer = a.flag("any-tokenizer");
  c.seq_length = or_zero(a, "seq-length", &cli::Arguments::integer);
  c.batch_size = a.integer("batch-size");
  c.documents = *data::parse_documents(a.text("documents"));
  c.device = device_of(a);
}

// Recipes of a list: names, or all, which is every recipe that the other settings allow.
std::vector<std::string> recipes_of(const std::string& list, const PrecisionConfig& precision) {
  const bool hopper = precision.accumulation != gemm::Accumulation::f32;
  std::vector<std::string> names;
  for (const std::string& name : parts_of({list})) {
    if (name != "all") names.emplace_back(quant::find_recipe(name).name);
    for (const quant::Recipe& r : quant::recipes())
      if (name == "all" && !(hopper && r.scale_rule == quant::ScaleRule::mx)) names.emplace_back(r.name);
  }
  return names;
}

}  // namespace

cli::Command eval_command() {
  cli::Command c;
  c.name = "fp8-eval";
  c.about = "loss and perplexity of a checkpoint on a token file";
  c.example = "fp8-eval run/step-00000100 --data data.h5";
  c.positionals = {{.name = "model",
                    .metavar = "CHECKPOINT",
                    .help = "checkpoint to evaluate; -: read a checkpoint record from standard input"}};
  c.launched = true;
  const std::string g = "Data";
  add_eval_data(c.flags, g);
  c.flags.push_back(toggle("per-token", "", "print a record with the loss of every token for each sequence", g));
  c.flags.push_back(timeout_flag(g));
  c.flags.push_back(json_on_terminals());
  add_precision(c.flags);
  c.flags.push_back(fuse_flag());
  return c;
}

EvalConfig eval_config(const cli::Arguments& a) {
  EvalConfig c;
  read_eval_data(a, c);
  c.precision = fused_precision_of(a);
  c.per_token = a.flag("per-token");
  return c;
}

cli::Command inspect_command() {
  cli::Command c;
  c.name = "fp8-inspect";
  c.about = "what FP8 does to each linear of a model on a batch";
  c.example = "fp8-inspect run/step-00000100 --data data.h5 --recipe tensorwise,rowwise";
  c.positionals = {{.name = "model",
                    .metavar = "CHECKPOINT",
                    .help = "checkpoint to inspect; -: read a checkpoint record from standard input"}};
  c.launched = true;
  const std::string g = "Data", p = "Precision";
  add_eval_data(c.flags, g);
  c.flags.push_back(choice("sampler", "sequential", {"shuffle", "sequential"}, "order in which sequences are read", g));
  c.flags.push_back(whole("seed", "0", 0, "seed of the sampler", g));
  c.flags.push_back(whole("step", "1", 1, "step of a run whose batch is read, from 1", g));
  c.flags.push_back({.name = "layers",
                     .kind = FlagKind::list,
                     .metavar = "GLOB",
                     .help = "report only linears whose name matches",
                     .group = g});
  c.flags.push_back(toggle("blocks", "", "add the spread of the figures over rows or blocks", g));
  c.flags.push_back(toggle("sensitivity", "", "measure what each GEMM alone does to the loss or the gradient", g));
  Flag most = real("recommend", "", 0, 1e6,
                   "leave linears in bf16 until the sum of |change of the loss| is below this, in nats; needs -o", g);
  most.metavar = "NATS";
  c.flags.push_back(std::move(most));
  c.flags.push_back(
      text("bisect", "FLAGS", "compare each operation under these flags of precision, A, with those of --against", g));
  c.flags.push_back(text("against", "FLAGS", "with --bisect: the flags of precision of B", g));
  c.flags.push_back(real("bound", "", 0, 1e6,
                         "with --bisect: relative difference above which an operation is named, with status 1 [0.5]",
                         g));
  c.flags.push_back(cli::output_flag("configuration for fp8-step with the recommended linears in bf16"));
  c.flags.push_back(cli::force_flag());
  c.flags.push_back(timeout_flag(g));
  c.flags.push_back(cli::json_flag());
  c.flags.push_back(device_flag());
  c.flags.push_back(choice("activations", "bf16", {"bf16", "f32"}, "format of activations", p));
  Flag recipe = text("recipe", "NAME,...", "scalings of FP8 operands to inspect, see fp8-recipes(7), or all", p);
  recipe.default_text = "tensorwise";
  recipe.suggestions = recipe_names();
  recipe.suggestions.emplace_back("all");
  c.flags.push_back(std::move(recipe));
  add_fp8(c.flags);
  return c;
}

namespace {

// Throws Error for flags that have no effect on a bisection, whose sides have flags of precision of their own.
void check_bisection(const cli::Arguments& a) {
  const bool bisects = a.has("bisect");
  if (bisects != a.has("against"))
    throw Error(flag_name(bisects ? "bisect" : "against") + ": needs " + flag_name(bisects ? "against" : "bisect"));
  if (!bisects && a.has("bound")) throw Error(flag_name("bound") + ": needs " + flag_name("bisect"));
  std::vector<Flag> unused;
  add_precision(unused);
  for (const char* name : {"layers", "blocks", "sensitivity", "recommend", "output"}) unused.push_back({.name = name});
  for (const Flag& flag : unused) {
    if (bisects && flag.name != "precision" && a.has(flag.name))
      throw Error(flag_name(flag.name) + ": not together with " + flag_name("bisect") +
                  (flag.group.empty() ? "" : "; its lists of flags may have it"));
  }
}

Bisection bisection_of(const cli::Arguments& a) {
  Bisection b{precision_side("bisect", a.text("bisect")), precision_side("against", a.text("against")), {}};
  if (a.has("bound")) b.bound = a.real("bound");
  return b;
}

}  // namespace

InspectConfig inspect_config(const cli::Arguments& a) {
  check_bisection(a);
  InspectConfig c;
  read_eval_data(a, c);
  c.precision = fp8_of(a);
  c.recipes = recipes_of(a.text("recipe"), c.precision);
  c.all_recipes = std::ranges::count(parts_of({a.text("recipe")}), "all") > 0;
  c.sampler = *data::parse_sampler(a.text("sampler"));
  c.seed = static_cast<std::uint64_t>(a.integer("seed"));
  c.step = a.integer("step");
  c.layers = a.list("layers");
  c.blocks = a.flag("blocks");
  c.precision.recipe = c.recipes.front();
  c.precision.recipe_given = a.has("recipe");
  if (a.has_value("recommend")) c.recommend = a.real("recommend");
  c.sensitivity = a.flag("sensitivity") || c.recommend;
  if (a.has_value("output")) c.output = a.text("output");
  c.force = a.flag("force");
  if (c.recommend && (c.output.empty() || c.recipes.size() > 1))
    throw Error(flag_name("recommend") + (c.output.empty() ? ": needs --output FILE" : ": needs one recipe"));
  if (a.has("bisect")) c.bisection = bisection_of(a);
  if (!c.recommend && !c.output.empty()) throw Error(flag_name("output") + ": needs " + flag_name("recommend"));
  return c;
}

}  // namespace fp8::train
