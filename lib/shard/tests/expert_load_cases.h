/// Loads of experts against a plain reference, for a group of any size.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "expert_model.h"
#include "fp8/shard/expert_load.h"

namespace fp8::shard {

/// The routers' logits of one layer for one micro-batch of one rank.
struct RouterLogits {
  std::int64_t layer = 0;
  std::vector<std::vector<float>> tokens{};  ///< [M, E]; the first are routed
  std::int64_t padding = 0;                  ///< number of the last tokens that are padding
};

/// What one layer's router adds at an accumulation step: counts of experts, sums of probabilities, of log_sum^2.
struct LayerSums {
  std::vector<std::int64_t> rows{};
  std::vector<double> probabilities{};
  double squares = 0;
  std::int64_t tokens = 0;
};

/// The logits of a rank's micro-batch: 5 + rank tokens with 2 + rank of padding behind them, of which each expert gets
/// some rows but the last of layer 2, which gets none.
inline RouterLogits router_logits(std::int64_t layer, int micro_batch, int rank, std::int64_t experts) {
  RouterLogits logits{layer, {}, 2 + rank};
  for (std::int64_t token = 0; token < 5 + rank + logits.padding; ++token) {
    std::vector<float>& of_token = logits.tokens.emplace_back();
    for (std::int64_t e = 0; e < experts; ++e) {
      const std::int64_t mixed = (token * 7 + e * 5 + layer * 3 + micro_batch * 11 + rank * 13) % 17;
      of_token.push_back(layer == 2 && e + 1 == experts ? -9.0f : 0.25f * static_cast<float>(mixed) - 2.0f);
    }
  }
  return logits;
}

/// Adds what a router computes from logits, in f64.
inline void add_reference(const RouterLogits& logits, std::int64_t per_token, LayerSums& sums) {
  const std::size_t experts = logits.tokens.front().size();
  sums.rows.resize(experts, 0);
  sums.probabilities.resize(experts, 0);
  for (std::size_t t = 0; t + static_cast<std::size_t>(logits.padding) < logits.tokens.size(); ++t) {
    const std::vector<float>& of_token = logits.tokens[t];
    double all = 0;
    for (const float x : of_token) all += std::exp(static_cast<double>(x));
    std::vector<std::size_t> order(experts);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) { return of_token[a] > of_token[b]; });
    for (std::size_t e = 0; e < experts; ++e) sums.probabilities[e] += std::exp(static_cast<double>(of_token[e])) / all;
    for (std::int64_t i = 0; i < per_token; ++i) ++sums.rows[order[static_cast<std::size_t>(i)]];
    sums.squares += std::log(all) * std::log(all);
    ++sums.tokens;
  }
}

/// The observer of one rank, and the routes that it gets.
class LoadKit {
 public:
  LoadKit() : config(test::small_mixture()), load(ctx_(), config, planned()) {}

  static constexpr std::int64_t kGemms = 3;  ///< planned GEMMs of a layer in training
  /// The layers with experts.
  static std::vector<std::int64_t> layers() { return {0, 2}; }
  std::int64_t experts() const { return config.experts.value().count; }
  std::int64_t per_token() const { return config.experts.value().per_token; }

  /// Routes logits and lets the observer see them.
  void route(const RouterLogits& logits) {
    const device::Scope scope(arena);
    const auto tokens = static_cast<std::int64_t>(logits.tokens.size());
    const auto made = [&](dtype::DType type, const tensor::Shape& shape) {
      return tensor::allocate(ctx, type, shape, "test");
    };
    const tensor::View values = made(dtype::DType::f32, {tokens, experts()});
    for (std::int64_t t = 0; t < tokens; ++t)
      std::ranges::copy(logits.tokens[static_cast<std::size_t>(t)], values.as<float>() + t * experts());
    const tensor::View lengths = made(dtype::DType::i32, {1});
    *lengths.as<std::int32_t>() = static_cast<std::int32_t>(tokens - logits.padding);
    const ops::Routes routes{made(dtype::DType::f32, {tokens, experts()}),
                             made(dtype::DType::f32, {tokens}),
                             made(dtype::DType::i32, {tokens, per_token()}),
                             made(dtype::DType::f32, {tokens, per_token()}),
                             made(dtype::DType::i32, {tokens, per_token()}),
                             made(dtype::DType::i32, {tokens * per_token()}),
                             made(dtype::DType::i32, {experts()})};
    ops::route_forward(ctx, values, {true, tokens, lengths}, routes);
    std::vector<std::int64_t> first{0};
    for (std::int64_t e = 0; e < experts(); ++e) first.push_back(first.back() + routes.counts.as<std::int32_t>()[e]);
    load.routed(ctx, static_cast<int>(logits.layer), routes, first);
    load.computed(static_cast<int>(logits.layer), 0, first);
  }

