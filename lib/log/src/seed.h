/// The seeds of runs and pairs. Pairs with the same seed have the same order of the data, so they are no independent
/// observations: statistics use the mean of the pairs of each seed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "fp8/log/run.h"

namespace fp8::log {

/// The value of the setting seed; empty when the log lacks it.
std::string seed_of(const Run& run);

/// The seed of both runs of a pair; empty when it is unknown or when the runs have different ones.
std::string common_seed(const Run& a, const Run& b);

/// The pairs of each seed, by index.
using SeedGroups = std::vector<std::vector<std::size_t>>;

/// Groups pairs by their seeds, in order of appearance. A pair without a common seed is a group of its own.
SeedGroups group_by_seed(std::span<const std::string> seeds);

/// The mean of the values of each group.
std::vector<double> seed_means(std::span<const double> values, const SeedGroups& groups);

/// The standard error of the mean of seed_means() of values that have these independent standard errors.
double error_of_seed_means(std::span<const double> errors, const SeedGroups& groups);

}  // namespace fp8::log
