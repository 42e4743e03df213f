/// Plans of GEMMs by key. Those that were not used for longest are discarded when there are too many, so that shapes
/// that do not recur, as the rows of experts have them, do not discard the plans of those that do. Private to this
/// crate.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace fp8::gemm {

/// Plans that an engine keeps for a device, and for the host.
inline constexpr std::size_t kMostPlans = 4096;

/// At most `most` plans, whose keys have an order.
template <class Key, class Plan>
class RecentPlans {
 public:
  /// No plans; `most` is at least 2.
  explicit RecentPlans(std::size_t most = kMostPlans) : most_(most) {}

  /// The plan of a key, or null; valid until the next add() or erase_if().
  Plan* find(const Key& key) {
    const auto found = plans_.find(key);
    if (found == plans_.end()) return nullptr;
    found->second.used = ++calls_;
    return found->second.plan.get();
  }

  /// Keeps the plan of a key that has none. If there are `most`, the half of them that was not used for longest is
  /// discarded first.
  Plan& add(const Key& key, std::unique_ptr<Plan> plan) {
    if (plans_.size() >= most_) discard_half();
    return *(plans_[key] = {std::move(plan), ++calls_}).plan;
  }

  /// Discards the plans of keys for which `unwanted` is true.
  template <class Unwanted>
  void erase_if(Unwanted unwanted) {
    std::erase_if(plans_, [&](const auto& each) { return unwanted(each.first); });
  }

  /// Number of plans.
  std::size_t size() const { return plans_.size(); }

 private:
  struct Kept {
    std::unique_ptr<Plan> plan;
    std::uint64_t used;  // number of the last call that had it
  };

  void discard_half() {
    std::vector<std::uint64_t> used;
    for (const auto& each : plans_) used.push_back(each.second.used);
    const auto middle = used.begin() + static_cast<std::ptrdiff_t>(used.size() / 2);
    std::ranges::nth_element(used, middle);
    std::erase_if(plans_, [&](const auto& each) { return each.second.used < *middle; });
  }

  std::size_t most_;
  std::uint64_t calls_ = 0;
  std::map<Key, Kept> plans_;
};

}  // namespace fp8::gemm