  device::Arena arena{std::size_t{1} << 16, device::DeviceType::host};
  device::Context ctx{};
  hf::ModelConfig config;
  ExpertLoad load;

 private:
  const device::Context& ctx_() { return ctx.arena = &arena, ctx; }
  static ExpertLoad::Planned planned() {
    return [](int, std::int64_t, std::span<const std::int64_t>, bool backward) { return backward ? kGemms : 1; };
  }
};

/// Losses, gradients and loads of a step of `micro_batches` accumulation steps over all ranks are those of the
/// reference: the shares of experts are those of all ranks at one accumulation step, the losses are weighted by tokens.
inline void check_expert_load(comm::Communicator& ranks, int micro_batches) {
  LoadKit kit;
  constexpr double kAux = 0.25, kZ = 0.125;
  const std::int64_t experts = kit.experts();
  const auto width = static_cast<std::size_t>(experts);
  std::int64_t tokens = 0;
  for (int rank = 0; rank < ranks.size(); ++rank) tokens += micro_batches * (5 + rank);
  double aux = 0, z = 0;
  std::vector<std::int64_t> rows(3 * width, 0);
  kit.load.begin({kAux, kZ, static_cast<double>(tokens), &ranks});
  for (int m = 0; m < micro_batches; ++m) {
    std::vector<double> gradients(3 * width, 0);
    for (const std::int64_t layer : LoadKit::layers()) {
      LayerSums sums;
      for (int rank = 0; rank < ranks.size(); ++rank)
        add_reference(router_logits(layer, m, rank, experts), kit.per_token(), sums);
      z += sums.squares / static_cast<double>(tokens);
      for (std::size_t e = 0; e < width; ++e) {
        const double share = static_cast<double>(sums.rows[e]) / static_cast<double>(kit.per_token() * sums.tokens);
        aux += static_cast<double>(experts) * share * sums.probabilities[e] / static_cast<double>(tokens);
        gradients[static_cast<std::size_t>(layer) * width + e] =
            kAux * static_cast<double>(experts) * share / static_cast<double>(tokens);
        rows[static_cast<std::size_t>(layer) * width + e] += sums.rows[e];
      }
      kit.route(router_logits(layer, m, ranks.rank(), experts));
    }
    const model::RoutingGradients given = kit.load.gradients(kit.ctx);
    EXPECT_FLOAT_EQ(given.z, static_cast<float>(kZ / static_cast<double>(tokens)));
    for (std::size_t i = 0; i < gradients.size(); ++i)
      EXPECT_FLOAT_EQ(given.aux.as<float>()[i], static_cast<float>(gradients[i])) << "micro-batch " << m << ", " << i;
  }
  const RoutingResult result = kit.load.finish();
  EXPECT_NEAR(result.aux_loss, aux, 1e-6 * aux);
  EXPECT_NEAR(result.z_loss, z, 1e-6 * z);
  EXPECT_EQ(result.rows, rows);
  EXPECT_EQ(result.experts, experts);
  EXPECT_EQ(result.idle(), 1) << "the last expert of the last layer; the layer without experts has none";
  double largest = 0;
  for (std::size_t i = 0; i < rows.size(); ++i)
    largest = std::max(largest, static_cast<double>(rows[i] * experts) / static_cast<double>(kit.per_token() * tokens));
  EXPECT_DOUBLE_EQ(result.largest_load(), largest);
  EXPECT_EQ(kit.load.planned_gemms(), 2 * micro_batches * LoadKit::kGemms);
}

}  // namespace fp8::shard
