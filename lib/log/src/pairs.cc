// Pairs runs, and computes the statistics and the verdict over pairs.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/log/compare.h"
#include "statistics.h"

namespace fp8::log {
namespace {

template <typename T>
json::Value or_null(const std::optional<T>& value) {
  return value ? json::Value(*value) : json::Value();
}

// What a run is paired by: its seed, and its MODEL where seeds repeat. Keys are ordered by number, then by text.
struct Key {
  std::int64_t number = 0;  // the seed, if it is an integer
  std::string seed{}, model{};

  auto operator<=>(const Key&) const = default;
};

// The index of the run for each key. Throws Error when two runs have the same key.
std::map<Key, std::size_t> by_key(std::span<const Run> runs, const std::vector<Key>& keys) {
  std::map<Key, std::size_t> found;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto [at, fresh] = found.emplace(keys[i], i);
    if (!fresh) {
      throw Error(runs[at->second].path + " and " + runs[i].path +
                  " have the same seed and MODEL, so their partners are unknown");
    }
  }
  return found;
}

std::string seed_of(const Run& run) { return setting_text(run, "seed").value_or(""); }

std::vector<Key> keys_of(std::span<const Run> runs, bool with_model) {
  std::vector<Key> keys;
  for (const Run& run : runs) {
    const std::string seed = seed_of(run);
    keys.push_back({parse_int64(seed).value_or(0), seed, with_model ? setting_text(run, "model").value_or("") : ""});
  }
  return keys;
}

bool repeats(std::vector<Key> keys) {
  std::sort(keys.begin(), keys.end());
  return std::adjacent_find(keys.begin(), keys.end()) != keys.end();
}

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

// Throws Error when a side has the same run twice: it would count as two pairs.
void check_distinct(std::span<const Run> side) {
  for (std::size_t i = 1; i < side.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (side[i].path == side[j].path) throw Error(side[i].path + ": given twice on one side");
}

// Sets the mean gap, its interval and its step noise.
void measure(PairedComparison& all) {
  std::vector<double> gaps;
  double variance = 0;
  bool steps = true;
  for (const Comparison& c : all.pairs) {
    if (!c.gap) return;
    gaps.push_back(*c.gap);
    steps = steps && c.gap_standard_error;
    variance += steps ? *c.gap_standard_error * *c.gap_standard_error : 0;
  }
  const auto n = static_cast<double>(gaps.size());
  all.gap = mean(gaps);
  if (steps) all.step_noise = std::sqrt(variance) / n;
  if (gaps.size() >= kEnoughPairs) all.interval = mean_interval(gaps);
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
                                {"memory_ratio", or_null(c.memory_ratio)}});
  return v.as_object();
}

std::string_view name_of(Verdict v) {
  constexpr std::array<std::string_view, 3> kNames = {"met", "not met", "cannot tell"};
  return kNames.at(static_cast<std::size_t>(v));
}

}  // namespace

std::vector<std::pair<std::size_t, std::size_t>> pairs_of(std::span<const Run> a, std::span<const Run> b) {
  if (a.size() != b.size()) {
    throw Error(std::to_string(a.size()) + " and " + std::to_string(b.size()) + " runs cannot be paired");
  }
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  const auto unknown = [](const Run& run) { return run.settings.empty(); };
  const bool none_known = std::all_of(a.begin(), a.end(), unknown) && std::all_of(b.begin(), b.end(), unknown);
  if (none_known) {
    check_distinct(a);
    check_distinct(b);
  }
  for (std::size_t i = 0; i < a.size() && (a.size() == 1 || none_known); ++i) pairs.emplace_back(i, i);
  if (!pairs.empty()) return pairs;
  const bool with_model = repeats(keys_of(a, false)) || repeats(keys_of(b, false));
  const std::map<Key, std::size_t> runs = by_key(a, keys_of(a, with_model)),
                                   partners = by_key(b, keys_of(b, with_model));
  for (const auto& [key, i] : runs) {
    const auto at = partners.find(key);
    if (at == partners.end()) {
      const std::string seed = seed_of(a[i]);
      if (seed.empty()) throw Error(a[i].path + ": its log has no seed, by which runs are paired");
      throw Error(a[i].path + ": no run of the other side has its seed" + (with_model ? " and MODEL" : "") + " (" +
                  seed + ")");
    }
    pairs.emplace_back(i, at->second);
  }
  return pairs;
}

PairedComparison compare(std::span<const Run> a, std::span<const Run> b) {
  PairedComparison all;
  for (const auto& [i, j] : pairs_of(a, b)) {
    all.pairs.push_back(compare(a[i], b[j]));
    const std::string seed = seed_of(a[i]);
    all.seeds.push_back(seed == seed_of(b[j]) ? seed : "");
    for (const Run* run : {&a[i], &b[j]}) {
      if (run->settings.empty()) all.unknown.push_back(run->name);
    }
    for (Difference& d : differences(a[i], b[j])) {
      if (std::find(all.differences.begin(), all.differences.end(), d) == all.differences.end()) {
        all.differences.push_back(std::move(d));
      }
    }
  }
  measure(all);
  all.speedup = geometric_mean(all.pairs, &Comparison::speedup);
  all.memory_ratio = geometric_mean(all.pairs, &Comparison::memory_ratio);
  return all;
}

std::optional<double> mean_interval(std::span<const double> values) {
  if (values.size() < 2) return std::nullopt;
  const auto n = static_cast<double>(values.size());
  double sum = 0, squares = 0;
  for (const double v : values) sum += v;
  for (const double v : values) squares += (v - sum / n) * (v - sum / n);
  return student_t95(values.size() - 1) * std::sqrt(squares / (n - 1) / n);
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
  json::Array pairs, settings, unknown;
  for (std::size_t i = 0; i < c.pairs.size(); ++i) {
    json::Object pair = pair_record(c.pairs[i]);
    const std::optional<std::int64_t> seed = parse_int64(c.seeds[i]);
    pair.set("seed", seed ? json::Value(*seed) : json::Value());
    pairs.emplace_back(std::move(pair));
  }
  for (const Difference& d : c.differences) {
    settings.push_back(json::object({{"name", d.name}, {"a", d.a}, {"b", d.b}, {"checked", d.checked}}));
  }
  for (const std::string& name : c.unknown) unknown.emplace_back(name);
  const bool zero_outside = c.gap && c.interval && std::abs(*c.gap) > *c.interval;
  json::Value interval;
  if (c.gap && c.interval) interval = json::Array{*c.gap - *c.interval, *c.gap + *c.interval};
  json::Object out;
  out.set("type", "compare");
  for (const auto& [key, value] : all) out.set(key, value);
  out.set("pairs", std::move(pairs));
  out.set("gap", or_null(c.gap));
  out.set("gap_interval", std::move(interval));
  out.set("gap_standard_error", or_null(c.step_noise));
  out.set("beyond_noise", c.interval ? json::Value(zero_outside) : json::Value());
  out.set("speedup", or_null(c.speedup));
  out.set("memory_ratio", or_null(c.memory_ratio));
  out.set("settings", std::move(settings));
  out.set("unknown_settings", std::move(unknown));
  out.set("gate", or_null(gate));
  out.set("met", gate ? json::Value(verdict(c, *gate) == Verdict::met) : json::Value());
  out.set("verdict", gate ? json::Value(name_of(verdict(c, *gate))) : json::Value());
  return out;
}

}  // namespace fp8::log
