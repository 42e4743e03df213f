// Blocks of words in memory or in a temporary file.
#include "fp8/log/series.h"

#include <algorithm>

namespace fp8::log {
namespace {

constexpr std::size_t kBlockBytes = kBlock * sizeof(std::uint64_t);

}  // namespace

std::size_t BlockStore::put(std::span<const std::uint64_t> block) {
  std::size_t place = kept_.size() + filed_;
  if (!free_.empty()) {
    place = free_.back();
    free_.pop_back();
  } else if (filed_ == 0 && (kept_.size() + 1) * kBlockBytes <= memory_) {
    kept_.emplace_back();
  } else {
    if (!file_.is_open()) file_ = File::temporary();
    ++filed_;
  }
  if (place < kept_.size()) {
    kept_[place].assign(block.begin(), block.end());
  } else {
    file_.pwrite_all(std::as_bytes(block), (place - kept_.size()) * kBlockBytes);
  }
  return place;
}

void BlockStore::get(std::size_t place, std::span<std::uint64_t> block) const {
  if (place < kept_.size()) {
    std::copy(kept_[place].begin(), kept_[place].end(), block.begin());
  } else {
    file_.pread_exact(std::as_writable_bytes(block), (place - kept_.size()) * kBlockBytes);
  }
}

void BlockStore::free(std::size_t place) { free_.push_back(place); }

Words::Words(std::shared_ptr<BlockStore> store) : store_(std::move(store)) {}

void Words::load(std::size_t block) const {
  cache_.resize(kBlock);
  cached_ = static_cast<std::size_t>(-1);
  const StoredBlock& b = blocks_[block];
  if (b.even) {
    for (std::size_t i = 0; i < kBlock; ++i) cache_[i] = b.first + i * b.stride;
  } else {
    store_->get(b.first, cache_);
  }
  cached_ = block;
}

void Words::store_tail() {
  const std::uint64_t stride = tail_[1] - tail_[0];
  bool even = true;
  for (std::size_t i = 1; even && i < kBlock; ++i) even = tail_[i] - tail_[i - 1] == stride;
  blocks_.push_back({.even = even, .first = even ? tail_[0] : store_->put(tail_), .stride = stride});
  tail_.clear();
}

void Words::cut(std::size_t n) {
  if (n >= size()) return;
  if (n / kBlock < blocks_.size()) {
    load(n / kBlock);
    tail_ = cache_;
    for (std::size_t b = n / kBlock; b < blocks_.size(); ++b) {
      if (!blocks_[b].even) store_->free(blocks_[b].first);
    }
    blocks_.resize(n / kBlock);
    cached_ = static_cast<std::size_t>(-1);
  }
  tail_.resize(n % kBlock);
}

}  // namespace fp8::log
