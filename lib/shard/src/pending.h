// Starts of exchanges, waits for them, and the record of both. Private to the crate.
#pragma once

#include <string_view>

#include "fp8/device/profile.h"
#include "fp8/shard/shard.h"

namespace fp8::shard {

// Calls start(), unless the context is dry, and records the exchange.
template <class Start>
Pending start_pending(const device::Context& ctx, std::string_view name, const device::Exchange& exchange,
                      Start&& start) {
  const device::Timer timer(
      ctx, {.work = device::Work::communication, .name = name, .kind = device::SpanKind::start, .exchange = exchange});
  return {ctx.dry ? comm::Request() : start(), exchange.bytes, timer.number()};
}

// Waits for an exchange.
inline void wait(const device::Context& ctx, std::string_view name, Pending& pending) {
  const device::Timer timer(ctx, {.work = device::Work::communication,
                                  .name = name,
                                  .bytes = pending.bytes,
                                  .kind = device::SpanKind::wait,
                                  .launches = 0,
                                  .number = pending.number});
  pending.request.wait();
}

}  // namespace fp8::shard
