// The rows of the table of settings.
#include <limits>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/settings/resume.h"
#include "fp8/settings/setting.h"
#include "rows.h"

namespace fp8::settings {
namespace {

// Configurations and their parts.
using C = Config;
using P = PrecisionConfig;
using E = model::Execution;
using R = RunConfig;
using L = LoraSettings;
using D = shard::DelayedOptions;
using S = model::PrecisionRules;
using O = optim::Settings;
using T = optim::Schedule;

constexpr unsigned kAll = kStep | kEval | kInspect;
constexpr unsigned kComputes = kAll | kPlan | kSide;                 // where flags of precision are
constexpr cli::Interval kDefaultInterval{0, std::int64_t{30} * 60};  // between checkpoints

const RunConfig& run_of(const Config& c) { return static_cast<const RunConfig&>(c); }
const std::string& flag_name_of(const Setting& s) { return s.flag.name; }
bool always(const P&) { return true; }
bool under_all(const quant::Recipe&) { return true; }
bool is_delayed(const quant::Recipe& r) { return r.scale_rule == quant::ScaleRule::delayed; }
bool runs_delayed(const P& p) {
  return std::ranges::any_of(p.recipes_used(), [](const quant::Recipe* r) { return is_delayed(*r); });
}

void add_data(Rows& rows) {
  using data::DocumentMode;
  const Names<DocumentMode> documents = {
      {"auto", DocumentMode::automatic}, {"joined", DocumentMode::joined}, {"separate", DocumentMode::separate}};
  add(rows, kData, kStep, Resume::named,
      {file("data", "FILE", "token file to train on, from fp8-tokenize(1)", &C::data)
           .is_needed()
           .is_digest()
           .records([](auto&, auto& run) { return run.data_digest; }),
       whole("seq-length", "", 1, "tokens in a sequence [that of packed data, else the model's context, 1024 at most]",
             &C::seq_length)
           .in(kAll | kPlan),
       whole("batch-size", "8", 1, "sequences in a micro-batch of one rank", &C::batch_size)
           .changes("batch")
           .recorded_as(kGlobalBatch)
           .in(kStep | kPlan)
           .records([](auto&, auto& run) { return run.global_batch; }),
       choice("sampler", "shuffle", samplers(), "order in which sequences are read", &R::sampler),
       choice("documents", "auto", documents,
              "documents in a sequence: separate ones do not attend to each other (auto: separate if the file has a "
              "mask or packed sequences, otherwise joined)",
              &C::documents)
           .in(kAll),
       whole("seed", "0", 0, "seed of the sampler and of stochastic rounding", &R::seed)});
  add(rows, kData, kEval | kInspect, Resume::free,
      {file("data", "FILE", "token file, from fp8-tokenize(1)", &C::data).is_needed(),
       whole("batch-size", "8", 1, "sequences in a batch of one rank", &C::batch_size)});
}

// Data besides that of the steps, what it may differ in from the model, and the length of a run.
void add_length(Rows& rows) {
  add(rows, kData, kStep, Resume::free,
      {file("eval-data", "FILE", "token file to evaluate on during the run [none]", &R::eval_data).is_digest(),
       toggle("any-tokenizer", "", "accept data made with another tokenizer than the model's", &C::any_tokenizer)
           .in(kAll),
       toggle("any-template", "", "accept data made with another chat template than the model's", &R::any_template)
           .changes("template")
           .recorded_as(kChatTemplate)
           .resumes(Resume::named)
           .records([](auto&, auto& run) { return run.chat_template; }),
       whole("grad-accumulation", "1", 1, "micro-batches that each rank computes per step", &R::grad_accumulation)
           .in(kStep | kPlan)
           .changes("batch"),
       whole("steps", "", 1, "optimizer steps of the whole run, and length of the learning rate schedule", &R::steps)
           .changes("steps"),
       real("epochs", "", 1e-9, 1e9, "length of the whole run in passes over the data, instead of --steps", &R::epochs),
       whole("until-step", "", 1, "step after which to save and stop; the schedule does not change [the last step]",
             &R::until_step)});
}

// The device, and the precision but for FP8.
void add_precision(Rows& rows) {
  using device::DeviceType;
  const Names<std::optional<DeviceType>> devices = {
      {"auto", std::nullopt}, {"cpu", DeviceType::host}, {"cuda", DeviceType::cuda}};
  const Names<DType> activations = {{"bf16", DType::bf16}, {"f32", DType::f32}};
  const Names<Precision> precisions = {{"fp32", Precision::fp32}, {"bf16", Precision::bf16}, {"fp8", Precision::fp8}};
  const auto p = &C::precision;
  add(rows, kPrecision, kPlan, Resume::free,
      {choice("device", "auto", devices, "kernels and layouts to plan for (auto: those of the machine, or of a GPU)",
              &C::device),
       choice("precision", "fp8", precisions, "precision of the matrix multiplications of linear layers", p,
              &P::precision)});
  add(rows, kPrecision, kStep | kEval | kPlan | kSide, Resume::phase,
      {choice("device", "auto", devices, "device to compute on (auto: GPUs if every rank has one, otherwise the CPU)",
              &C::device)
           .in(kAll | kSide)
           .resumes(Resume::free),
       choice("precision", "bf16", precisions, "precision of the matrix multiplications of linear layers", p,
              &P::precision)
           .in(kStep | kEval | kSide)
           .recorded_if(always),
       choice("activations", "", activations,
              "format of activations (default: f32 with --precision fp32, otherwise bf16)", p, &P::execution,
              &E::activation)});
  add(rows, kPrecision, kInspect, Resume::free,
      {choice("activations", "bf16", activations, "format of activations", p, &P::execution, &E::activation)});
}

json::Value recipe_of(const Config& c) { return recipe_value(c.precision); }

// The recipes of FP8. fp8-eval and fp8-inspect read their own, see eval_config() and inspect_config().
void add_recipe(Rows& rows) {
  std::vector<std::string> names = recipe_names(), lists = names, compared, planned;
  lists.emplace_back("all");
  compared = planned = lists;
  compared.emplace_back(kPlainRecipe);
  std::erase_if(planned, [](const std::string& name) { return name != "all" && quant::find_recipe(name).fp4(); });
  add(rows, kPrecision, kStep | kSide, Resume::phase,
      {text("recipe", "[GLOB=]NAME", "scaling of FP8 operands, of the linears whose name matches; see fp8-recipes(7)")
           .is(FlagKind::list)
           .suggests(std::move(names))
           .falls_back_to("tensorwise")
           .reads(read_recipe, recipe_of)
           .recorded_if(always)
           .records([](auto& c, auto&) {
             return c.precision.recipe_or_null() != nullptr ? recipe_value(c.precision) : json::Value();
           })
           .acts_under(under_all),
       text("recipe", "NAME,...|GLOB=NAME",
            "scalings of FP8 operands, see fp8-recipes(7), or all, or bf16 to compare; with GLOB=NAME, of linears "
            "under each")
           .is(FlagKind::list)
           .suggests(std::move(compared))
           .falls_back_to("tensorwise")
           .in(kEval)
           .resumes(Resume::free)
           .acts_under(under_all),
       text("recipe", "NAME,...|GLOB=NAME",
            "scalings of FP8 operands to inspect, see fp8-recipes(7), or all; with GLOB=NAME, of linears under each")
           .is(FlagKind::list)
           .suggests(std::move(lists))
           .falls_back_to("tensorwise")
           .in(kInspect)
           .resumes(Resume::free)
           .acts_under(under_all),
       text("recipe", "NAME,...|GLOB=NAME",
            "scalings of FP8 operands to plan, see fp8-recipes(7), or all; with GLOB=NAME, of linears under each")
           .is(FlagKind::list)
           .suggests(std::move(planned))
           .falls_back_to("tensorwise")
           .in(kPlan)
           .resumes(Resume::free)
           .acts_under(under_all)});
}

// The options of recipe nvfp4.
void add_fp4(Rows& rows) {
  const auto p = &C::precision;
  std::vector<Row> options = {
      toggle("stochastic-gradients", "on", "with recipe nvfp4, round gradients stochastically, not to nearest", p,
             &P::stochastic_gradients),
      toggle("hadamard", "on", "with recipe nvfp4, transform the operands of wgrad along tokens before they are cast",
             p, &P::hadamard)};
  for (Row& row : options)
    row = row.recorded_if([](const P& c) { return c.recipe_or_null() != nullptr && c.has_nvfp4(); })
              .acts_under([](const quant::Recipe& r) { return r.fp4(); });
  add(rows, kPrecision, kAll | kSide, Resume::phase, std::move(options));
}

// How operands of FP8 are scaled, gathered and summed.
void add_scaling(Rows& rows) {
  using gemm::Accumulation;
  using quant::Recipe;
  const auto p = &C::precision;
  add(rows, kPrecision, kComputes, Resume::phase,
      {toggle("power-of-2-scales", "auto", "round FP8 scales down to powers of two; auto: as the recipe does", p,
              &P::power_of_2)
           .records([](auto& c, auto&) -> json::Value {  // null: as each recipe does
             if (!c.precision.linear_recipes.empty() && !c.precision.power_of_2) return {};
             return c.precision.power_of_2_scales();
           })
           .acts_under([](const Recipe& r) { return !is_delayed(r) && !r.emulated_everywhere(); }),
       toggle("fp8-all-gather", "on", "all-gather sharded weights as FP8 codes where the recipe allows", p,
              &P::fp8_all_gather)
           .records([](auto& c, auto&) {
             const auto allows = [](const quant::Recipe* r) { return r->fp8_all_gather; };
             return c.precision.fp8_all_gather && std::ranges::any_of(c.precision.recipes_used(), allows);
           })
           .acts_under([](const Recipe& r) { return r.gathers_codes(); }),
       toggle("rowwise-single-copy", "", "with recipe rowwise, use one FP8 copy of each weight for forward and dgrad",
              p, &P::rowwise_single_copy),
       toggle("fuse-projections", "", "compute q, k, v as one FP8 linear, and gate, up: fewer GEMMs, other numbers", p,
              &P::fuse_projections)
           .in(kStep | kEval | kPlan),  // fp8-inspect measures each projection alone
       choice("accumulate", "f32",
              {{"f32", Accumulation::f32}, {"hopper", Accumulation::hopper}, {"ada", Accumulation::ada}},
              "sums of FP8 products on a CPU (hopper, ada: with the bits of an H100, an RTX 4060)", p,
              &P::accumulation),
       choice("fp8-format", "hybrid", {{"hybrid", false}, {"e4m3", true}},
              "gradients of tensorwise, current and delayed: e5m2 with hybrid, or e4m3", p, &P::e4m3_gradients)
           .recorded_if([](const P& c) { return runs_delayed(c) || (c.recipe_or_null() && c.e4m3_gradients); })
           .records([](auto& c, auto&) { return c.precision.e4m3_gradients ? "e4m3" : "hybrid"; })
           .acts_under([](const Recipe& r) { return &quant::with_e4m3_gradients(r) != &r; })});
}

// The histories of recipe delayed.
void add_delayed(Rows& rows) {
  using quant::AmaxAlgorithm;
  const auto p = &C::precision;
  const auto d = &P::delayed;
  std::vector<Row> delayed = {
      whole("amax-history", "1024", 1, "steps whose amaxes recipe delayed keeps, at most 1024", p, d, &D::history)
          .between(1, 1024),
      choice("amax-algo", "max", {{"max", AmaxAlgorithm::max}, {"most_recent", AmaxAlgorithm::most_recent}},
             "amax of a history that gives the scale of recipe delayed", p, d, &D::algorithm),
      whole("margin", "0", 0, "powers of two by which recipe delayed lowers its scales", p, d, &D::margin)
          .between(0, 64)};
  for (Row& r : delayed) r = r.recorded_if(runs_delayed).acts_under(is_delayed);
  add(rows, kPrecision, kComputes, Resume::phase, std::move(delayed));
}

void read_gemms(const Arguments& a, Config& c) {
  for (const std::string& text : a.list("fp8-gemms")) {
    const std::size_t equals = text.rfind('=');
    const auto gemms =
        quant::parse_gemm_set(std::string_view(text).substr(equals == std::string::npos ? 0 : equals + 1));
    if (!gemms || equals == 0)
      throw Error(cli::flag_name("fp8-gemms") + ": " + text +
                  ": needs forward, dgrad and wgrad, or some of them, after an optional GLOB=");
    c.precision.selection.gemms.push_back({equals == std::string::npos ? "" : text.substr(0, equals), *gemms});
  }
}

json::Value gemms_of(const Config& c) {
  json::Array gemms;
  for (const model::GemmRule& rule : c.precision.selection.gemms)
    gemms.push_back((rule.glob.empty() ? "" : rule.glob + "=") + quant::name_of(rule.gemms));
  return gemms;
}

// The linears and GEMMs that run in FP8, and the kernels.
void add_selection(Rows& rows) {
  const auto p = &C::precision;
  const auto s = &P::selection;
  add(rows, kPrecision, kComputes, Resume::phase,
      {text("filter", "GLOB", "keep linears whose name matches in bf16", p, s, &S::filters).is(FlagKind::list),
       toggle("auto-filter", "", "keep linears in bf16 that are too small to gain from FP8", p, s, &S::auto_filter),
       toggle("fp8-lm-head", "", "run the LM head in FP8 too, unless it is tied to the embedding", p, s, &S::lm_head),
       text("fp8-gemms", "[GLOB=]GEMMS",
            "GEMMs of the linears whose name matches that run in FP8: forward,dgrad,wgrad or some of them")
           .is(FlagKind::list)
           .reads(read_gemms, gemms_of)
           .acts_under(under_all)});
  add(rows, kPrecision, kComputes, Resume::free,
      {choice("attention", "fused", {{"fused", ops::AttentionKernels::fused}, {"plain", ops::AttentionKernels::plain}},
              "kernels of attention on a GPU (fused: cuDNN's; plain: without tensor cores, slower)", p, &P::execution,
              &E::attention, &ops::AttentionOptions::kernels),
       toggle("emulate", "", "emulate FP8 on a GPU: multiply FP8 values as bf16", p, &P::emulate)
           .acts_under([](const quant::Recipe& r) { return !r.emulated_everywhere(); })});
}

void read_betas(const Arguments& a, RunConfig& c) {
  const std::string betas = a.text("betas");
  const std::size_t comma = betas.find(',');
  const auto b1 = parse_double(betas.substr(0, comma));
  const auto b2 = comma == std::string::npos ? std::nullopt : parse_double(betas.substr(comma + 1));
  if (!b1 || !b2 || *b1 < 0 || *b1 >= 1 || *b2 < 0 || *b2 >= 1)
    throw Error(cli::flag_name("betas") + ": " + betas + ": needs two numbers from 0 up to, not including, 1");
  c.optimizer.beta1 = static_cast<float>(*b1);
  c.optimizer.beta2 = static_cast<float>(*b2);
  if (c.optimizer.beta1 == 1 || c.optimizer.beta2 == 1)
    throw Error(cli::flag_name("betas") + ": " + betas +
                ": decay rates are float32, in which it is 1; the largest below is 0.99999994");
}

// The values of an enumeration with their names, which are in its order.
template <class T>
Names<T> named_in_order(std::span<const std::string_view> names) {
  Names<T> out;
  for (const std::string_view name : names) out.emplace_back(name, static_cast<T>(out.size()));
  return out;
}

json::Value betas_of(const RunConfig& c) {
  return json::Array{as_typed(c.optimizer.beta1), as_typed(c.optimizer.beta2)};
}

void add_optimizer(Rows& rows) {
  const auto s = &R::schedule;
  const auto o = &R::optimizer;
  const Names<DType> stored = {{"fp32", DType::f32}, {"bf16", DType::bf16}};
  const auto shapes = named_in_order<optim::ScheduleKind>(optim::schedule_names());
  const auto decays = named_in_order<optim::DecayShape>(optim::decay_shape_names());
  add(rows, "Optimizer", kStep, Resume::named,
      {choice("optimizer", "adamw", {{"adamw", optim::Algorithm::adamw}, {"muon", optim::Algorithm::muon}},
              "optimizer of the linears of layers; everything else has AdamW", o, &O::algorithm)
           .in(kStep | kPlan),
       choice("muon-scale", "rms", {{"rms", optim::MuonScale::rms}, {"original", optim::MuonScale::original}},
              "factor of Muon's updates (rms: 0.2 sqrt(max(rows, columns)), so that rates of AdamW fit; original: "
              "sqrt(max(1, rows / columns)))",
              o, &O::muon_scale)
           .changes("optimizer")
           .records([](auto& c, auto&) -> json::Value {
             const optim::Settings& now = run_of(c).optimizer;
             if (now.algorithm == optim::Algorithm::adamw) return {};
             return now.muon_scale == optim::MuonScale::rms ? "rms" : "original";
           }),
       real("lr", "3e-4", 0, 1e6, "learning rate after warmup", s, &T::lr),
       choice("schedule", "cosine", shapes, "shape of the learning rate after warmup", s, &T::kind),
       whole("warmup-steps", "0", 0, "steps over which the learning rate grows linearly", s, &T::warmup)
           .changes("warmup")
           .records([](auto& c, auto&) {
             return run_of(c).warmup_ratio > 0 ? json::Value() : json::Value(run_of(c).schedule.warmup);
           }),
       real("warmup-ratio", "", 0, 1, "length of the warmup as a share of all steps, instead of --warmup-steps",
            &R::warmup_ratio)
           .changes("warmup"),
       real("warmup-from", "", 0, 1e6,
            "learning rate of the first step of the warmup, from which it grows to --lr [--lr / steps of warmup]", s,
            &T::warmup_from)
           .changes("warmup"),
       real("min-lr", "0", 0, 1e6, "learning rate at the end of the schedule", s, &T::min_lr),
       whole("schedule-steps", "", 1, "steps after which the learning rate stays at --min-lr [all steps]",
             &R::schedule_steps),
       whole("decay-steps", "0", 0, "steps at the end over which schedule wsd decreases the learning rate", s,
             &T::decay_steps),
       choice("decay-shape", "linear", decays, "shape of the decrease of schedule wsd over --decay-steps", s,
              &T::decay_shape),
       real("weight-decay", "0.1", 0, 1e6, "weight decay per unit of learning rate", o, &O::weight_decay),
       choice("decay", "matrices", {{"matrices", false}, {"all", true}},
              "tensors that decay: those with two or more dimensions, or norms and biases too", o, &O::decay_all),
       text("betas", "B1,B2", "decay rates of the moment estimates (AdamW beta1, beta2)")
           .falls_back_to("0.9,0.95")
           .reads(read_betas, betas_of),
       real("eps", "1e-8", 0, 1, "number added to the square root of the second moment (AdamW epsilon)", o, &O::eps),
       real("clip", "1.0", 0, 1e9, "largest norm of the gradient, which is scaled down to it; 0: no clipping",
            &R::clip),
       choice("master", "fp32", stored, "format of the master weights (bf16: rounded stochastically)", &R::master)
           .in(kStep | kPlan),
       choice("moments", "fp32", stored, "format of the moments of the optimizer (bf16: rounded stochastically)",
              &R::moments)
           .in(kStep | kPlan)});
}

void add_experts(Rows& rows) {
  add(rows, "Experts", kStep, Resume::named,
      {real("aux-loss", "0", 0, 1e6, "factor of the loss that balances the load of experts; 0: none", &R::aux_loss),
       real("z-loss", "0", 0, 1e6, "factor of the loss that keeps the logits of routers small; 0: none", &R::z_loss)});
}

void read_targets(const Arguments& a, RunConfig& c) { c.lora.targets = parts_of(a.list("lora-targets")); }

json::Value recorded_targets(const Config& c, const ResolvedRun&) {
  const LoraSettings& lora = run_of(c).lora;
  std::string targets;
  for (const std::string& glob : lora.targets) targets += (targets.empty() ? "" : ",") + glob;
  return lora.rank == 0 ? json::Value() : json::Value(targets.empty() ? kAllTargets : targets);
}

void add_lora(Rows& rows) {
  const auto l = &R::lora;
  add(rows, "Adapters (LoRA)", kStep | kPlan, Resume::fixed,
      {whole("lora-rank", "", 1, "train adapters of this rank beside linears, and freeze the model", l, &L::rank)
           .between(1, 65536)
           .records_lora([](auto&, auto& run) { return run.lora->rank; }),
       real("lora-alpha", "", 1e-6, 1e6, "scaling of new adapters, times the rank [twice the rank]", l, &L::alpha)
           .records_lora([](auto&, auto& run) { return run.lora->alpha; }),
       text("lora-targets", "GLOB,...",
            "linears that get an adapter, by full name or its last part; all: every one of the layers [all]")
           .is(FlagKind::list)
           .suggests({kAllTargets, "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"})
           .reads(read_targets)
           .records_lora(recorded_targets),
       real("lora-dropout", "", 0, 1, "probability that an input of an adapter is left out in training [0]", l,
            &L::dropout)
           .resumes(Resume::named)
           .records_lora([](auto&, auto& run) { return run.lora->dropout; }),
       toggle("rslora", "", "divide --lora-alpha by the square root of the rank, not by the rank", l, &L::rslora)
           .records_lora([](auto&, auto& run) { return run.lora->rslora; }),
       file("lora", "FOLDER", "start from the PEFT adapter in a folder, with its rank, alpha and targets", l,
            &L::folder)
           .is_digest()
           .records_lora([](auto&, auto& run) {
             return run.adapter_digest.empty() ? json::Value() : json::Value(run.adapter_digest);
           })});
}

void read_stages(const Arguments& a, Config& c) {
  c.stages.clear();
  for (const std::string& part : parts_of(a.list("stages"))) {
    const std::string what = cli::flag_name("stages") + ": ";
    constexpr int kMost = std::numeric_limits<int>::max();
    const bool digits = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    const std::optional<std::int64_t> layers = parse_int64(part);
    if (!layers && !digits) throw Error(what + "'" + excerpt(part) + "' is not a number of layers");
    if (layers && *layers < 1) throw Error(what + part + " is below 1: each stage needs a layer");
    if (!layers || *layers > kMost) throw Error(what + excerpt(part) + " is above " + std::to_string(kMost));
    c.stages.push_back(static_cast<int>(*layers));
  }
}

json::Value stages_of(const Config& c) {
  json::Array layers;
  for (const int n : c.stages) layers.emplace_back(std::to_string(n));
  return layers;
}

void add_sharding(Rows& rows) {
  using model::Recompute;
  add(rows, "Sharding and memory", kStep | kPlan, Resume::free,
      {whole("dp-replicate", "1", 1, "copies of the sharded parameters, each for a part of the samples",
             &C::dp_replicate)
           .in(kAll | kPlan),
       whole("dp-shard", "", 1,
             "parts of the samples of a copy, and of its parameters [all ranks / --dp-replicate / --tp / --pp]",
             &C::dp_shard),
       whole("tp", "1", 1, "parts of each linear, embedding and head, on ranks that share samples", &C::tp)
           .in(kAll | kPlan),
       whole("pp", "1", 1, "stages of layers, each on ranks of its own, through which micro-batches pass", &C::pp)
           .in(kStep | kEval | kPlan),
       text("stages", "N,...", "with --pp: layers of each stage [as even as FLOPs allow]")
           .is(FlagKind::list)
           .reads(read_stages, stages_of)
           .in(kStep | kEval | kPlan),
       whole("ep", "1", 1, "parts of the experts of a mixture, each on ranks of its own that share a copy", &C::ep)
           .in(kAll | kPlan),
       real("expert-rows", "2", 1, 1e6,
            "with --ep: rows that a layer's experts hold on a rank, as a multiple of the mean; more run in passes",
            &R::expert_rows),
       choice("reduce-dtype", "f32", {{"f32", DType::f32}, {"bf16", DType::bf16}},
              "format in which gradients travel between ranks; they are added in f32", &R::reduce),
       choice("zero", "3", {{"1", 1}, {"2", 2}, {"3", 3}},
              "what is sharded over ranks (1: master weights and moments, 2: also gradients, 3: also compute weights)",
              &R::zero)
           .metavar("LEVEL"),
       toggle("reshard-after-forward", "on",
              "with --zero 3: reshard weights after forward and gather them again for backward",
              &R::reshard_after_forward),
       toggle("deterministic", "on",
              "compute attention on a GPU with equal bits in every run, which takes memory and time", &C::precision,
              &P::execution, &E::attention, &ops::AttentionOptions::deterministic),
       choice("recompute", "none",
              {{"none", Recompute::none}, {"selective", Recompute::selective}, {"full", Recompute::full}},
              "activations that backward recomputes instead of keeping them", &C::precision, &P::execution,
              &E::recompute)});
}

void read_save_every(const Arguments& a, RunConfig& c) {
  const cli::Interval every = a.has("save-every") ? a.interval("save-every") : kDefaultInterval;
  c.save_every = every.count;
  c.save_seconds = static_cast<double>(every.seconds);
}

void read_profile(const Arguments& a, RunConfig& c) {
  if (!a.has_value("profile")) return;
  const std::string steps = a.text("profile");
  const std::size_t dash = steps.find('-');
  const auto first = parse_int64(steps.substr(0, dash));
  const auto last = dash == std::string::npos ? first : parse_int64(steps.substr(dash + 1));
  if (!first || !last || *first < 1 || *last < *first)
    throw Error(cli::flag_name("profile") + ": " + steps + ": needs a step or two, as 3-5, counted from 1");
  c.profile_first = *first;
  c.profile_last = *last;
}

void read_changes(const Arguments& a, RunConfig& c) {
  const std::vector<std::string> known = changeable_settings();
  for (const std::string& part : parts_of(a.list("change"))) {
    c.change.push_back(setting_name(part));
    if (std::ranges::find(known, c.change.back()) != known.end()) continue;
    std::string all;
    for (const std::string& name : known) all += (all.empty() ? "" : ", ") + name;
    throw Error(cli::flag_name("change") + ": '" + excerpt(c.change.back()) + "' is not one of " + all +
                cli::did_you_mean(c.change.back(), known));
  }
}

void add_saving(Rows& rows) {
  add(rows, kSaving, kStep, Resume::free,
      {file("out", "FOLDER", "folder for checkpoints and log.jsonl; an unfinished run in it is resumed", &R::out)
           .is_needed(),
       text("save-every", "N|TIME", "steps or time (90s, 30m, 2h) between checkpoints; 0: only the last step [30m]")
           .is(FlagKind::interval)
           .reads(read_save_every),
       whole("keep", "", 0, "newest checkpoints to keep; 0: all [all; 2 if --save-every is not given]", &R::keep),
       whole("milestone-every", "0", 0, "steps between checkpoints that --keep neither removes nor counts; 0: none",
             &R::milestone_every),
       toggle("keep-best", "", "keep also the checkpoint with the lowest loss on --eval-data, evaluated at every save",
              &R::keep_best),
       toggle("async-save", "", "write checkpoints in the background; needs memory for a copy of weights and moments",
              &R::async_save)
           .in(kStep | kPlan),
       whole("log-every", "1", 1, "steps between step records", &R::log_every)});
}

void add_watching(Rows& rows) {
  add(rows, kSaving, kStep, Resume::free,
      {whole("eval-every", "0", 0, "steps between evaluations on --eval-data, and at the last step; 0: none",
             &R::eval_every),
       whole("eval-batches", "0", 0, "batches of each rank in an evaluation; 0: the whole file", &R::eval_batches),
       whole("sample-every", "", 0, "steps between texts that the model generates, and at the last step; 0: none",
             &R::sample_every),
       text("sample-prompt", "TEXT", "text that the model continues for --sample-every", &R::sample_prompt),
       whole("sample-tokens", "64", 1, "most new tokens of a text of --sample-every", &R::sample_tokens),
       whole("tensor-stats-every", "0", 0,
             "steps between statistics of FP8 operands, which are written to tensors.jsonl; 0: none", &R::stats_every)
           .acts_under(under_all),
       whole("update-rms-every", "0", 0,
             "steps between those whose records have the size of the update, by kind of parameter; 0: none",
             &R::update_rms_every)
           .in(kStep | kPlan),
       file("gradients", "FILE",
            "safetensors file for the gradient of each parameter in the first step of this start, before clipping",
            &R::gradients),
       row(cli::force_flag(), &R::force),
       whole("paranoid", "0", 0, "steps between steps that are computed twice and compared; 0: none", &R::paranoid),
       text("profile", "STEPS", "steps to measure, as 3 or 3-5: a table of the time by kind of work, and a trace file")
           .reads(read_profile)});
}

// How the tools are started; most of these flags are read by main() itself.
void add_start(Rows& rows) {
  const auto json = [](const char* help) {
    Row made = row(cli::json_flag());
    if (help != nullptr) made.flag.help = help;
    return made;
  };
  add(rows, kSaving, kStep, Resume::free,
      {whole("timeout", "600", 0, "seconds that a collective may wait for a rank; 0: no limit")
           .in(kAll)
           .metavar("SECONDS"),
       whole("ranks", "", 1, "number of ranks that MPI must have; 1: each task of srun is a run of its own")
           .only_on_command_line(),
       file("config", "FILE", "JSON object of flag names and values; flags on the command line override it")
           .only_on_command_line(),
       toggle("print-config", "", "write the resolved configuration to standard output and exit")
           .only_on_command_line(),
       toggle(
           "check-variants", "",
           "check this command with the flags of each line of standard input, a JSON array; print an object for each")
           .only_on_command_line(),
       text("change", "NAME,...", "settings that may differ from those of the run in --out, such as lr,batch,data")
           .is(FlagKind::list)
           .reads(read_changes)
           .only_on_command_line(),
       row(cli::dry_run_flag(), &R::dry_run),
       json("print JSON Lines on a terminal too, instead of a readable line for each record").in(kStep | kEval),
       json(nullptr).in(kInspect | kPlan)});
}

}  // namespace

const std::vector<Setting>& all_settings() {
  static const Rows rows = [] {
    Rows all;
    for (const auto& part : {add_data, add_precision, add_recipe, add_scaling, add_delayed, add_fp4, add_selection,
                             add_optimizer, add_experts, add_lora, add_sharding, add_length, add_saving, add_watching,
                             add_start, add_evaluation, add_plan})
      part(all);
    std::vector<std::string>& names = std::ranges::find(all, "change", flag_name_of)->flag.suggestions;
    for (const Setting& s : all)
      if (!s.change.empty() && std::ranges::find(names, s.change) == names.end()) names.push_back(s.change);
    return all;
  }();
  return rows;
}

void read_settings(const Arguments& a, Tool tool, Config& config, bool all) {
  PrecisionConfig& p = config.precision;
  const bool incomplete = tool == kStep && a.flag("print-config");
  for (const Setting& s : all_settings()) {
    const bool of_precision = s.flag.group == kPrecision;
    if ((s.tools & tool) == 0 || !(all || of_precision)) continue;
    if (s.needed && !incomplete) (void)a.text(s.flag.name);
    if (s.read) s.read(a, config);
    if (of_precision && a.has(s.flag.name)) p.given.push_back(s.flag.name);
    if (of_precision && a.typed(s.flag.name)) p.typed.push_back(s.flag.name);
    if (s.flag.name == "precision") p.chosen = a.set(s.flag.name);
  }
  if (p.precision == Precision::fp32 && !a.has_value("activations")) p.execution.activation = DType::f32;
}

}  // namespace fp8::settings
