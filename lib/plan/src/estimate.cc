// Memory and speed of one run.
#include "fp8/plan/estimate.h"

#include <algorithm>

#include "record_step.h"

namespace fp8::plan {
namespace {

constexpr double kSecondsOfADay = 86400;

// The rank of a stage that has the first parts of linears, shards and experts.
int first_rank(const comm::MeshShape& mesh, std::size_t stage) {
  return static_cast<int>(stage) * mesh.dp_replicate * mesh.dp_shard * mesh.tp;
}

// For each stage the first one that computes the same: it has as many layers, and, as this one, neither the embedding
// nor the head, and no layer of a mixture has other sizes than the rest.
std::vector<std::size_t> like_stages(const Run& run) {
  const std::vector<int>& layers = run.spec.store.stages;
  const hf::ModelConfig& c = run.spec.config;
  const bool uniform = c.sparse_layers() == 0 || c.sparse_layers() == c.num_hidden_layers;
  std::vector<std::size_t> like;
  for (std::size_t s = 0; s < static_cast<std::size_t>(run.mesh.pp); ++s) {
    std::size_t same = s;
    for (std::size_t t = 1; t < s && s + 1 < layers.size() && uniform && same == s; ++t)
      if (layers[t] == layers[s]) same = t;
    like.push_back(same);
  }
  return like;
}

// Activations of a micro-batch, which go from stage to stage, in bytes of a rank.
double message_bytes(const Run& run) {
  return static_cast<double>(run.batch_size * run.length * run.spec.config.hidden_size / run.mesh.tp) *
         static_cast<double>(size_of(run.spec.store.compute));
}

// Ranks of one stage are consecutive, so that stages are on several machines as soon as two neighbours are.
int machines_between_stages(const Run& run) {
  const int of_stage = run.mesh.dp_replicate * run.mesh.dp_shard * run.mesh.tp;
  return of_stage * 2 > run.ranks_per_node ? 2 : 1;
}

json::Value pair_of(const Range& r) { return json::Array{std::min(r.slow, r.fast), std::max(r.slow, r.fast)}; }

json::Value mesh_of(const comm::MeshShape& m) {
  return json::object(
      {{"dp_replicate", m.dp_replicate}, {"dp_shard", m.dp_shard}, {"pp", m.pp}, {"ep", m.ep}, {"tp", m.tp}});
}

}  // namespace

Corner corner_of(std::size_t n) {
  const auto bit = [n](unsigned i) { return (n >> i & 1U) != 0; };
  return {bit(0), bit(1), bit(2), bit(3), bit(4)};
}

Speed speed_of(const Run& run, const Machine& whole, const Assumptions& assumed, bool all) {
  const Machine machine = whole.share_of(run.ranks_of_host());
  const std::vector<std::size_t> like = like_stages(run);
  std::map<std::size_t, Record> records;
  for (const std::size_t stage : like)
    if (!records.contains(stage))
      records.emplace(stage, recorded_step(run, first_rank(run.mesh, stage), machine, assumed.imbalance));
  Habits habits = assumed.habits;
  if (run.spec.execution.recompute != model::Recompute::selective) habits.repeated_gemms = 0;
  const quant::Recipe* recipe = run.precision.recipe_or_null();
  const bool own_emulation = assumed.own && recipe != nullptr && recipe->emulated_everywhere() && !recipe->fp4();
  habits.emulated = recipe != nullptr && (run.precision.emulate || own_emulation);
  Speed speed;
  for (std::size_t i = 0; i < kCorners; ++i) {
    if (!all && i > 0 && i + 1 < kCorners) continue;
    const Corner corner = corner_of(i);
    std::map<std::size_t, std::vector<Pass>> passes;
    for (const auto& [stage, record] : records) passes.emplace(stage, passes_of({machine, corner, habits}, record));
    std::vector<std::vector<Pass>> stages;
    for (const std::size_t stage : like) stages.push_back(passes.at(stage));
    const device::Exchange message{device::ExchangeKind::message, 2, machines_between_stages(run), message_bytes(run)};
    const Times times =
        step_of(stages, {run.micro_batches, seconds_of(machine, corner, message), assumed.virtual_stages});
    speed.seconds[i] = times.total();
    if (i == 0) speed.slow = times;
    speed.fast = times;
  }
  for (const auto& [stage, record] : records) {
    for (const auto& [unit, seconds] : units_of({machine, corner_of(0), habits}, record))
      speed.units[unit].slow = seconds;
    for (const auto& [unit, seconds] : units_of({machine, corner_of(kCorners - 1), habits}, record))
      speed.units[unit].fast = seconds;
  }
  return speed;
}

std::size_t memory_of_rank(const Machine& machine, const Run& run) {
  return machine.share_of(run.ranks_of_host()).memory;
}

JobMemory memory_on(const Run& run, device::DeviceType device, const MaybeMachine& machine) {
  const bool gpu = machine && device == device::DeviceType::cuda;
  return memory_of(run, {device, gpu ? machine->memory : 0});
}

Range tokens_per_rank(const Run& run, const Speed& speed) {
  const double tokens = run.tokens_per_step() / run.mesh.ranks();
  return {tokens / speed.step().slow, tokens / speed.step().fast};
}

Range days_of(const Run& run, const Speed& speed, std::int64_t tokens) {
  const Range each = tokens_per_rank(run, speed);
  const double left = static_cast<double>(tokens) / run.mesh.ranks() / kSecondsOfADay;
  return {left / each.slow, left / each.fast};
}

Estimate estimate(Run run, device::DeviceType device, const MaybeMachine& machine, const Assumptions& assumed) {
  Estimate e;
  e.memory = memory_on(run, device, machine);
  if (machine) {
    e.fits = e.memory.plan.total() <= memory_of_rank(*machine, run);
    e.speed = speed_of(run, *machine, assumed);
  }
  e.run = std::move(run);
  return e;
}

Range ratio_of(const Speed& one, const Speed& base) {
  Range r{base.seconds[0] / one.seconds[0], base.seconds[0] / one.seconds[0]};
  for (std::size_t i = 1; i < kCorners; ++i) {
    r.slow = std::min(r.slow, base.seconds[i] / one.seconds[i]);
    r.fast = std::max(r.fast, base.seconds[i] / one.seconds[i]);
  }
  return r;
}

std::string limit_of(const Speed& speed) {
  const auto sum = [&](std::initializer_list<Term> terms) {
    double seconds = 0;
    for (const Term t : terms) seconds += speed.slow[t] + speed.fast[t];
    return seconds;
  };
  const std::array<std::pair<double, const char*>, 7> parts{{
      {sum({Term::gemm_forward, Term::gemm_dgrad, Term::gemm_wgrad, Term::gemm_other}), "GEMMs"},
      {sum({Term::attention}), "attention"},
      {sum({Term::casts, Term::kernels}), "memory bandwidth"},
      {sum({Term::launches}), "launches"},
      {sum({Term::communication}), "communication"},
      {sum({Term::bubble}), "pipeline bubble"},
      {sum({Term::update}), "update"},
  }};
  return std::ranges::max_element(parts)->second;
}

json::Value record_of(const Estimate& e, const MaybeMachine& machine, std::int64_t tokens) {
  const Run& run = e.run;
  const bool fp8 = run.precision.recipe_or_null() != nullptr;
  json::Value record = json::object({
      {"type", "plan"},
      {"precision", std::string(settings::name_of(run.precision.precision))},
      {"recipe", fp8 ? settings::recipe_value(run.precision) : json::Value()},
      {"machine", machine ? json::Value(machine->name) : json::Value()},
      {"ranks", run.mesh.ranks()},
      {"mesh", mesh_of(run.mesh)},
      {"batch_size", run.batch_size},
      {"seq_length", run.length},
      {"grad_accumulation", run.micro_batches},
      {"memory_bytes", e.memory.plan.to_json()},
      {"memory_rank", e.memory.rank},
      {"fits", e.fits ? json::Value(*e.fits) : json::Value()},
  });
  json::Object& o = record.as_object();
  const auto speed = [&](const Range& r) { return e.speed ? pair_of(r) : json::Value(); };
  const Speed of = e.speed.value_or(Speed{});
  const Range each = e.speed ? tokens_per_rank(run, of) : Range{};
  o.set("step_s", speed(of.step()));
  o.set("tokens_per_s", speed({each.slow * run.mesh.ranks(), each.fast * run.mesh.ranks()}));
  o.set("tokens_per_s_per_rank", speed(each));
  o.set("ratio_to_bf16", e.ratio ? pair_of(*e.ratio) : json::Value());
  o.set("limit", e.speed ? json::Value(limit_of(of)) : json::Value());
  if (!e.speed) return record;
  json::Value terms = json::object({});
  for (std::size_t i = 0; i < kTerms; ++i)
    terms.as_object().set(kTermNames[i], pair_of({of.slow.of[i], of.fast.of[i]}));
  o.set("terms_s", std::move(terms));
  if (tokens > 0) o.set("days", pair_of(days_of(run, of, tokens)));
  return record;
}

}  // namespace fp8::plan
