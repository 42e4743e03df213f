/// Routes in memory of their own and logits for tests of mixtures of experts.
#pragma once

#include <string>
#include <vector>

#include "fp8/ops/route.h"
#include "reference.h"

namespace fp8::ops {

/// The memory of routes; integers begin as 77, floats as 7.
struct RouteTensors {
  Tensor probabilities, log_sums, experts, weights, rows, tokens, counts;

  /// M tokens, E experts, k for each token.
  RouteTensors(std::int64_t m, std::int64_t e, std::int64_t k)
      : probabilities(filled(DType::f32, {m, e})),
        log_sums(filled(DType::f32, {m})),
        experts(filled(DType::i32, {m, k})),
        weights(filled(DType::f32, {m, k})),
        rows(filled(DType::i32, {m, k})),
        tokens(filled(DType::i32, {k * m})),
        counts(filled(DType::i32, {e})) {}
  /// Views of them.
  Routes routes() const {
    return {probabilities.view(), log_sums.view(), experts.view(), weights.view(),
            rows.view(),          tokens.view(),   counts.view()};
  }
  /// A tensor with one value.
  static Tensor filled(DType type, tensor::Shape shape) {
    Tensor t(type, shape);
    const std::int64_t size = t.view().size();
    write(t.view(), Values(static_cast<std::size_t>(size), type == DType::i32 ? 77 : 7));
    return t;
  }
};

/// The integers of a view.
inline std::vector<std::int32_t> integers(const View& v) {
  return {v.as<std::int32_t>(), v.as<std::int32_t>() + v.size()};
}

/// Logits, the number of experts of a token, and padding.
struct RouteProblem {
  std::int64_t m, e, k;                    ///< tokens, experts, experts of a token
  bool normalize = true;                   ///< see RouteOptions
  std::vector<std::int32_t> lengths = {};  ///< see RouteOptions; empty: no padding
  double scale = 3;                        ///< logits are in [-scale, scale)
  bool ties = false;                       ///< logits are integers
  int favorite = -1;  ///< this expert has the largest logit of each token, the next ones the others

  /// f64 [M, E]
  Values logits() const {
    Values x = random_values(m * e, static_cast<unsigned>(m + e + k), scale);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (ties) x[i] = std::floor(x[i]);
      const auto expert = static_cast<std::int64_t>(i) % e;
      if (favorite >= 0 && expert >= favorite) x[i] += static_cast<double>(40 - (expert - favorite) * 8);
    }
    return x;
  }
  /// T
  std::int64_t length() const { return lengths.empty() ? 0 : m / std::ssize(lengths); }
  /// Whether a token is not padding.
  bool routed(std::int64_t token) const {
    return lengths.empty() || token % length() < lengths[static_cast<std::size_t>(token / length())];
  }
  /// The lengths as a tensor; empty if there is no padding.
  Tensor lengths_tensor() const {
    if (lengths.empty()) return {};
    return make(DType::i32, {std::ssize(lengths)}, Values(lengths.begin(), lengths.end()));
  }
  /// "37 tokens, 7 experts, top 3" for a message.
  std::string name() const {
    return std::to_string(m) + " tokens, " + std::to_string(e) + " experts, top " + std::to_string(k) +
           (normalize ? ", normalized" : "") + (lengths.empty() ? "" : ", padded") + (ties ? ", ties" : "");
  }
};

/// Problems with every special case: ties, experts without rows, one with all rows, padding, one expert for a token,
/// and all of them.
inline std::vector<RouteProblem> route_problems() {
  std::vector<RouteProblem> all;
  for (const bool normalize : {true, false}) {
    for (const bool ties : {false, true}) {
      all.push_back({.m = 37, .e = 7, .k = 3, .normalize = normalize, .ties = ties});
      all.push_back({.m = 70, .e = 33, .k = 1, .normalize = normalize, .ties = ties});
      all.push_back({.m = 5, .e = 70, .k = 9, .normalize = normalize, .lengths = {2, 0, 1, 0, 1}, .ties = ties});
      all.push_back({.m = 48, .e = 6, .k = 2, .normalize = normalize, .lengths = {12, 0, 7, 1}, .ties = ties});
    }
    all.push_back({.m = 100, .e = 128, .k = 8, .normalize = normalize});
    all.push_back({.m = 9, .e = 5, .k = 5, .normalize = normalize});
    all.push_back({.m = 3, .e = 1, .k = 1, .normalize = normalize});
    all.push_back({.m = 40, .e = 6, .k = 1, .normalize = normalize, .favorite = 4});
    all.push_back({.m = 40, .e = 6, .k = 2, .normalize = normalize, .favorite = 2});
    all.push_back({.m = 8, .e = 6, .k = 2, .normalize = normalize, .lengths = {0, 0}});
  }
  return all;
}

}  // namespace fp8::ops
