// A record in each form of rollouts: what is accepted has ids of the vocabulary, and for each of them a mask and a
// log-probability that is missing or at most 0.
#include "fp8/judge/rollouts.h"

#include <algorithm>
#include <cmath>

#include "fp8/json/json.h"
#include "fuzz.h"

namespace {

using namespace fp8;

void check(const judge::Rollout& r) {
  fuzz::require(!r.ids.empty() && r.ids.size() == r.logprobs.size() && r.ids.size() == r.mask.size(), "equal lengths");
  fuzz::require(std::ranges::all_of(r.ids, [](std::int32_t id) { return id >= 0 && id < 10; }),
                "ids are of the vocabulary");
  fuzz::require(std::ranges::all_of(r.logprobs, [](double x) { return std::isnan(x) || x <= 0; }), "log-probabilities");
  fuzz::require(r.temperature.value_or(1) > 0, "a temperature is positive");
}

}  // namespace

FP8_FUZZ(rollouts) {
  if (size == 0) return 0;
  judge::ReadOptions options{
      .form = static_cast<judge::Form>(data[0] % 5), .trainer = data[0] >= 128, .vocabulary = 10};
  return fuzz::judge([&] {
    for (const judge::Rollout& r : judge::parse_rollouts(json::parse(fuzz::text_of(data + 1, size - 1), "x"), options))
      check(r);
  });
}
