/// Differences of the routes that two passes over the same tokens take through a mixture of experts. On the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8/json/value.h"

namespace fp8::statistics {

/// Counts of one layer. A token's experts are a set: their order and their weights do not count.
struct RouteDifference {
  std::int64_t tokens = 0;         ///< tokens that are routed
  std::int64_t differing = 0;      ///< tokens whose sets of experts differ
  std::int64_t experts = 0;        ///< experts of all these tokens
  std::int64_t other_experts = 0;  ///< experts of tokens in the second pass that they do not have in the first
};

/// The differences of `other` from `reference`, the experts of the same tokens, `per_token` of each, ascending as in
/// ops::Routes. Tokens whose experts are -1, padding, are left out. Throws Error unless both have the same tokens.
RouteDifference route_difference(std::span<const std::int32_t> reference, std::span<const std::int32_t> other,
                                 std::int64_t per_token);

/// A {"type":"routes"} record as fp8-inspect(1) describes it: of a layer, from 0, in `recipe` against `reference`.
json::Value record_of(const RouteDifference& difference, int layer, const std::string& recipe,
                      const std::string& reference);

/// The rows of a table of {"type":"routes"} records, the largest share of tokens first; the first row is the heading,
/// and at most `most` follow. Other records are ignored.
std::vector<std::vector<std::string>> most_rerouted_first(const std::vector<json::Value>& records, std::size_t most);

/// A line for each recipe with {"type":"routes"} records: the share over all layers, and the layer with the largest.
std::vector<std::string> rerouted(const std::vector<json::Value>& records);

}  // namespace fp8::statistics
