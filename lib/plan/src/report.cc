// Tables and verdicts.
#include "fp8/plan/report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "fp8/base/characters.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/model/stages.h"
#include "fp8/settings/flags.h"

namespace fp8::plan {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string rounded(double x) {
  std::array<char, 40> text{};
  const int digits = x >= 100 || x == 0 ? 0 : x >= 10 ? 1 : x >= 1 ? 2 : 3;
  std::snprintf(text.data(), text.size(), "%.*f", digits, x);
  return text.data();
}

// The lesser value first.
std::string interval(Range r, double unit = 1) {
  const std::string low = rounded(std::min(r.slow, r.fast) * unit), high = rounded(std::max(r.slow, r.fast) * unit);
  return low == high ? low : low + " to " + high;
}

std::string name_of(const Estimate& e) {
  const settings::PrecisionConfig& p = e.run.precision;
  return p.recipe_or_null() == nullptr ? std::string(settings::name_of(p.precision)) : p.recipe_text();
}

Range tokens_of_rank(const Estimate& e) { return tokens_per_rank(e.run, *e.speed); }

// FLOPs of forward and backward over a token, without what is recomputed.
double flops_of_token(const Run& r) {
  const model::UnitCosts costs = model::unit_costs(r.spec.config, r.spec.table, r.length);
  return std::accumulate(costs.layers.begin(), costs.layers.end(), costs.embedding + costs.head);
}

std::string mesh_text(const comm::MeshShape& m) {
  std::string text;
  const auto add = [&](const char* name, int size) {
    if (size > 1) text += (text.empty() ? "" : ", ") + std::string(name) + " " + std::to_string(size);
  };
  add("dp_replicate", m.dp_replicate);
  add("dp_shard", m.dp_shard);
  add("pp", m.pp);
  add("ep", m.ep);
  add("tp", m.tp);
  return text.empty() ? "1 rank" : text;
}

// A row with a cell for each estimate.
template <class Cell>
std::vector<std::string> row(const std::string& name, const std::vector<Estimate>& all, Cell&& cell) {
  std::vector<std::string> cells{name};
  for (const Estimate& e : all) cells.push_back(cell(e));
  return cells;
}

// Categories of memory that depend on the recipe.
constexpr std::array<const char*, 4> kVaried{"compute weights", "activations", "activation codes", "scratch"};

void add_memory(const std::vector<Estimate>& all, Rows& rows) {
  std::vector<std::string> categories;
  for (const Estimate& e : all)
    for (const device::Usage& u : e.memory.plan.usage)
      if (u.bytes >= e.memory.plan.bytes >> 14U && std::ranges::find(categories, u.category) == categories.end())
        categories.push_back(u.category);
  for (const std::string& category : categories)
    rows.push_back(
        row("  " + category, all, [&](const Estimate& e) { return human_bytes(e.memory.plan.bytes_of(category)); }));
  rows.push_back(row("  matmul scratch", all, [](const Estimate& e) { return human_bytes(e.memory.plan.scratch); }));
  const bool host = all.front().memory.plan.device == device::DeviceType::host;
  rows.push_back(row(host ? "  program" : "  CUDA (assumed)", all,
                     [](const Estimate& e) { return human_bytes(e.memory.plan.program); }));
  rows.push_back(row("memory, each rank", all, [](const Estimate& e) { return human_bytes(e.memory.plan.total()); }));
}

void add_speed(const Question& q, const std::vector<Estimate>& all, Rows& rows) {
  for (std::size_t i = 0; i < kTerms; ++i) {
    const auto milliseconds = [&](const Estimate& e) {
      return interval({e.speed->slow.of[i], e.speed->fast.of[i]}, 1e3);
    };
    if (std::ranges::any_of(all, [&](const Estimate& e) { return e.speed->slow.of[i] > 0; }))
      rows.push_back(row("  " + std::string(kTermNames[i]), all, milliseconds));
  }
  rows.push_back(row("TFLOP/s, each rank", all, [](const Estimate& e) {
    const Run& r = e.run;
    return interval(tokens_of_rank(e), 1e-12 * flops_of_token(r));
  }));
  rows.push_back(row("step, ms", all, [](const Estimate& e) { return interval(e.speed->step(), 1e3); }));
  rows.push_back(row("tokens/s, each rank", all, [](const Estimate& e) { return interval(tokens_of_rank(e)); }));
  rows.push_back(
      row("tokens/s, all", all, [](const Estimate& e) { return interval(tokens_of_rank(e), e.run.mesh.ranks()); }));
  if (q.config.tokens > 0)
    rows.push_back(
        row("days", all, [&](const Estimate& e) { return interval(days_of(e.run, *e.speed, q.config.tokens)); }));
  rows.push_back(row("limit", all, [](const Estimate& e) { return limit_of(*e.speed); }));
}

// A row for each recipe with what differs most between recipes.
Rows rows_by_recipe(const Question& q, const std::vector<Estimate>& all) {
  Rows rows{{"", "memory"}};
  const bool speed = q.machine.has_value();
  if (speed)
    for (const char* heading : {"GEMMs, ms", "casts, ms", "step, ms", "k tokens/s", "of bf16"})
      rows.front().emplace_back(heading);
  else
    for (const char* category : kVaried) rows.front().emplace_back(category);
  for (const Estimate& e : all) {
    rows.push_back({name_of(e), human_bytes(e.memory.plan.total())});
    if (!speed) {
      for (const char* category : kVaried) rows.back().push_back(human_bytes(e.memory.plan.bytes_of(category)));
      continue;
    }
    const auto sum = [&](const Times& t) {
      return t[Term::gemm_forward] + t[Term::gemm_dgrad] + t[Term::gemm_wgrad] + t[Term::gemm_other];
    };
    rows.back().push_back(interval({sum(e.speed->slow), sum(e.speed->fast)}, 1e3));
    rows.back().push_back(interval({e.speed->slow[Term::casts], e.speed->fast[Term::casts]}, 1e3));
    rows.back().push_back(interval(e.speed->step(), 1e3));
    rows.back().push_back(interval(tokens_of_rank(e), 1e-3));
    rows.back().push_back(e.ratio ? interval(*e.ratio) : "-");
  }
  return rows;
}

std::string heading(const Question& q, const Run& run) {
  const int ranks = run.mesh.ranks();
  std::string text = terminal_safe(q.model.name) + ": " + counted(ranks, "rank") +
                     (q.machine ? " on " + terminal_safe(q.machine->name) : "") +
                     (ranks > 1 ? " (" + mesh_text(run.mesh) + ")" : "") + ", " + std::to_string(run.batch_size) +
                     " x " + std::to_string(run.length) + " tokens";
  if (run.micro_batches > 1) text += ", " + std::to_string(run.micro_batches) + " micro-batches";
  return text + ", " + human_count(static_cast<std::uint64_t>(run.tokens_per_step())) + " tokens a step\n";
}

std::string fit_text(const Question& q, const std::vector<Estimate>& all) {
  std::string text;
  for (const Estimate& e : all) {
    const std::size_t needed = e.memory.plan.total(), has = memory_of_rank(*q.machine, e.run);
    const std::string difference = human_bytes(needed > has ? needed - has : has - needed);
    text += name_of(e) +
            (*e.fits ? " fits, " + difference + " are left of " : " does not fit: " + difference + " more than ") +
            human_bytes(has) + "\n";
  }
  return text;
}

double middle(const Estimate& e) { return e.speed->step().slow * e.speed->step().fast; }

// The speed of each estimate in FP4 relative to the fastest in FP8; empty without both.
std::string beside_fp8(const std::vector<Estimate>& all) {
  std::vector<const Estimate*> fp4;
  const Estimate* best = nullptr;
  for (const Estimate& e : all) {
    const quant::Recipe* const recipe = e.run.precision.recipe_or_null();
    if (recipe == nullptr) continue;
    if (recipe->fp4())
      fp4.push_back(&e);
    else if (best == nullptr || middle(e) < middle(*best))
      best = &e;
  }
  std::string text;
  for (const Estimate* e : fp4)
    if (best != nullptr)
      text += name_of(*e) + ": " + interval(ratio_of(*e->speed, *best->speed)) + " times the speed of " +
              name_of(*best) + ", the fastest FP8 recipe of these\n";
  return text;
}

}  // namespace

