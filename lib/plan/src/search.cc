// Plans of many settings.
#include "fp8/plan/search.h"

#include <algorithm>
#include <optional>

#include "fp8/base/checked.h"
#include "fp8/base/error.h"
#include "fp8/cli/command.h"

namespace fp8::plan {
namespace {

using model::Recompute;
using settings::PlanConfig;

constexpr std::size_t kShown = 5;

std::string flag(const char* name, const std::string& value) { return cli::flag_name(name) + " " + value; }

struct Alternative {
  std::string flags;
  PlanConfig config;
};

// Changes of one setting each that can save memory.
std::vector<Alternative> alternatives(const PlanConfig& c, std::int64_t ranks) {
  std::vector<Alternative> all;
  const auto add = [&](std::string flags, const std::function<void(PlanConfig&)>& change) {
    all.push_back({std::move(flags), c});
    change(all.back().config);
  };
  const Recompute now = c.precision.execution.recompute;
  const auto recompute = [](Recompute r) { return [r](PlanConfig& p) { p.precision.execution.recompute = r; }; };
  if (now == Recompute::none) add(flag("recompute", "selective"), recompute(Recompute::selective));
  if (now != Recompute::full) add(flag("recompute", "full"), recompute(Recompute::full));
  if (c.batch_size > 1)
    add(flag("batch-size", std::to_string(c.batch_size / 2)), [](PlanConfig& p) { p.batch_size /= 2; });
  for (const int zero : {2, 3})
    if (c.zero < zero) add(flag("zero", std::to_string(zero)), [zero](PlanConfig& p) { p.zero = zero; });
  if (c.moments == dtype::DType::f32)
    add(flag("moments", "bf16"), [](PlanConfig& p) { p.moments = dtype::DType::bf16; });
  if (c.master == dtype::DType::f32) add(flag("master", "bf16"), [](PlanConfig& p) { p.master = dtype::DType::bf16; });
  if (c.async_save) add("no " + cli::flag_name("async-save"), [](PlanConfig& p) { p.async_save = false; });
  if (c.precision.execution.attention.deterministic)
    add(cli::flag_name("no-deterministic"),
        [](PlanConfig& p) { p.precision.execution.attention.deterministic = false; });
  if (c.tp < 8) add(flag("tp", std::to_string(2 * c.tp)), [](PlanConfig& p) { p.tp *= 2, p.dp_shard = 0; });
  add(flag("ranks", std::to_string(2 * ranks)), [ranks](PlanConfig& p) { p.ranks = 2 * ranks, p.dp_shard = 0; });
  return all;
}

// The run on hosts of --ranks-per-node ranks, unless links leave the hosts of the machine.
Run run_of(const Question& q, const PlanConfig& c) {
  Run run = resolve(q.model, c, c.precision, c.ranks, q.device());
  if (q.machine) run.ranks_per_node = q.machine->linked_ranks;
  const bool leaves = q.machine && q.machine->linked_ranks > q.machine->ranks_per_host;
  if (c.ranks_per_node > 0 && !leaves) run.ranks_per_node = static_cast<int>(c.ranks_per_node);
  return run;
}

// What a function returns, or nothing if it throws Error, since settings or their step are refused.
template <class F>
auto unless_refused(F&& compute) -> std::optional<decltype(compute())> {
  try {
    return compute();
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The same, unless the settings are refused.
std::optional<Run> resolved(const Question& q, const PlanConfig& c) {
  return unless_refused([&] { return run_of(q, c); });
}

// The memory of a run, unless its step is refused, as blocks of scales on several ranks of tensor parallelism are.
std::optional<JobMemory> memory_if_possible(const Question& q, const Run& run) {
  return unless_refused([&] { return memory_on(run, q.device(), q.machine); });
}

// Bytes that a rank of the run can use; 0 without a machine.
std::size_t memory_of_machine(const Question& q, const Run& run) {
  return q.machine ? memory_of_rank(*q.machine, run) : 0;
}

std::vector<std::int64_t> powers_of_two(std::int64_t most) {
  std::vector<std::int64_t> all;
  for (std::int64_t n = 1; n <= most; n *= 2) all.push_back(n);
  return all;
}

// The settings of a search that differ in mesh, sharding and recompute; the micro-batch is set later.
class Space {
 public:
  Space(const Question& q, PlanConfig base, std::int64_t sequences)
      : q_(q), base_(std::move(base)), sequences_(sequences) {}

  void visit(const std::function<void(const PlanConfig&)>& one) const {
    const std::int64_t ranks = base_.ranks;
    const bool experts = q_.model.config.sparse_layers() > 0;
    for (const std::int64_t tp : powers_of_two(std::min<std::int64_t>(ranks, 8)))
      for (const std::int64_t pp : powers_of_two(std::min<std::int64_t>(ranks / tp, 16)))
        for (const std::int64_t ep : powers_of_two(experts ? ranks / pp : 1))
          for (const int zero : {3, 1}) {
            PlanConfig c = base_;
            c.tp = tp, c.pp = pp, c.ep = ep, c.zero = zero;
            c.dp_shard = 0, c.dp_replicate = 1;
            c.stages.clear();
            if (resolved(q_, c)) one(c);
          }
  }
  // Micro-batches of a mesh, the smallest first.
  std::vector<PlanConfig> batches(const PlanConfig& mesh, std::int64_t parts) const {
    std::vector<PlanConfig> all;
    if (sequences_ % parts != 0) return all;
    const std::int64_t of_rank = sequences_ / parts;
    for (const std::int64_t n : powers_of_two(std::min<std::int64_t>(of_rank, 16))) {
      if (of_rank % n != 0) break;
      all.push_back(mesh);
      all.back().batch_size = n;
      all.back().grad_accumulation = of_rank / n;
    }
    return all;
  }

 private:
  const Question& q_;
  PlanConfig base_;
  std::int64_t sequences_;
};

constexpr Recompute kRecompute[] = {Recompute::none, Recompute::selective, Recompute::full};

double middle(const Speed& s) { return s.step().slow * s.step().fast; }

}  // namespace

bool is_faster(const Candidate& one, const Candidate& other) {
  return middle(*one.estimate.speed) < middle(*other.estimate.speed);
}

device::DeviceType Question::device() const {
  if (config.device) return *config.device;
  return machine ? machine->device : device::DeviceType::cuda;
}

PlanConfig Question::under(const std::string& recipe) const {
  PlanConfig c = config;
  if (recipe != settings::kExactRecipe) c.precision = settings::precision_under(config.precision, config, recipe);
  return c;
}

Assumptions Question::assumptions() const {
  return {config.imbalance, habits_of(config.as), static_cast<int>(config.virtual_stages), config.as.empty()};
}

Estimate Question::estimate(const PlanConfig& c) const {
  return plan::estimate(run_of(*this, c), device(), machine, assumptions());
}

void check_recipes(PlanConfig& c, device::DeviceType device, const MaybeMachine& machine) {
  if (c.precision.precision != settings::Precision::fp8 || device == device::DeviceType::host) return;
  constexpr int kHopper = 90;
  const bool has_fp4 = machine && machine->fp4, has_blocks = !machine || machine->compute_capability == kHopper;
  const auto lacks = [&](const std::string& name) {
    if (name == settings::kPlainRecipe) return false;
    const quant::Recipe& recipe = quant::find_recipe(name);
    return (recipe.fp4() && !has_fp4) || (recipe.scale_rule == quant::ScaleRule::blockwise && !has_blocks);
  };
  if (c.all_recipes) std::erase_if(c.recipes, lacks);
  const bool asked = c.precision.has_nvfp4() || std::ranges::find(c.recipes, "nvfp4") != c.recipes.end();
  if (asked && machine && !has_fp4)
    throw Error(cli::flag_name("recipe") + ": nvfp4 is not planned for " + machine->name +
                ", which has no FP4 GEMMs: its machine file has no gemm.fp4");
}

namespace {

// The estimate for comparison, unless it is refused: weights that are stored as codes have none in bf16.
std::optional<Estimate> estimate_if_possible(const Question& q, const PlanConfig& c) {
  return unless_refused([&] { return q.estimate(c); });
}

// The estimate under a recipe; an error names the recipe if there are others.
Estimate estimate_under(const Question& q, const std::string& recipe) {
  try {
    return q.estimate(q.under(recipe));
  } catch (const Error& e) {
    if (q.config.recipes.size() == 1) throw;
    throw Error(recipe + ": " + e.what());
  }
}

}  // namespace

std::vector<Estimate> compare(const Question& q) {
  std::vector<Estimate> all;
  const bool listed = std::ranges::find(q.config.recipes, settings::kPlainRecipe) != q.config.recipes.end();
  const bool exact = q.config.recipes.front() == settings::kExactRecipe;
  if (q.machine && !listed && !exact)
    if (auto plain = estimate_if_possible(q, q.under(settings::kPlainRecipe))) all.push_back(*std::move(plain));
  for (const std::string& recipe : q.config.recipes) all.push_back(estimate_under(q, recipe));
  const auto base =
      std::ranges::find(all, settings::Precision::bf16, [](const Estimate& e) { return e.run.precision.precision; });
  if (!q.machine || base == all.end()) return all;
  const Speed of_base = *base->speed;
  for (Estimate& e : all) e.ratio = ratio_of(*e.speed, of_base);
  return all;
}

namespace {

// What a change does to a run; nothing if the settings are refused, or need as much memory.
std::optional<Change> change_of(const Question& q, const Alternative& to, const Estimate& now) {
  const std::optional<Run> run = resolved(q, to.config);
  if (!run) return std::nullopt;
  const std::optional<JobMemory> memory = memory_if_possible(q, *run);
  if (!memory) return std::nullopt;
  const std::size_t needed = memory->plan.total(), before = now.memory.plan.total();
  if (needed >= before) return std::nullopt;
  return Change{to.flags, before - needed, needed <= memory_of_machine(q, *run)};
}

}  // namespace

std::optional<Change> sharded_gradients(const Question& q, const PlanConfig& c, const Estimate& now) {
  if (c.zero != 1 || now.run.mesh.dp_shard == 1) return std::nullopt;
  Alternative to{flag("zero", "2"), c};
  to.config.zero = 2;
  return change_of(q, to, now);
}

std::vector<Change> remedies(const Question& q, const PlanConfig& c, const Estimate& now) {
  std::vector<Change> all;
  for (const Alternative& a : alternatives(c, now.run.mesh.ranks()))
    if (const std::optional<Change> change = change_of(q, a, now)) all.push_back(*change);
  std::ranges::stable_sort(all, std::greater(), &Change::saved);
  if (all.size() > 3) all.resize(3);
  return all;
}

namespace {

// Whether any settings fit on so many ranks.
bool fits_somehow(const Question& q, PlanConfig base, std::int64_t ranks) {
  base.ranks = ranks;
  base.batch_size = 1;
  base.precision.execution.recompute = Recompute::full;
  bool found = false;
  Space(q, base, ranks).visit([&](const PlanConfig& c) {
    const auto run = found ? std::nullopt : resolved(q, c);
    const auto memory = run ? memory_if_possible(q, *run) : std::nullopt;
    found = found || (memory && memory->plan.total() <= memory_of_machine(q, *run));
  });
  return found;
}

}  // namespace

namespace {

// For each mesh, sharding and recompute the settings to try, in increasing order of the memory that they need.
std::vector<std::vector<PlanConfig>> choices(const Question& q, const Space& space) {
  std::vector<std::vector<PlanConfig>> all;
  space.visit([&](const PlanConfig& mesh) {
    const std::vector<PlanConfig> batches = space.batches(mesh, resolved(q, mesh)->mesh.data_parts());
    for (const Recompute r : kRecompute) {
      all.push_back(batches);
      for (PlanConfig& c : all.back()) c.precision.execution.recompute = r;
    }
  });
  return all;
}

// Plans one setting, and keeps it if it is one of the fastest; false if it does not fit.
bool try_one(const Question& q, const PlanConfig& c, Fit& found) {
  std::optional<Run> run = resolved(q, c);
  ++found.tried;
  if (!run) return false;
  std::optional<JobMemory> memory = memory_if_possible(q, *run);
  if (!memory || memory->plan.total() > memory_of_machine(q, *run)) return false;
  Estimate e{*std::move(run), *std::move(memory), true, std::nullopt, std::nullopt};
  e.speed = speed_of(e.run, *q.machine, q.assumptions(), false);
  const auto equals = [&](const Candidate& other) {
    return other.estimate.speed->seconds == e.speed->seconds &&
           other.estimate.memory.plan.total() == e.memory.plan.total();
  };
  if (std::ranges::any_of(found.fastest, equals)) return true;
  found.fastest.push_back({c, std::move(e)});
  std::ranges::stable_sort(found.fastest, {}, [](const Candidate& one) { return middle(*one.estimate.speed); });
  if (found.fastest.size() > kShown) found.fastest.pop_back();
  return true;
}

// `one` of the settings `c` beside bf16.
Pair pair_of(const Question& q, PlanConfig c, Estimate one) {
  Pair pair{std::move(one), std::nullopt};
  if (!q.machine || c.precision.precision == settings::Precision::fp32) return pair;
  c.precision = settings::precision_under(c.precision, c, settings::kPlainRecipe);
  pair.bf16 = estimate_if_possible(q, c);
  if (pair.bf16) pair.asked.ratio = ratio_of(*pair.asked.speed, *pair.bf16->speed);
  return pair;
}

}  // namespace

std::vector<Pair> sweep(const Question& q, const std::string& recipe) {
  std::vector<Pair> all;
  for (const std::int64_t ranks : q.config.sweep) {
    PlanConfig c = q.under(recipe);
    c.ranks = ranks;
    all.push_back(pair_of(q, c, q.estimate(c)));
  }
  return all;
}

Fit fit(const Question& q, const std::string& recipe, const Watch& watch) {
  PlanConfig base = q.under(recipe);
  const Run asked = run_of(q, base);
  base.ranks = asked.mesh.ranks();
  const std::int64_t of_step[] = {asked.batch_size, asked.micro_batches, asked.mesh.data_parts()};
  const Space space(q, base, checked_product(of_step, "the sequences of a step"));
  const std::vector<std::vector<PlanConfig>> all = choices(q, space);
  std::int64_t most = 0;
  for (const auto& batches : all) most += std::ssize(batches);
  Fit found;
  for (const auto& batches : all) {
    for (const PlanConfig& c : batches) {
      if (found.stopped || (found.stopped = watch.stop())) break;
      watch.progress(found.tried + 1, most);
      if (!try_one(q, c, found)) break;  // more sequences need more memory
    }
  }
  for (std::int64_t ranks = 1; ranks <= 4096 && found.fewest_ranks == 0 && !found.stopped; ranks *= 2)
    if (fits_somehow(q, base, ranks)) found.fewest_ranks = ranks;
  // The search has the speeds of the slowest and the fastest combination alone.
  for (Candidate& c : found.fastest) {
    c.estimate.speed = speed_of(c.estimate.run, *q.machine, q.assumptions());
    Pair pair = pair_of(q, c.config, std::move(c.estimate));
    c.estimate = std::move(pair.asked);
    if (!found.bf16) found.bf16 = std::move(pair.bf16);
  }
  return found;
}

}  // namespace fp8::plan
