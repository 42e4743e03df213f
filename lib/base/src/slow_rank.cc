// Comparison of the times of ranks.
#include "fp8/base/slow_rank.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace fp8 {

std::optional<SlowRank> find_slow_rank(std::span<const std::int64_t> busy, int stages) {
  const std::size_t each = busy.size() / static_cast<std::size_t>(stages);
  if (each < 2) return std::nullopt;
  std::optional<SlowRank> slow;
  for (std::size_t first = 0; first + each <= busy.size(); first += each) {
    const std::span<const std::int64_t> stage = busy.subspan(first, each);
    std::vector<std::int64_t> sorted(stage.begin(), stage.end());
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((each - 1) / 2);
    std::ranges::nth_element(sorted, middle);
    if (*middle <= 0) continue;
    const auto longest = std::ranges::max_element(stage);
    const double lag = static_cast<double>(*longest) / static_cast<double>(*middle) - 1;
    if (!slow || lag > slow->lag)
      slow = SlowRank{static_cast<std::int64_t>(first) + (longest - stage.begin()), "", lag};
  }
  return slow;
}

std::string text_of(const SlowRank& slow) {
  return "rank " + std::to_string(slow.rank) + (slow.host.empty() ? "" : " on " + slow.host) +
         " waits least: " + std::to_string(std::llround(100 * slow.lag)) + " % slower than the median";
}

}  // namespace fp8
