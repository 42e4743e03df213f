// The sums of all nodes come from one exponential for each logit: exp(b z) for b = j/8 is a power of exp(z/8). Sums
// have eight lanes, so that their bits do not depend on the width of vectors.
#include "fp8/judge/logits.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fp8::judge {
namespace {

constexpr std::size_t kLanes = 8, kBlock = 512;

struct Sums {
  std::array<double, kGrid> weight{}, moment{};  // sum exp(b z), sum z exp(b z)
};

// Adds logits z, which are at most 0, to the sums of all nodes.
void add_block(std::span<const float> z, Sums& sums) {
  std::array<float, kBlock> base{}, power{}, value{};
  for (std::size_t i = 0; i < z.size(); ++i) {
    value[i] = z[i];
    base[i] = std::exp(z[i] / 8);
    power[i] = base[i];
  }
  for (int node = 0; node < kGrid; ++node) {
    std::array<float, kLanes> weight{}, moment{};
    for (std::size_t i = 0; i < kBlock; i += kLanes)
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        power[i + lane] *= base[i + lane];
        weight[lane] += power[i + lane];
        moment[lane] += power[i + lane] * value[i + lane];
      }
    sums.weight[static_cast<std::size_t>(node)] += std::accumulate(weight.begin(), weight.end(), 0.0);
    sums.moment[static_cast<std::size_t>(node)] += std::accumulate(moment.begin(), moment.end(), 0.0);
  }
}

}  // namespace

double TokenGrid::at(double b) const {
  const double at = std::clamp(b * 8 - 2, 0.0, static_cast<double>(kGrid - 1));
  const auto i = static_cast<std::size_t>(std::min(at, kGrid - 2.0));
  const double t = at - static_cast<double>(i), u = 1 - t, h = 1.0 / 8;
  return (1 + 2 * t) * u * u * value[i] + t * u * u * h * slope[i] + t * t * (3 - 2 * t) * value[i + 1] -
         t * t * u * h * slope[i + 1];
}

TokenGrid grid_of(std::span<const float> logits, std::int32_t id) {
  const float largest = *std::ranges::max_element(logits);
  Sums sums;
  std::array<float, kBlock> shifted{};
  for (std::size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const std::size_t count = std::min(kBlock, logits.size() - begin);
    for (std::size_t i = 0; i < count; ++i) shifted[i] = logits[begin + i] - largest;
    add_block({shifted.data(), count}, sums);
  }
  const double z = logits[static_cast<std::size_t>(id)] - largest;
  TokenGrid grid;
  for (std::size_t node = 0; node < kGrid; ++node) {
    const double b = inverse_temperature(static_cast<int>(node));
    grid.value[node] = static_cast<float>(b * z - std::log(sums.weight[node]));
    grid.slope[node] = static_cast<float>(z - sums.moment[node] / sums.weight[node]);
  }
  return grid;
}

double tempered(std::span<const float> logits, std::int32_t id, double b) {
  const float largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float z : logits) sum += std::exp(b * static_cast<double>(z - largest));
  return b * static_cast<double>(logits[static_cast<std::size_t>(id)] - largest) - std::log(sum);
}

}  // namespace fp8::judge
