/// Ranks that reduce amaxes, imitated on one thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "fp8/quant/quantize.h"

namespace fp8::test {

/// Ranks that run one after the other, again and again: a reduction gives what it gave all ranks in the pass before,
/// until nothing changes. Memory of the reduced amaxes is on the host.
class RanksInTurn : public quant::AmaxReducer {
 public:
  /// Calls rank(r) for each of `ranks` ranks in every pass, so that results are those of the last call. Expects the
  /// same number of reductions on all ranks.
  template <class Rank>
  void run(int ranks, Rank&& rank) {
    constexpr int kMostPasses = 8;
    for (int pass = 0; pass == 0 || found_ != known_; ++pass) {
      ASSERT_LT(pass, kMostPasses) << "amaxes do not settle";
      known_ = found_;
      found_.clear();
      for (int r = 0; r < ranks; ++r) {
        calls_ = 0;
        rank(r);
        ASSERT_EQ(calls_, found_.size()) << "reductions of rank " << r;
      }
    }
  }
  /// Reductions of each rank.
  std::size_t calls() const { return found_.size(); }
  /// A rank's amaxes become those of all ranks.
  void reduce(const device::Context& ctx, const tensor::View& amax) const override {
    if (ctx.dry) return;
    ASSERT_TRUE(amax.contiguous() && amax.size() > 0);
    const auto n = static_cast<std::size_t>(amax.size());
    const std::size_t call = calls_++;
    if (call == found_.size()) found_.emplace_back(n, 0u);
    ASSERT_EQ(found_[call].size(), n);
    for (std::size_t i = 0; i < n; ++i) {
      float& value = amax.as<float>()[i];
      const auto own = std::bit_cast<std::uint32_t>(value);
      found_[call][i] = std::max(found_[call][i], own);
      if (call < known_.size()) value = std::bit_cast<float>(std::max(known_[call][i], own));
    }
  }

 private:
  using Bits = std::vector<std::uint32_t>;  // of magnitudes, which compare as numbers, with NaN as the largest
  std::vector<Bits> known_;
  mutable std::vector<Bits> found_;
  mutable std::size_t calls_ = 0;
};

}  // namespace fp8::test
