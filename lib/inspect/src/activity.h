// What an inspection computes at the moment, shown operation by operation, so that a long sequence is no silence.
// Private to the crate.
#pragma once

#include <algorithm>
#include <string>

#include "fp8/base/clock.h"
#include "fp8/base/text.h"
#include "fp8/model/operation.h"
#include "fp8/state/journal.h"

namespace fp8::inspect {

// Shows the part that is computed, the operation that it has reached, and the time that is left if it is known.
class Activity final : public model::OperationObserver {
 public:
  Activity(const state::Journal& journal, int layers) : journal_(journal), layers_(layers) {}

  // From now on the work takes this long.
  void expect(double seconds) { seconds_ = seconds, start_ = Clock::now(); }
  // A part of it begins.
  void begin(std::string part) {
    part_ = std::move(part);
    show("");
  }
  void observe(const device::Context& ctx, const model::Operation& operation, const tensor::View& /*result*/) override {
    if (!ctx.dry) show((operation.backward ? ": backward of " : ": ") + full_name(operation, layers_));
  }

 private:
  void show(const std::string& operation) const {
    const double left = std::max(0.0, seconds_ - seconds_since(start_));
    journal_.progress((seconds_ > 0 ? "ETA " + human_seconds(left) + "  " : "") + part_ + operation);
  }

  const state::Journal& journal_;
  int layers_;
  double seconds_ = 0;
  Clock::time_point start_{};
  std::string part_;
};

}  // namespace fp8::inspect
