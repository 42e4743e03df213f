// Statistics and verdicts over pairs.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <tuple>

#include "fp8/base/text.h"
#include "fp8/log/compare.h"
#include "or_null.h"
#include "seed.h"
#include "statistics.h"

namespace fp8::log {
namespace {

// The geometric mean of a ratio over the pairs; nullopt when a pair lacks it.
std::optional<double> geometric_mean(const std::vector<Comparison>& pairs, std::optional<double> Comparison::*ratio) {
  if (pairs.size() == 1) return pairs.front().*ratio;
  double sum = 0;
  for (const Comparison& c : pairs) {
    if (!(c.*ratio) || !(*(c.*ratio) > 0)) return std::nullopt;
    sum += std::log(*(c.*ratio));
  }
  return std::exp(sum / static_cast<double>(pairs.size()));
}

// The mean of a figure over the seeds and half of its interval; nullopt when a pair lacks it, and below kEnoughPairs
// seeds.
std::pair<std::optional<double>, std::optional<double>> mean_of(const std::vector<Comparison>& pairs,
                                                                const SeedGroups& groups,
                                                                std::optional<double> Comparison::*figure) {
  std::vector<double> values;
  for (const Comparison& c : pairs) {
    if (!(c.*figure)) return {};
    values.push_back(*(c.*figure));
  }
  const std::vector<double> means = seed_means(values, groups);
  return {mean(means), means.size() >= kEnoughPairs ? mean_interval(means) : std::nullopt};
}

// The standard error of the mean gap from the steps within the runs.
std::optional<double> step_noise_of(const std::vector<Comparison>& pairs, const SeedGroups& groups) {
  std::vector<double> errors;
  for (const Comparison& c : pairs) {
    if (!c.gap || !c.gap_standard_error) return std::nullopt;
    errors.push_back(*c.gap_standard_error);
  }
  return error_of_seed_means(errors, groups);
}

// A record of what a side was computed in.
json::Value computed_record(const Computed& c) {
  json::Array precisions;
  for (const Phase& p : c.precisions)
    precisions.push_back(json::object({{"precision", text_or_null(p.precision)},
                                       {"recipe", text_or_null(p.recipe)},
                                       {"emulated", or_null(p.emulated)}}));
  return json::object({{"precisions", std::move(precisions)},
                       {"emulated", c.emulated()},
                       {"fp8_flop_share", or_null(c.fp8_flop_share)},
                       {"fp8_flop_share_total", or_null(c.fp8_flop_share_total)},
                       {"fp4_flop_share", or_null(c.fp4_flop_share)},
                       {"fp4_flop_share_total", or_null(c.fp4_flop_share_total)}});
}

json::Object pair_record(const Comparison& c) {
  json::Value v = json::object({{"a", record(c.a)},
                                {"b", record(c.b)},
                                {"points", c.points},
                                {"first_tokens", c.first_tokens},
                                {"last_tokens", c.last_tokens},
                                {"window", c.window},
                                {"loss_a", or_null(c.loss_a)},
                                {"loss_b", or_null(c.loss_b)},
                                {"gap", or_null(c.gap)},
                                {"gap_standard_error", or_null(c.gap_standard_error)},
                                {"final_gap", or_null(c.final_gap)},
                                {"speedup", or_null(c.speedup)},
                                {"memory_ratio", or_null(c.memory_ratio)},
                                {"eval_a", or_null(c.eval_a)},
                                {"eval_b", or_null(c.eval_b)},
                                {"eval_gap", or_null(c.eval_gap)}});
  return v.as_object();
}

json::Value count_or_null(const std::optional<std::size_t>& count) {
  return count ? json::Value(*count) : json::Value();
}

json::Array name_array(const std::vector<std::string>& names) {
  json::Array all;
  for (const std::string& name : names) all.emplace_back(name);
  return all;
}

// The two ends of an interval.
json::Value ends(const std::optional<double>& middle, const std::optional<double>& half) {
  if (!middle || !half) return {};
  return json::Array{*middle - *half, *middle + *half};
}

json::Value excludes_zero(const std::optional<double>& middle, const std::optional<double>& half) {
  if (!middle || !half) return {};
  return std::abs(*middle) > *half;
}

std::string_view verdict_name(Verdict v) {
  constexpr std::array<std::string_view, 3> kNames = {"met", "not met", "cannot tell"};
  return kNames.at(static_cast<std::size_t>(v));
}

}  // namespace

bool Computed::emulated() const {
  return std::ranges::any_of(precisions,
                             [](const Phase& p) { return p.precision == "fp8" && p.emulated.value_or(false); });
}

Computed computed_in(std::span<const Summary* const> runs) {
  Computed all;
  for (const Summary* s : runs) {
    for (const auto& [step, recorded] : s->phases) {
      Phase phase = recorded;
      phase.first = 0;
      const bool known = std::ranges::any_of(all.precisions, [&](const Phase& p) {
        return p.precision == phase.precision && p.recipe == phase.recipe && p.emulated == phase.emulated;
      });
      if (!known) all.precisions.push_back(std::move(phase));
    }
  }
  const auto mean_of = [&](std::optional<double> Summary::*share) {
    std::vector<double> shares;
    for (const Summary* s : runs)
      if (s->*share) shares.push_back(*(s->*share));
    return mean(shares);
  };
  all.fp8_flop_share = mean_of(&Summary::fp8_flop_share);
  all.fp8_flop_share_total = mean_of(&Summary::fp8_flop_share_total);
  all.fp4_flop_share = mean_of(&Summary::fp4_flop_share);
  all.fp4_flop_share_total = mean_of(&Summary::fp4_flop_share_total);
  return all;
}

PairedComparison compare(std::span<const Run> a, std::span<const Run> b) {
  PairedComparison all;
  const Pairing pairing = pairs_of(a, b);
  for (const std::size_t i : pairing.alone_a) all.unpaired.push_back(a[i].name);
  for (const std::size_t i : pairing.alone_b) all.unpaired.push_back(b[i].name);
  for (const auto& [i, j] : pairing.pairs) {
    all.pairs.push_back(compare(a[i], b[j]));
    all.seeds.push_back(common_seed(a[i], b[j]));
    for (const Run* run : {&a[i], &b[j]}) {
      if (run->settings.empty()) all.unknown.push_back(run->name);
    }
    for (Difference& d : differences(a[i], b[j])) {
      if (std::find(all.differences.begin(), all.differences.end(), d) == all.differences.end()) {
        all.differences.push_back(std::move(d));
      }
    }
  }
  std::vector<const Summary*> runs_a, runs_b;
  for (const Comparison& p : all.pairs) runs_a.push_back(&p.a), runs_b.push_back(&p.b);
  all.a = computed_in(runs_a), all.b = computed_in(runs_b);
  const SeedGroups groups = group_by_seed(all.seeds);
  all.seed_count = groups.size();
  std::tie(all.gap, all.interval) = mean_of(all.pairs, groups, &Comparison::gap);
  std::tie(all.eval_gap, all.eval_interval) = mean_of(all.pairs, groups, &Comparison::eval_gap);
  all.step_noise = step_noise_of(all.pairs, groups);
  all.speedup = geometric_mean(all.pairs, &Comparison::speedup);
  all.memory_ratio = geometric_mean(all.pairs, &Comparison::memory_ratio);
  return all;
}

std::string interval_basis(std::size_t seeds, std::size_t pairs) {
  const std::string of_pairs = counted(pairs, "pair");
  return seeds == pairs ? of_pairs : counted(seeds, "seed") + ", of " + of_pairs;
}

std::optional<double> mean_interval(std::span<const double> values) {
  if (values.size() < 2) return std::nullopt;
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double v : values) sum += v;
  for (const double v : values) squares += (v - sum / n) * (v - sum / n);
  return student_t95(values.size() - 1) * std::sqrt(squares / (n - 1) / n);
}

