// The flags of precision, and what they are read into.
#include "precision_flags.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "fp8/base/error.h"
#include "fp8/train/flags.h"
#include "make_flags.h"

namespace fp8::train {
namespace {

using cli::Flag;
using cli::FlagKind;

constexpr const char* kGroup = "Precision";

bool is_delayed(const quant::Recipe& r) { return r.scale_rule == quant::ScaleRule::delayed; }

// A flag that changes what some recipes compute, and which.
struct RecipeFlag {
  std::string_view name;
  bool (*acts)(const quant::Recipe& recipe);
};

constexpr std::array<RecipeFlag, 7> kRecipeFlags = {{
    {"power-of-2-scales",
     [](const quant::Recipe& r) { return !is_delayed(r) && r.scale_rule != quant::ScaleRule::mx; }},
    {"fp8-format", [](const quant::Recipe& r) { return &quant::with_e4m3_gradients(r) != &r; }},
    {"amax-history", is_delayed},
    {"amax-algo", is_delayed},
    {"margin", is_delayed},
    {"fp8-all-gather", [](const quant::Recipe& r) { return r.fp8_all_gather; }},
    {"emulate", [](const quant::Recipe& r) { return !r.emulated_everywhere(); }},
}};

model::GemmRule gemm_rule(const std::string& text) {
  const std::size_t equals = text.rfind('=');
  const auto gemms = quant::parse_gemm_set(std::string_view(text).substr(equals == std::string::npos ? 0 : equals + 1));
  if (!gemms || equals == 0)
    throw Error(flag_name("fp8-gemms") + ": " + text +
                ": needs forward, dgrad and wgrad, or some of them, after an optional GLOB=");
  return {equals == std::string::npos ? "" : text.substr(0, equals), *gemms};
}

}  // namespace

std::optional<device::DeviceType> device_of(const cli::Arguments& a) {
  const std::string& name = a.text("device");
  if (name == "auto") return std::nullopt;
  return name == "cuda" ? device::DeviceType::cuda : device::DeviceType::host;
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const quant::Recipe& r : quant::recipes()) names.emplace_back(r.name);
  return names;
}

Flag device_flag() {
  return choice("device", "auto", {"auto", "cpu", "cuda"},
                "device to compute on (auto: GPUs if every rank has one, otherwise the CPU)", kGroup);
}

bool acts_under(std::string_view flag, const quant::Recipe& recipe) {
  const auto row = std::ranges::find(kRecipeFlags, flag, &RecipeFlag::name);
  return row == kRecipeFlags.end() || row->acts(recipe);
}

void add_fp8(std::vector<Flag>& flags) {
  const std::string g = kGroup;
  flags.push_back(
      toggle("power-of-2-scales", "auto", "round FP8 scales down to powers of two; auto: as the recipe does", g));
  flags.push_back(toggle("rowwise-single-copy", "",
                         "with recipe rowwise, use one FP8 copy of each weight for forward and dgrad", g));
  flags.push_back(choice("fp8-format", "hybrid", {"hybrid", "e4m3"},
                         "gradients of tensorwise, current and delayed: e5m2 with hybrid, or e4m3", g));
  flags.push_back(whole("amax-history", "1024", 1, "steps whose amaxes recipe delayed keeps, at most 1024", g));
  flags.back().max = 1024;
  flags.push_back(choice("amax-algo", "max", {"max", "most_recent"},
                         "amax of a history that gives the scale of recipe delayed", g));
  flags.push_back(whole("margin", "0", 0, "powers of two by which recipe delayed lowers its scales", g));
  flags.back().max = 64;
  flags.push_back(toggle("fp8-all-gather", "on", "all-gather sharded weights as FP8 codes where the recipe allows", g));
  flags.push_back({.name = "filter",
                   .kind = FlagKind::list,
                   .metavar = "GLOB",
                   .help = "keep linears whose name matches in bf16",
                   .group = g});
  flags.push_back(
      {.name = "fp8-gemms",
       .kind = FlagKind::list,
       .metavar = "[GLOB=]GEMMS",
       .help = "GEMMs of the linears whose name matches that run in FP8: forward,dgrad,wgrad or some of them",
       .group = g});
  flags.push_back(toggle("auto-filter", "", "keep linears in bf16 that are too small to gain from FP8", g));
  flags.push_back(toggle("fp8-lm-head", "", "run the LM head in FP8 too, unless it is tied to the embedding", g));
  flags.push_back(choice("attention", "fused", {"fused", "plain"},
                         "kernels of attention on a GPU (fused: cuDNN's; plain: without tensor cores, slower)", g));
  flags.push_back(toggle("emulate", "", "emulate FP8 on a GPU: multiply FP8 values as bf16", g));
  flags.push_back(choice("accumulate", "f32", {"f32", "hopper", "ada"},
                         "sums of FP8 products on a CPU (hopper, ada: with the bits of an H100, an RTX 4060)", g));
}