std::string table_of(const Question& q, const std::vector<Estimate>& all) {
  constexpr std::size_t kMostColumns = 100;
  Rows rows{row("", all, name_of)};
  add_memory(all, rows);
  if (q.machine) add_speed(q, all, rows);
  const std::string table = cli::table(rows);
  const bool wide = width_of(std::string_view(table).substr(0, table.find('\n'))) > kMostColumns;
  std::string text = heading(q, all.back().run) + (wide ? cli::table(rows_by_recipe(q, all)) : table);
  if (!q.machine) return text;
  text += fit_text(q, all);
  const auto base =
      std::ranges::find(all, settings::Precision::bf16, [](const Estimate& e) { return e.run.precision.precision; });
  if (base == all.end()) return text;
  for (const Estimate& e : all)
    if (e.run.precision.recipe_or_null() != nullptr) text += verdict(*base, e) + "\n";
  return text + beside_fp8(all);
}

std::string table_of_units(const std::vector<Estimate>& all) {
  const auto last = static_cast<std::int64_t>(all.front().run.spec.config.num_hidden_layers) + 1;
  const auto cells = [&](std::int64_t unit) {
    std::vector<std::string> row;
    for (const Estimate& e : all) {
      const auto found = e.speed->units.find(unit);
      row.push_back(found == e.speed->units.end() ? "-" : interval(found->second, 1e3));
    }
    return row;
  };
  Rows rows{row("ms in a micro-batch", all, name_of)};
  for (std::int64_t unit = 0; unit <= last;) {
    std::int64_t next = unit + 1;
    while (unit > 0 && next < last && cells(next) == cells(unit)) ++next;
    const std::string layers = next - unit > 1
                                   ? "layers " + std::to_string(unit - 1) + " to " + std::to_string(next - 2) + ", each"
                                   : "layer " + std::to_string(unit - 1);
    rows.push_back(cells(unit));
    rows.back().insert(rows.back().begin(), unit == 0 ? "embedding" : unit == last ? "head and loss" : layers);
    unit = next;
  }
  return cli::table(rows);
}

