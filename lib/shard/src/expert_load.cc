// Loads of experts, and the losses that balance them. The share of an expert is a constant of the gradient, so that one
// reduction of counts between forward and backward suffices.
#include "fp8/shard/expert_load.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include "fp8/device/device.h"
#include "fp8/device/profile.h"
#include "fp8/ops/norm.h"

namespace fp8::shard {

using device::Context;
using dtype::DType;

ExpertLoad::ExpertLoad(const Context& ctx, const hf::ModelConfig& config, Planned planned, int in_flight)
    : layers_(config.num_hidden_layers),
      experts_(config.experts.value().count),
      planned_(std::move(planned)),
      aux_(tensor::allocate(ctx, DType::f32, {layers_, experts_}, "scratch")),
      rows_(static_cast<std::size_t>(layers_ * experts_), 0) {
  for (int i = 0; i < in_flight; ++i) flights_.emplace_back(ctx, *this);
}

ExpertLoad::Flight::Flight(const Context& ctx, ExpertLoad& load)
    : load_(load),
      sums_(tensor::allocate(ctx, DType::f64, {load.layers_, load.experts_ + 2}, "scratch")),
      passes_(static_cast<std::size_t>(load.layers_), 0),
      counts_(load.rows_) {
  ops::zero(ctx, sums_);
}

void ExpertLoad::Flight::clear() {
  std::ranges::fill(passes_, 0);
  std::ranges::fill(counts_, 0);
}

void ExpertLoad::begin(const BalanceStep& step) {
  step_ = step;
  training_ = true;
  planned_gemms_ = most_passes_ = 0;
  aux_loss_ = z_loss_ = 0;
  for (Flight& flight : flights_) flight.clear();
  std::ranges::fill(rows_, 0);
}

void ExpertLoad::begin_inference() {
  begin({});
  training_ = false;
}

void ExpertLoad::Flight::routed(const Context& ctx, int layer, const ops::Routes& routes,
                                std::span<const std::int64_t> first) {
  if (load_.training_ && load_.has_losses())
    ops::add_route_sums(ctx, routes, sums_.rows(layer, layer + 1).reshaped({load_.experts_ + 2}));
  if (ctx.dry) return;
  for (std::size_t e = 0; e + 1 < first.size(); ++e) {
    const auto at = static_cast<std::size_t>(layer * load_.experts_) + e;
    counts_[at] += first[e + 1] - first[e];
    load_.rows_[at] += first[e + 1] - first[e];
  }
}

void ExpertLoad::Flight::computed(int layer, std::int64_t first_expert, std::span<const std::int64_t> first) {
  load_.planned_gemms_ += load_.planned_(layer, first_expert, first, load_.training_);
  load_.most_passes_ = std::max(load_.most_passes_, ++passes_[static_cast<std::size_t>(layer)]);
}

model::RoutingGradients ExpertLoad::Flight::gradients(const Context& ctx) {
  const BalanceStep& step = load_.step_;
  std::vector<std::int64_t> counts = counts_;
  clear();
  if (!load_.training_ || !load_.has_losses()) return {};
  const std::vector<double> sums = tensor::to_host<double>(ctx, sums_);
  ops::zero(ctx, sums_);
  comm::Communicator* const ranks = step.stage != nullptr ? step.stage : step.ranks;
  if (step.aux > 0 && ranks != nullptr) {
    const device::Timer timer(ctx, comm::exchange_span("all-reduce", device::ExchangeKind::all_reduce, *ranks,
                                                       8.0 * static_cast<double>(counts.size())));
    if (!ctx.dry) ranks->all_reduce(std::span<std::int64_t>(counts), comm::Reduce::sum);
  }
  if (ctx.dry) return {step.aux > 0 ? load_.aux_ : tensor::View{}, 0};
  std::vector<float> aux(counts.size(), 0);
  const auto width = static_cast<std::size_t>(load_.experts_);
  for (std::size_t layer = 0; layer < static_cast<std::size_t>(load_.layers_); ++layer) {
    const std::span count = std::span(counts).subspan(layer * width, width);
    const std::span sum = std::span(sums).subspan(layer * (width + 2), width + 2);
    load_.z_loss_ += sum[width] / step.tokens;
    const auto all = static_cast<double>(std::accumulate(count.begin(), count.end(), std::int64_t{0}));
    for (std::size_t e = 0; e < width && all > 0; ++e) {
      const double share = static_cast<double>(load_.experts_) * static_cast<double>(count[e]) / all / step.tokens;
      load_.aux_loss_ += share * sum[e];
      aux[layer * width + e] = static_cast<float>(step.aux * share);
    }
  }
  device::copy_bytes(ctx, load_.aux_.data, ctx.device, aux.data(), device::DeviceType::host, load_.aux_.bytes());
  return {step.aux > 0 ? load_.aux_ : tensor::View{}, static_cast<float>(step.z / step.tokens)};
}

RoutingResult ExpertLoad::finish() const {
  RoutingResult result{aux_loss_, z_loss_, rows_, experts_, most_passes_};
  if (step_.ranks == nullptr) return result;
  std::array<double, 2> losses{aux_loss_, z_loss_};
  step_.ranks->all_reduce(std::span<double>(losses), comm::Reduce::sum);
  step_.ranks->all_reduce(std::span<std::int64_t>(result.rows), comm::Reduce::sum);
  step_.ranks->all_reduce(std::span<std::int64_t>(&result.passes, 1), comm::Reduce::max);
  result.aux_loss = losses[0];
  result.z_loss = losses[1];
  return result;
}

namespace {

// Calls body(rows of experts, their sum) for each layer that has any.
template <class Body>
void each_layer(const RoutingResult& r, const Body& body) {
  const auto width = static_cast<std::size_t>(r.experts);
  for (std::size_t at = 0; at < r.rows.size(); at += width) {
    const std::span rows = std::span(r.rows).subspan(at, width);
    if (const std::int64_t all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0}); all > 0) body(rows, all);
  }
}

}  // namespace

double RoutingResult::largest_load() const {
  double largest = 0;
  each_layer(*this, [&](std::span<const std::int64_t> of_layer, std::int64_t all) {
    const auto most = static_cast<double>(std::ranges::max(of_layer));
    largest = std::max(largest, most * static_cast<double>(experts) / static_cast<double>(all));
  });
  return largest;
}

std::int64_t RoutingResult::idle() const {
  std::int64_t idle = 0;
  each_layer(*this,
             [&](std::span<const std::int64_t> of_layer, std::int64_t) { idle += std::ranges::count(of_layer, 0); });
  return idle;
}

}  // namespace fp8::shard