std::optional<std::size_t> more_pairs(double interval, std::size_t pairs, double distance) {
  if (pairs < 2 || !(distance > 0)) return std::nullopt;
  const double scale = interval * std::sqrt(static_cast<double>(pairs)) / student_t95(pairs - 1);
  const auto narrow = [&](std::size_t n) {
    return student_t95(n - 1) * scale / std::sqrt(static_cast<double>(n)) < distance;
  };
  if (!narrow(kMostPairs)) return std::nullopt;
  std::size_t wide = pairs, enough = kMostPairs;
  while (wide + 1 < enough) (narrow(std::midpoint(wide, enough)) ? enough : wide) = std::midpoint(wide, enough);
  return enough - pairs;
}

std::optional<std::size_t> pairs_to_tell(const PairedComparison& c, const std::optional<double>& gap,
                                         const std::optional<double>& interval) {
  if (!gap || !interval || std::abs(*gap) > *interval) return std::nullopt;
  return more_pairs(*interval, c.seed_count, std::abs(*gap));
}

std::optional<std::size_t> pairs_to_gate(const PairedComparison& c, double nats) {
  if (!c.interval || verdict(c, nats) != Verdict::cannot_tell) return std::nullopt;
  return more_pairs(*c.interval, c.seed_count, std::abs(std::abs(*c.gap) - nats));
}

