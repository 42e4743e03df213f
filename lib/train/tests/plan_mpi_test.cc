// The planned exchanges of a step are those that a run has, on each number of ranks and along each dimension.
#include <array>
#include <map>
#include <sstream>

#include "fp8/model/presets.h"
#include "fp8/train/plan.h"
#include "plan_cases.h"
#include "run_files.h"

namespace fp8::train {
namespace {

using device::ExchangeKind;
using device::Span;
using device::SpanKind;

struct Way {
  int ranks;
  bool experts;
  comm::MeshShape mesh;
  int zero = 3;
  const char* recipe = nullptr;
  DType reduce = DType::f32;
};

const std::vector<Way>& ways() {
  static const std::vector<Way> all{
      {2, false, {.dp_shard = 2}},
      {2, false, {.dp_shard = 2}, 1},
      {2, false, {.dp_shard = 2}, 2, nullptr, DType::bf16},
      {2, false, {.dp_replicate = 2}, 1},
      {2, false, {.dp_replicate = 2}, 1, nullptr, DType::bf16},
      {2, false, {.pp = 2}, 1},
      {2, false, {.tp = 2}, 1},
      {2, false, {.tp = 2}, 1, "tensorwise"},
      {2, false, {.dp_shard = 2}, 3, "delayed"},
      {2, true, {.dp_shard = 2, .ep = 2}},
      {2, true, {.dp_shard = 2}, 3, "tensorwise"},
      {4, false, {.dp_shard = 2, .tp = 2}, 3, "tensorwise"},
      {4, false, {.dp_replicate = 2, .pp = 2}, 1},
      {4, true, {.dp_shard = 4, .ep = 2}},
  };
  return all;
}

std::string text_of(const Span& s) {
  std::ostringstream out;
  out << s.name << ": " << static_cast<int>(s.exchange.kind) << " of " << s.exchange.ranks << ", " << s.exchange.bytes;
  return out.str();
}

void check(const Way& way) {
  hf::ModelConfig config =
      hf::parse_config(model::read_model_config(way.experts ? "qwen3-moe-tiny" : "tiny"), "preset");
  if (way.experts) config.experts->per_token = config.experts->count;  // which rows travel does not depend on values
  const quant::Recipe* const recipe = way.recipe == nullptr ? nullptr : &quant::find_recipe(way.recipe);
  shard::ModelSpec spec{config, model::parameter_table(config), {}};
  for (model::Parameter& p : spec.table) p.fp8 = p.fp8 && recipe != nullptr;
  spec.store.fp8 = {recipe, {recipe != nullptr && recipe->power_of_2}};
  spec.store.zero = way.zero;
  spec.store.reduce = way.reduce;
  spec.store.several_micro_batches = true;
  spec.micro_batches = 2;
  const auto layers = static_cast<int>(config.num_hidden_layers);
  if (way.mesh.pp > 1) spec.store.stages = {layers / 2, layers - layers / 2};
  const comm::Mesh mesh(world(), way.mesh);
  const PlannedStep step{.trained = {2, 32, {}}, .micro_batches = 2, .aux_loss = 0.01};
  std::vector<Span> ran = timed_step(mesh, spec, step), plan = plan_step({}, mesh, spec, step);
  std::map<std::int64_t, int> open;
  for (const Span& s : plan) {
    if (s.kind == SpanKind::start) ++open[s.number];
    if (s.kind == SpanKind::wait) {
      EXPECT_EQ(open[s.number]--, 1) << "a wait for what was not started, or was awaited";
    }
  }
  for (const auto& [number, count] : open) EXPECT_EQ(count, 0) << "exchange " << number << " is not awaited";
  const auto exchanges = [](std::vector<Span>& spans) {
    std::erase_if(spans, [](const Span& s) { return s.exchange.kind == ExchangeKind::none; });
  };
  exchanges(ran);
  exchanges(plan);
  ASSERT_GT(ran.size(), 0u);
  for (std::size_t i = 0; i < std::min(ran.size(), plan.size()); ++i)
    ASSERT_EQ(text_of(plan[i]), text_of(ran[i])) << "exchange " << i;
  EXPECT_EQ(plan.size(), ran.size());
}

TEST(Plan, HasTheExchangesOfAStep) {
  for (std::size_t i = 0; i < ways().size(); ++i) {
    if (ways()[i].ranks != world().size()) continue;
    SCOPED_TRACE("way " + std::to_string(i));
    check(ways()[i]);
  }
}

}  // namespace
}  // namespace fp8::train
