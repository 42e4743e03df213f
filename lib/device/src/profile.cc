// Clock and recording of operations.
#include "fp8/device/profile.h"

#include <chrono>

namespace fp8::device {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Timer::begin(const Span& span) {
  if (profile_->busy_) {
    profile_ = nullptr;
    return;
  }
  profile_->busy_ = true;
  synchronize(ctx_);
  at_ = profile_->spans_.size();
  profile_->spans_.push_back(span);
  profile_->spans_[at_].begin = now_ns();
}

void Timer::end() {
  synchronize(ctx_);
  profile_->spans_[at_].end = now_ns();
  profile_->busy_ = false;
}

}  // namespace fp8::device