Verdict verdict(const PairedComparison& c, double nats) {
  const auto diverged = [](const Comparison& p) { return p.a.diverged || p.b.diverged; };
  if (!c.gap || std::any_of(c.pairs.begin(), c.pairs.end(), diverged)) return Verdict::not_met;
  const double size = std::abs(*c.gap), half = c.interval.value_or(0);
  if (size + half <= nats) return Verdict::met;
  return size - half > nats ? Verdict::not_met : Verdict::cannot_tell;
}

std::vector<Difference> refused(const PairedComparison& c, std::span<const std::string> allowed) {
  std::vector<Difference> left;
  const auto allows = [&](const std::string& name) {
    return std::any_of(allowed.begin(), allowed.end(), [&](const std::string& a) { return a == name || a == "all"; });
  };
  for (const Difference& d : c.differences) {
    if (d.checked && !allows(d.name)) left.push_back(d);
  }
  return left;
}

json::Value record(const PairedComparison& c, std::optional<double> gate) {
  json::Object all = c.pairs.size() == 1 ? pair_record(c.pairs.front()) : json::Object();
  json::Array pairs, settings;
  for (std::size_t i = 0; i < c.pairs.size(); ++i) {
    json::Object pair = pair_record(c.pairs[i]);
    const std::optional<std::int64_t> seed = parse_int64(c.seeds[i]);
    pair.set("seed", seed ? json::Value(*seed) : json::Value());
    pairs.emplace_back(std::move(pair));
  }
  for (const Difference& d : c.differences) {
    settings.push_back(json::object({{"name", d.name}, {"a", d.a}, {"b", d.b}, {"checked", d.checked}}));
  }
  json::Object out;
  out.set("type", "compare");
  for (const auto& [key, value] : all) out.set(key, value);
  out.set("sides", json::object({{"a", computed_record(c.a)}, {"b", computed_record(c.b)}}));
  out.set("pairs", std::move(pairs));
  out.set("seeds", c.seed_count);
  out.set("gap", or_null(c.gap));
  out.set("gap_interval", ends(c.gap, c.interval));
  out.set("gap_standard_error", or_null(c.step_noise));
  out.set("beyond_noise", excludes_zero(c.gap, c.interval));
  out.set("more_pairs", count_or_null(pairs_to_tell(c, c.gap, c.interval)));
  out.set("eval_gap", or_null(c.eval_gap));
  out.set("eval_gap_interval", ends(c.eval_gap, c.eval_interval));
  out.set("eval_beyond_noise", excludes_zero(c.eval_gap, c.eval_interval));
  out.set("eval_more_pairs", count_or_null(pairs_to_tell(c, c.eval_gap, c.eval_interval)));
  out.set("speedup", or_null(c.speedup));
  out.set("speedup_emulated", c.a.emulated() || c.b.emulated());
  out.set("memory_ratio", or_null(c.memory_ratio));
  out.set("settings", std::move(settings));
  out.set("unknown_settings", name_array(c.unknown));
  out.set("unpaired", name_array(c.unpaired));
  out.set("gate", or_null(gate));
  out.set("met", gate ? json::Value(verdict(c, *gate) == Verdict::met) : json::Value());
  out.set("verdict", gate ? json::Value(verdict_name(verdict(c, *gate))) : json::Value());
  out.set("gate_more_pairs", gate ? count_or_null(pairs_to_gate(c, *gate)) : json::Value());
  return out;
}

}  // namespace fp8::log
