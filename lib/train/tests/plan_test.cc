// The planned operations of a step are those that a run has on one rank, and have the launches, bytes and FLOPs that
// were counted in the kernels of a GPU.
#include "fp8/train/plan.h"

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "fp8/json/json.h"
#include "fp8/model/presets.h"
#include "plan_cases.h"

namespace fp8::train {
namespace {

using device::Span;
using device::SpanKind;
using device::Work;

shard::ModelSpec spec_of(const hf::ModelConfig& config, const char* recipe_name) {
  const quant::Recipe* const recipe = recipe_name == nullptr ? nullptr : &quant::find_recipe(recipe_name);
  shard::ModelSpec spec{config, model::parameter_table(config), {}};
  for (model::Parameter& p : spec.table) p.fp8 = p.fp8 && recipe != nullptr;
  spec.store.fp8 = {recipe, {recipe != nullptr && recipe->power_of_2}};
  return spec;
}

// --- against tests/kernels/step.tsv ---

// The model of tests/kernels/step_test.cc.
hf::ModelConfig counted_model(int layers) {
  const std::string text = R"({"model_type": "llama", "vocab_size": 512, "hidden_size": 128, "intermediate_size": 448,
    "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 32, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "num_hidden_layers": )" +
                           std::to_string(layers) + "}";
  return hf::parse_config(json::parse(text, "small"), "small");
}

constexpr std::int64_t kTokens = 64;
constexpr double kLayers = 2;

struct Cost {
  double launches = 0, bytes = 0, flops = 0;
  Cost& operator+=(const Cost& o) {
    launches += o.launches, bytes += o.bytes, flops += o.flops;
    return *this;
  }
};
using Costs = std::map<std::string, Cost>;

// Operations and kernels that are compared together, because they have kernels in common; others have the name of
// their kernel.
struct Group {
  const char* name;
  std::set<std::string> operations, kernels;
};
const std::vector<Group>& groups() {
  static const std::vector<Group> all{
      {"GEMM", {"bf16 matmul", "fp8 matmul"}, {"gemm finish", "gemm broadcast"}},
      {"casts",
       {"quantize", "scales", "amax", "cast to bytes"},
       {"amax", "amax: begin", "scale", "cast", "block scales"}},
      {"decode", {"decode"}, {"codes"}},
      {"attention backward", {"attention backward", "copy"}, {"attention backward", "copy"}},
      {"zero", {"zero", "embedding backward"}, {"zero", "embedding backward"}},
      {"sums", {"sum of squares", "sum of losses"}, {"sums", "sums: total"}},
      {"AdamW", {"AdamW"}, {"adamw"}},
      {"amaxes of all ranks", {"all-reduce"}, {"magnitudes"}},
  };
  return all;
}
std::string group_of(const std::string& name, std::set<std::string> Group::*names) {
  if (name.starts_with("GEMM ")) return "GEMM";
  for (const Group& g : groups())
    if ((g.*names).contains(name)) return g.name;
  return name;
}

// The lines of a recipe for a step of one micro-batch.
Costs counted(const std::string& recipe) {
  std::ifstream file("tests/kernels/step.tsv");
  Costs costs;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> cells;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, '\t');) cells.push_back(cell);
    if (cells[0] != recipe) continue;
    const auto number = [&](std::size_t i) { return std::stod(cells.at(i)); };
    const double times = cells[1].ends_with("of a layer") ? kLayers : 1, tokens = kTokens;
    costs[group_of(cells[2], &Group::kernels)] +=
        {times * number(3), times * (number(4) + number(6) + tokens * (number(5) + number(7))),
         times * tokens * number(10)};
  }
  return costs;
}

Costs planned(const std::vector<Span>& spans) {
  Costs costs;
  for (const Span& s : spans)
    if (s.kind == SpanKind::operation)
      costs[group_of(std::string(s.name), &Group::operations)] +=
          {static_cast<double>(s.launches), s.bytes, s.gemms > 0 ? s.flops : 0};
  return costs;
}