void add_precision(std::vector<Flag>& flags) {
  const std::string g = kGroup;
  flags.push_back(device_flag());
  flags.push_back(choice("precision", "bf16", {"fp32", "bf16", "fp8"},
                         "precision of the matrix multiplications of linear layers", g));
  flags.push_back(choice("activations", "", {"bf16", "f32"},
                         "format of activations (default: f32 with --precision fp32, otherwise bf16)", g));
  flags.push_back(choice("recipe", "tensorwise", recipe_names(), "scaling of FP8 operands, see fp8-recipes(7)", g));
  add_fp8(flags);
}

PrecisionConfig fp8_of(const cli::Arguments& a) {
  PrecisionConfig p;
  p.precision = Precision::fp8;
  if (a.has_value("activations"))
    p.activations = a.text("activations") == "f32" ? dtype::DType::f32 : dtype::DType::bf16;
  if (a.has("power-of-2-scales")) p.power_of_2 = a.flag("power-of-2-scales");
  p.rowwise_single_copy = a.flag("rowwise-single-copy");
  p.single_copy_given = a.has("rowwise-single-copy");
  p.e4m3_gradients = a.text("fp8-format") == "e4m3";
  p.format_given = a.has("fp8-format");
  p.delayed = {a.integer("amax-history"), a.integer("margin"),
               a.text("amax-algo") == "max" ? quant::AmaxAlgorithm::max : quant::AmaxAlgorithm::most_recent};
  p.fp8_all_gather = a.flag("fp8-all-gather");
  p.selection.filters = a.list("filter");
  for (const std::string& rule : a.list("fp8-gemms")) p.selection.gemms.push_back(gemm_rule(rule));
  p.selection.auto_filter = a.flag("auto-filter");
  p.selection.lm_head = a.flag("fp8-lm-head");
  if (a.text("attention") == "plain") p.attention.kernels = ops::AttentionKernels::plain;
  p.emulate = a.flag("emulate");
  for (const auto accumulation : {gemm::Accumulation::f32, gemm::Accumulation::hopper, gemm::Accumulation::ada})
    if (a.text("accumulate") == name_of(accumulation)) p.accumulation = accumulation;
  if (a.has("recipe")) p.given.emplace_back("recipe");
  for (const RecipeFlag& flag : kRecipeFlags)
    if (a.has(flag.name)) p.given.emplace_back(flag.name);
  return p;
}

PrecisionConfig precision_of(const cli::Arguments& a) {
  PrecisionConfig p = fp8_of(a);
  const std::string name = a.text("precision");
  p.precision = name == "fp32" ? Precision::fp32 : name == "fp8" ? Precision::fp8 : Precision::bf16;
  if (p.precision == Precision::fp32 && !a.has_value("activations")) p.activations = dtype::DType::f32;
  p.recipe = a.text("recipe");
  p.precision_given = a.has("precision");
  p.recipe_given = a.has("recipe");
  return p;
}

PrecisionConfig fused_precision_of(const cli::Arguments& a) {
  PrecisionConfig p = precision_of(a);
  p.fuse_projections = a.flag("fuse-projections");
  return p;
}

PrecisionSide precision_side(const std::string& flag, const std::string& list) {
  cli::Command command;
  add_precision(command.flags);
  std::istringstream in(list);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  try {
    const cli::Arguments arguments = cli::parse(command, words);
    return {list, precision_of(arguments), device_of(arguments)};
  } catch (const Error& e) {
    throw Error(flag_name(flag) + ": " + e.what(), e.code());
  }
}

}  // namespace fp8::train
