// Probabilities in double, relative to the most probable token.
#include "fp8/generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "fp8/base/error.h"
#include "fp8/device/philox.h"

namespace fp8::generate {
namespace {

constexpr std::uint64_t kStream = 0x67656E6572617465;  // separates these random numbers from others of the same seed

// A number in [0, 1) of 53 bits.
double uniform(std::uint64_t seed, std::uint64_t prompt, std::uint64_t index) {
  const auto words = device::philox(seed ^ kStream, index, prompt);
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32U) | words[1];
  return static_cast<double>(bits >> 11U) * 0x1p-53;
}

}  // namespace

std::uint32_t Sampler::choose(std::span<const float> logits, std::uint64_t prompt, std::uint64_t index) {
  if (!std::ranges::all_of(logits, [](float x) { return std::isfinite(x); }))
    throw Error("token " + std::to_string(index) + ": the model's logits are not finite");
  const auto largest = std::ranges::max_element(logits);
  if (sampling_.temperature == 0) return static_cast<std::uint32_t>(largest - logits.begin());
  const double highest = *largest;
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i)
    candidates_.push_back(
        {static_cast<std::uint32_t>(i), std::exp((static_cast<double>(logits[i]) - highest) / sampling_.temperature)});
  const auto more_probable = [](const Candidate& a, const Candidate& b) {
    return a.weight > b.weight || (a.weight == b.weight && a.id < b.id);
  };
  if (const auto k = static_cast<std::size_t>(sampling_.top_k); k > 0 && k < candidates_.size()) {
    std::ranges::nth_element(candidates_, candidates_.begin() + static_cast<std::ptrdiff_t>(k), more_probable);
    candidates_.resize(k);
    std::ranges::sort(candidates_, more_probable);
  }
  double total = 0;
  for (const Candidate& c : candidates_) total += c.weight;
  auto kept = candidates_.begin();  // the first of those that remain possible
  if (sampling_.top_p < 1) {
    const auto less_probable = [&](const Candidate& a, const Candidate& b) { return more_probable(b, a); };
    const double wanted = sampling_.top_p * total;
    std::ranges::make_heap(candidates_, less_probable);
    kept = candidates_.end();
    for (total = 0; kept != candidates_.begin() && (total == 0 || total < wanted); total += kept->weight) {
      std::ranges::pop_heap(candidates_.begin(), kept, less_probable);
      --kept;
    }
  }
  double left = uniform(sampling_.seed, prompt, index) * total;
  for (auto c = candidates_.end() - 1; c != kept; --c) {
    if (left < c->weight) return c->id;
    left -= c->weight;
  }
  return kept->id;
}

}  // namespace fp8::generate