// Scalars, such as scales and partial sums, are left out of the bytes of operations.
TEST(Plan, HasTheLaunchesBytesAndFlopsOfTheKernels) {
  const auto one = comm::solo();
  const Context gpu{device::DeviceType::cuda};
  for (const char* const recipe : {"bf16", "tensorwise", "rowwise", "current", "delayed", "blockwise"}) {
    SCOPED_TRACE(recipe);
    shard::ModelSpec spec =
        spec_of(counted_model(static_cast<int>(kLayers)), recipe == std::string("bf16") ? nullptr : recipe);
    spec.execution.attention.kernels = ops::AttentionKernels::plain;
    Costs ours = planned(plan_step(gpu, comm::Mesh(*one), spec, {{1, kTokens, {}}, 1, {}, 1, 0, 0, 90}));
    const Costs theirs = counted(recipe);
    ASSERT_GT(theirs.size(), 10u);
    for (const auto& [name, cost] : theirs) {
      if (name == "amaxes of all ranks") continue;
      const Cost& mine = ours[name];
      EXPECT_EQ(mine.launches, cost.launches) << name;
      EXPECT_EQ(mine.flops, cost.flops) << name;
      if (name == "delayed scales") continue;  // the file has the bytes of kernels whose launches grow with layers
      EXPECT_NEAR(mine.bytes, cost.bytes, 0.02 * cost.bytes + 300 * cost.launches) << name;
    }
    for (const auto& [name, cost] : ours)
      EXPECT_TRUE(cost.launches == 0 || theirs.contains(name)) << name << " is not a kernel of " << recipe;
  }
}

// Memory on a GPU: codes of one byte, and a few scales, in place of bf16 inputs of q, k and v, of gate and up, and of
// down. The calibration of delayed needs no more.
TEST(Plan, CodesTakeAboutHalfTheMemoryOfInputs) {
  const auto one = comm::solo();
  constexpr std::int64_t kLength = 1024;
  constexpr int kDepth = 8;
  const hf::ModelConfig config = counted_model(kDepth);
  const auto plan = [&](const char* recipe, model::Recompute recompute) {
    shard::ModelSpec spec = spec_of(config, recipe);
    spec.execution.activation = dtype::DType::bf16;
    spec.execution.recompute = recompute;
    return shard::plan_rank({device::DeviceType::cuda}, comm::Mesh(*one), spec, {1, kLength, {}}, {}, {});
  };
  const auto inputs = static_cast<std::size_t>(kDepth * kLength * (2 * config.hidden_size + config.intermediate_size));
  const std::size_t values = plan(nullptr, model::Recompute::none).bytes_of("activations");
  for (const char* const recipe : {"tensorwise", "current", "rowwise", "delayed", "blockwise"}) {
    SCOPED_TRACE(recipe);
    const shard::MemoryPlan fp8 = plan(recipe, model::Recompute::none);
    EXPECT_EQ(values - fp8.bytes_of("activations"), 2 * inputs);
    EXPECT_GE(fp8.bytes_of("activation codes"), inputs);
    EXPECT_LE(fp8.bytes_of("activation codes"), inputs + inputs / 15) << "a scale and its reciprocal for 128 codes";
    EXPECT_EQ(plan(recipe, model::Recompute::selective).bytes_of("activation codes"), 0u);
  }
  EXPECT_EQ(plan("rowwise_with_gw_hp", model::Recompute::none).bytes_of("activations"), values) << "wgrad reads them";
}

// --- against a step on the host ---

std::string text_of(const Span& s) {
  std::ostringstream out;
  out << device::kWorkNames.at(static_cast<std::size_t>(s.work)) << ": " << s.name << " [" << s.mnk[0] << ", "
      << s.mnk[1] << ", " << s.mnk[2] << "], " << s.bytes << " bytes, " << s.flops << " FLOPs, " << s.gemms << " GEMMs "
      << static_cast<int>(s.operands) << static_cast<int>(s.scaling) << s.accumulate;
  return out.str();
}