namespace {

// Milliseconds of some terms, in the middle of their intervals.
double middle_of(const Estimate& e, std::initializer_list<Term> terms) {
  double seconds = 0;
  for (const Term t : terms) seconds += (e.speed->slow[t] + e.speed->fast[t]) / 2;
  return 1e3 * seconds;
}

}  // namespace

std::string verdict(const Estimate& bf16, const Estimate& one) {
  const Range ratio = *one.ratio;
  const std::string speed = name_of(one) + ": " + interval(ratio) + " times the speed of bf16";
  if (ratio.slow >= 1.02) return speed + ": it pays";
  const auto saved = [&](std::initializer_list<Term> terms) { return middle_of(bf16, terms) - middle_of(one, terms); };
  const double gemms = saved({Term::gemm_forward, Term::gemm_dgrad, Term::gemm_wgrad, Term::gemm_other}),
               exchanges = saved({Term::communication, Term::bubble}),
               rest = -saved({Term::casts, Term::launches, Term::kernels, Term::update});
  std::string why = std::string(": in the middle of the intervals GEMMs ") + (gemms < 0 ? "cost " : "save ") +
                    rounded(std::abs(gemms)) + " ms";
  if (exchanges >= 0.001) why += ", communication saves " + rounded(exchanges) + " ms";
  return speed + (ratio.fast <= 1.02 ? ": it does not pay" : ": it may not pay") + why +
         ", casts, launches and other kernels cost " + rounded(rest) + " ms";
}

std::string text_of(const std::vector<Change>& changes) {
  std::string text;
  for (const Change& c : changes)
    text += "  " + c.flags + " saves " + human_bytes(c.saved) + (c.fits ? ", and then it fits" : "") + "\n";
  return text.empty() ? text : "What would help most:\n" + text;
}

std::string text_of(const Estimate& e, const std::optional<Change>& sharded) {
  if (!sharded) return "";
  return name_of(e) + ": " + cli::flag_name("zero") + " 1 keeps whole gradients in f32, " +
         human_bytes(e.memory.plan.bytes_of("gradient buffers")) + " on each rank; " + sharded->flags + " saves " +
         human_bytes(sharded->saved) + "\n";
}

namespace {

std::vector<std::string> row_of(const Estimate& e) {
  const Run& r = e.run;
  const model::Recompute recompute = r.spec.execution.recompute;
  return {mesh_text(r.mesh),
          std::to_string(r.spec.store.zero),
          std::to_string(r.batch_size) + " x " + std::to_string(r.micro_batches),
          recompute == model::Recompute::none   ? "none"
          : recompute == model::Recompute::full ? "full"
                                                : "selective",
          human_bytes(e.memory.plan.total()),
          interval(tokens_of_rank(e)),
          e.ratio ? interval(*e.ratio) : "-",
          limit_of(*e.speed)};
}

}  // namespace

