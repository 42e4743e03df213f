// Clock and recording of operations.
#include "fp8/device/profile.h"

#include <chrono>

namespace fp8::device {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Timer::begin(const Span& span) {
  const bool nested = profile_->busy_, exchange = span.exchange.kind != ExchangeKind::none;
  if (nested && !(ctx_.dry && exchange)) {
    profile_ = nullptr;
    return;
  }
  profile_->busy_ = true;
  outermost_ = !nested;
  std::vector<Span>& spans = profile_->spans_;
  at_ = spans.size();
  spans.push_back(span);
  if (span.kind == SpanKind::start) number_ = spans[at_].number = ++profile_->started_;
  if (!ctx_.dry) {
    synchronize(ctx_);
    spans[at_].begin = now_ns();
    return;
  }
  if (span.kind != SpanKind::operation || !exchange) return;
  spans[at_].kind = SpanKind::start;
  spans[at_].number = ++profile_->started_;
  spans.push_back(
      {.work = span.work, .name = span.name, .kind = SpanKind::wait, .launches = 0, .number = profile_->started_});
}

void Timer::end() {
  if (outermost_) profile_->busy_ = false;
  if (ctx_.dry) return;
  synchronize(ctx_);
  profile_->spans_[at_].end = now_ns();
}

void mark(const Context& ctx, std::string_view name, std::int64_t number) {
  if (!planned(ctx)) return;
  ctx.profile->spans_.push_back({.name = name, .kind = SpanKind::mark, .launches = 0, .number = number});
}

}  // namespace fp8::device
