// Groups of pairs that share a seed.
#include "seed.h"

#include <algorithm>
#include <cmath>

namespace fp8::log {

std::string seed_of(const Run& run) { return setting_text(run, "seed").value_or(""); }

std::string common_seed(const Run& a, const Run& b) {
  const std::string seed = seed_of(a);
  return seed == seed_of(b) ? seed : "";
}

SeedGroups group_by_seed(std::span<const std::string> seeds) {
  SeedGroups groups;
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    const auto same = [&](const std::vector<std::size_t>& group) { return seeds[group.front()] == seeds[i]; };
    const auto known = seeds[i].empty() ? groups.end() : std::ranges::find_if(groups, same);
    if (known == groups.end()) {
      groups.push_back({i});
    } else {
      known->push_back(i);
    }
  }
  return groups;
}

std::vector<double> seed_means(std::span<const double> values, const SeedGroups& groups) {
  std::vector<double> means;
  for (const std::vector<std::size_t>& group : groups) {
    double sum = 0;
    for (const std::size_t i : group) sum += values[i];
    means.push_back(sum / static_cast<double>(group.size()));
  }
  return means;
}

double error_of_seed_means(std::span<const double> errors, const SeedGroups& groups) {
  double variance = 0;
  for (const std::vector<std::size_t>& group : groups) {
    double sum = 0;
    for (const std::size_t i : group) sum += errors[i] * errors[i];
    variance += sum / static_cast<double>(group.size() * group.size());
  }
  return std::sqrt(variance) / static_cast<double>(groups.size());
}

}  // namespace fp8::log
