/// Encoders for threads that start and end: their caches of words outlive the threads.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "fp8/token/tokenizer.h"

namespace fp8::token {

/// A pool of encoders of one tokenizer, which must outlive it. Any number of threads may use it.
class EncoderPool {
 public:
  /// An empty pool.
  explicit EncoderPool(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// `use(encoder)` with an encoder that no other thread has meanwhile. One for which `use` throws is not used again.
  template <class Use>
  auto with(Use&& use) {
    std::unique_ptr<Encoder> encoder = take();
    auto result = std::forward<Use>(use)(*encoder);
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(encoder));
    return result;
  }

 private:
  std::unique_ptr<Encoder> take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::make_unique<Encoder>(tokenizer_);
    std::unique_ptr<Encoder> encoder = std::move(idle_.back());
    idle_.pop_back();
    return encoder;
  }

  const Tokenizer& tokenizer_;
  std::mutex mutex_;  // guards idle_
  std::vector<std::unique_ptr<Encoder>> idle_;
};

}  // namespace fp8::token