void compare(const shard::ModelSpec& spec, const PlannedStep& step) {
  const auto one = comm::solo();
  const comm::Mesh mesh(*one);
  const std::vector<Span> ran = timed_step(mesh, spec, step);
  std::vector<Span> plan = plan_step({}, mesh, spec, step);
  std::erase_if(plan, [](const Span& s) { return s.kind == SpanKind::mark; });
  ASSERT_GT(ran.size(), 100u);
  for (std::size_t i = 0; i < std::min(ran.size(), plan.size()); ++i)
    ASSERT_EQ(text_of(plan[i]), text_of(ran[i])) << "operation " << i;
  EXPECT_EQ(plan.size(), ran.size());
}

TEST(Plan, HasTheOperationsOfAStepOfADenseModel) {
  const hf::ModelConfig config = hf::parse_config(model::read_model_config("tiny"), "preset");
  for (const char* const recipe : {static_cast<const char*>(nullptr), "tensorwise", "rowwise", "delayed", "blockwise"})
    for (const model::Recompute recompute : {model::Recompute::none, model::Recompute::full}) {
      SCOPED_TRACE(recipe == nullptr ? "bf16" : recipe);
      shard::ModelSpec spec = spec_of(config, recipe);
      spec.execution.recompute = recompute;
      spec.store.several_micro_batches = true;
      spec.micro_batches = 2;
      compare(spec, {{2, 32, {}}, 2});
    }
}

// All experts for each token, so that a run has balanced rows.
TEST(Plan, HasTheOperationsOfAStepOfExperts) {
  hf::ModelConfig config = hf::parse_config(model::read_model_config("qwen3-moe-tiny"), "preset");
  config.experts->per_token = config.experts->count;
  for (const char* const recipe : {static_cast<const char*>(nullptr), "tensorwise", "delayed"}) {
    SCOPED_TRACE(recipe == nullptr ? "bf16" : recipe);
    compare(spec_of(config, recipe), {.trained = {2, 32, {}}, .aux_loss = 0.01, .z_loss = 0.001});
  }
}

TEST(Plan, MarksPassesUnitsAndTheUpdate) {
  const auto one = comm::solo();
  const hf::ModelConfig config = hf::parse_config(model::read_model_config("tiny"), "preset");
  shard::ModelSpec spec = spec_of(config, nullptr);
  spec.store.several_micro_batches = true;
  std::string marks;
  for (const Span& s : plan_step({}, comm::Mesh(*one), spec, {{1, 8, {}}, 2}))
    if (s.kind == SpanKind::mark && s.name != device::kUnitMark)
      marks += std::string(s.name) + " " + std::to_string(s.number) + ", ";
  EXPECT_EQ(marks, "forward 0, backward 0, forward 1, backward 1, update 0, ");
}

// Every expert gets the same rows; on a GPU they are computed together.
TEST(Plan, BalancesTheRowsOfExperts) {
  const auto one = comm::solo();
  const hf::ModelConfig config = hf::parse_config(model::read_model_config("qwen3-moe-tiny"), "preset");
  const std::int64_t rows = 64 * config.experts->per_token;
  for (const int capability : {90, 100}) {
    int experts = 0;
    for (const Span& s : plan_step({device::DeviceType::cuda}, comm::Mesh(*one), spec_of(config, nullptr),
                                   {.trained = {1, 64, {}}, .compute_capability = capability})) {
      if (s.work != Work::matmul_forward || s.mnk[1] != 2 * config.experts->intermediate_size) continue;
      experts += s.gemms;
      EXPECT_EQ(s.gemms, capability == 90 ? config.experts->count : 1);
      EXPECT_EQ(s.mnk[0], capability == 90 ? rows : rows / config.experts->count);
    }
    EXPECT_GT(experts, 0);
  }
}

}  // namespace
}  // namespace fp8::train