std::string table_of(const Question& q, const Fit& fit, const Estimate& asked) {
  const int ranks = asked.run.mesh.ranks();
  std::string text = terminal_safe(q.model.name) + " in " + name_of(asked) + ": " + counted(ranks, "rank") + " on " +
                     terminal_safe(q.machine->name) + ", " +
                     human_count(static_cast<std::uint64_t>(asked.run.tokens_per_step())) +
                     " tokens a step in sequences of " + std::to_string(asked.run.length) + "\n";
  Rows rows{{"mesh", "zero", "batch", "recompute", "memory", "tokens/s, each", "of bf16", "limit"}};
  if (q.config.tokens > 0) rows.front().emplace_back("days");
  for (const Candidate& c : fit.fastest) {
    rows.push_back(row_of(c.estimate));
    if (q.config.tokens > 0)
      rows.back().push_back(interval(days_of(c.estimate.run, *c.estimate.speed, q.config.tokens)));
  }
  if (!fit.fastest.empty()) text += cli::table(rows);
  text += fit.fastest.empty() ? "none of " : "the fastest of ";
  text += std::to_string(fit.tried) + " settings" + (fit.fastest.empty() ? " fits; " : "; ");
  text += fit.stopped            ? std::string("the search was stopped\n")
          : fit.fewest_ranks > 0 ? "the fewest ranks on which some fit: " + std::to_string(fit.fewest_ranks) + "\n"
                                 : std::string("none fits on up to 4096 ranks\n");
  if (fit.fastest.empty()) return text;
  if (fit.bf16) text += "the first, beside bf16: " + verdict(*fit.bf16, fit.fastest.front().estimate) + "\n";
  const Estimate& best = fit.fastest.front().estimate;
  if (!*asked.fits)
    return text + "the settings of the flags do not fit: " + human_bytes(asked.memory.plan.total()) + "\n";
  const double slower = std::sqrt(asked.speed->step().slow * asked.speed->step().fast /
                                  (best.speed->step().slow * best.speed->step().fast));
  text += "the settings of the flags take " + rounded(slower) + " times as long as the first";
  std::size_t most = 0;
  const auto more = [&](std::size_t i) {
    return (asked.speed->slow.of[i] + asked.speed->fast.of[i] - best.speed->slow.of[i] - best.speed->fast.of[i]) / 2;
  };
  for (std::size_t i = 1; i < kTerms; ++i)
    if (more(i) > more(most)) most = i;
  if (more(most) > 0 && slower > 1.01)
    text += ": " + std::string(kTermNames[most]) + " " + rounded(more(most) * 1e3) + " ms more";
  return text + "\n";
}

std::string table_of_sweep(const std::vector<Pair>& all) {
  Rows rows{{"ranks", "mesh", "memory", "fits", "step, ms", "tokens/s, each", "of the first", "of bf16", "limit"}};
  const Range first = tokens_of_rank(all.front().asked);
  for (const Pair& p : all) {
    const Estimate& e = p.asked;
    const Range each = tokens_of_rank(e);
    rows.push_back({std::to_string(e.run.mesh.ranks()), mesh_text(e.run.mesh), human_bytes(e.memory.plan.total()),
                    *e.fits ? "yes" : "no", interval(e.speed->step(), 1e3), interval(each),
                    rounded(std::sqrt(each.slow * each.fast / (first.slow * first.fast))),
                    e.ratio ? interval(*e.ratio) : "-", limit_of(*e.speed)});
  }
  std::string text = cli::table(rows);
  const Pair& last = all.back();
  if (last.bf16 && last.asked.run.precision.recipe_or_null() != nullptr)
    text += "on " + counted(last.asked.run.mesh.ranks(), "rank") + ", " + verdict(*last.bf16, last.asked) + "\n";
  return text;
}

const Estimate* fastest_of(const std::vector<Estimate>& all, const std::vector<std::string>& recipes) {
  const Estimate* best = nullptr;
  for (std::size_t i = all.size() - recipes.size(); i < all.size(); ++i) {
    const Estimate& e = all[i];
    if (!e.fits || !*e.fits) continue;
    if (best == nullptr || middle(e) < middle(*best)) best = &e;
  }
  return best;
}

std::optional<std::string> command_of(const settings::PlanConfig& config, const Estimate& e) {
  const bool gpu = e.memory.plan.device == device::DeviceType::cuda;
  if (gpu && std::ranges::any_of(e.run.precision.recipes_used(), &quant::Recipe::fp4)) return std::nullopt;
  settings::RunConfig c = config;
  c.seq_length = e.run.length;
  c.precision = e.run.precision;
  const int ranks = e.run.mesh.ranks();
  return (ranks > 1 ? "mpirun -n " + std::to_string(ranks) + " " : std::string()) +
         "fp8-step MODEL.h5 --data DATA.h5 --out RUN --steps N" + settings::step_flags(c);
}

std::string text_of_command(const settings::PlanConfig& config, const Estimate& e) {
  return command_of(config, e).value_or("no command: fp8-step computes recipe nvfp4 on CPUs only") + "\n";
}

}  // namespace fp8::plan
