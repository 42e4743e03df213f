// A stack and a pool in one memory, with bytes by category. Every block is rounded up to a positive multiple of 256
// bytes, so that addresses are distinct even for zero-size tensors.
#include "fp8/device/arena.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "fp8/base/error.h"
#include "fp8/base/text.h"

namespace fp8::device {
namespace {

constexpr std::size_t kPartAlignment = 256;  // alignment of cudaMalloc, which the kernels of cuDNN may assume
constexpr std::size_t kShownUsers = 3;
// First address of a dry arena: no process can map memory there, so that an access faults.
constexpr std::uintptr_t kDryBase = std::uintptr_t{1} << 62;
constexpr std::size_t kMost = std::size_t{1} << 60;

// The categories that hold bytes, largest first; `unused` bytes of the pool are one of them.
std::vector<Usage> sorted(const std::vector<std::string>& names, const std::vector<std::size_t>& bytes,
                          std::size_t unused) {
  std::vector<Usage> usage;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > 0) usage.push_back({names[i], bytes[i]});
  }
  if (unused > 0) usage.push_back({"unused in pool", unused});
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

// Bytes for stack and pool together, a multiple of the alignment.
std::size_t Arena::limit() const { return dry_ ? kMost : memory_.size() & ~(kPartAlignment - 1); }

std::byte* Arena::base() const {
  return dry_ ? reinterpret_cast<std::byte*>(kDryBase)  // NOLINT(performance-no-int-to-ptr): never accessed
              : memory_.data();
}

// The size of a block for `bytes`. Throws Error if the memory cannot hold it even without other blocks.
std::size_t Arena::rounded(std::size_t bytes, std::string_view category) const {
  if (bytes > limit()) refuse(bytes, category);
  return (std::max<std::size_t>(bytes, 1) + kPartAlignment - 1) & ~(kPartAlignment - 1);
}

void Arena::refuse(std::size_t bytes, std::string_view category) const {
  const std::size_t size = dry_ ? kMost : memory_.size();
  throw Error(full_message(category, bytes, size, sorted(names_, held_, 0)), Exit::bad);
}

// Counts a block that was allocated, and the peak.
std::uint32_t Arena::count(std::size_t bytes, std::string_view category) {
  const auto found = std::find(names_.begin(), names_.end(), category);
  const auto index = static_cast<std::size_t>(found - names_.begin());
  if (found == names_.end()) {
    names_.emplace_back(category);
    held_.push_back(0);
    held_at_peak_.push_back(0);
  }
  held_[index] += bytes;
  if (top_ + pool_ > peak_) {
    peak_ = top_ + pool_;
    held_at_peak_ = held_;
  }
  return static_cast<std::uint32_t>(index);
}

std::byte* Arena::allocate(std::size_t bytes, std::string_view category) {
  const std::size_t size = rounded(bytes, category), begin = top_;
  if (size > limit() - top_ - pool_) refuse(bytes, category);
  top_ += size;
  blocks_.push_back({begin, top_, count(size, category)});
  return base() + begin;
}

void Arena::release(std::size_t mark) {
  while (!blocks_.empty() && blocks_.back().begin >= mark) {
    const ArenaBlock& block = blocks_.back();
    held_[block.category] -= block.end - block.begin;
    top_ = block.begin;
    blocks_.pop_back();
  }
}

std::byte* Arena::allocate_pooled(std::size_t bytes, std::string_view category) {
  const std::size_t size = rounded(bytes, category);
  const auto range = std::ranges::find_if(free_, [&](const auto& r) { return r.second - r.first >= size; });
  const std::size_t begin = range != free_.end() ? range->first : pool_, end = begin + size;
  if (range != free_.end()) {
    const std::size_t rest = range->second;
    free_.erase(range);
    if (end < rest) free_.emplace(end, rest);
  } else {
    if (size > limit() - top_ - pool_) refuse(bytes, category);
    pool_ = end;
  }
  pooled_.emplace(begin, ArenaBlock{begin, end, count(size, category)});
  return base() + (limit() - end);
}

void Arena::free_pooled(std::byte* block) {
  const auto from_end = static_cast<std::size_t>(base() + limit() - block);  // the block's end in the pool
  auto found = pooled_.lower_bound(from_end);
  --found;
  auto [begin, end, category] = found->second;
  held_[category] -= end - begin;
  pooled_.erase(found);
  const auto after = free_.find(end);
  if (after != free_.end()) end = after->second, free_.erase(after);
  if (const auto next = free_.lower_bound(begin); next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->second == begin) begin = before->first, free_.erase(before);
  }
  if (end == pool_)
    pool_ = begin;
  else
    free_.emplace(begin, end);
}

std::vector<Usage> Arena::usage_at_peak() const {
  const std::size_t used = std::accumulate(held_at_peak_.begin(), held_at_peak_.end(), std::size_t{0});
  return sorted(names_, held_at_peak_, peak_ - used);
}

std::byte* PooledMemory::allocate(std::size_t bytes, std::string_view category) {
  blocks_.push_back(nullptr);  // before the block, so that an error of this leaves no block without an owner
  try {
    return blocks_.back() = arena_->allocate_pooled(bytes, category);
  } catch (...) {
    blocks_.pop_back();
    throw;
  }
}

void PooledMemory::free() {
  for (; !blocks_.empty(); blocks_.pop_back()) arena_->free_pooled(blocks_.back());
}

}  // namespace fp8::device
