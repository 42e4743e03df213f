// Stack allocator with bytes by category. Every block is rounded up to a positive multiple of 64 bytes, so that
// addresses are distinct even for zero-size tensors.
#include "fp8/device/arena.h"

#include <algorithm>
#include <limits>

#include "fp8/base/error.h"
#include "fp8/base/text.h"

namespace fp8::device {
namespace {

constexpr std::size_t kAlignment = 256;  // that of cudaMalloc, which the kernels of cuDNN may assume
constexpr std::size_t kShownUsers = 3;
// First address of a dry arena: no process can map memory there, so that an access faults.
constexpr std::uintptr_t kDryBase = std::uintptr_t{1} << 62;
constexpr std::size_t kMost = std::size_t{1} << 60;

std::vector<Usage> sorted(const std::vector<std::string>& names, const std::vector<std::size_t>& bytes) {
  std::vector<Usage> usage;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > 0) usage.push_back({names[i], bytes[i]});
  }
  std::stable_sort(usage.begin(), usage.end(), [](const Usage& a, const Usage& b) { return a.bytes > b.bytes; });
  return usage;
}

std::string full_message(std::string_view category, std::size_t bytes, std::size_t size,
                         const std::vector<Usage>& users) {
  std::string text = "out of memory: " + std::string(category) + " needs " + human_bytes(bytes) +
                     " more in an arena of " + human_bytes(size);
  for (std::size_t i = 0; i < std::min(kShownUsers, users.size()); ++i) {
    text += (i == 0 ? "; largest users: " : ", ") + users[i].category + " " + human_bytes(users[i].bytes);
  }
  return text;
}

}  // namespace

Arena::Arena() = default;

Arena::Arena(std::size_t bytes, DeviceType device) : dry_(false), memory_(bytes, device, "step memory") {}

std::byte* Arena::allocate(std::size_t bytes, std::string_view category) {
  const auto found = std::find(names_.begin(), names_.end(), category);
  const auto index = static_cast<std::size_t>(found - names_.begin());
  if (found == names_.end()) {
    names_.emplace_back(category);
    held_.push_back(0);
    held_at_peak_.push_back(0);
  }
  const std::size_t limit = dry_ ? kMost : memory_.size();
  const std::size_t room = limit - std::min(limit, top_);
  const std::size_t rounded =
      bytes > kMost ? bytes : (std::max<std::size_t>(bytes, 1) + kAlignment - 1) & ~(kAlignment - 1);
  if (rounded > room) throw Error(full_message(category, bytes, limit, sorted(names_, held_)), Exit::bad);

  const std::size_t begin = top_;
  top_ += rounded;
  held_[index] += rounded;
  blocks_.push_back({begin, top_, static_cast<std::uint32_t>(index)});
  if (top_ > peak_) {
    peak_ = top_;
    held_at_peak_ = held_;
  }
  return dry_ ? reinterpret_cast<std::byte*>(kDryBase + begin)  // NOLINT(performance-no-int-to-ptr): never accessed
              : memory_.data() + begin;
}

void Arena::release(std::size_t mark) {
  while (!blocks_.empty() && blocks_.back().begin >= mark) {
    const ArenaBlock& block = blocks_.back();
    held_[block.category] -= block.end - block.begin;
    top_ = block.begin;
    blocks_.pop_back();
  }
}

std::vector<Usage> Arena::usage_at_peak() const { return sorted(names_, held_at_peak_); }

}  // namespace fp8::device
