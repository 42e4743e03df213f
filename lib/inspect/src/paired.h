// The change of the loss of sequences, each computed twice, and whether it exceeds chance. Private to the crate.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "fp8/comm/comm.h"

namespace fp8::inspect {

// Probability with which at least one of all that are tested together is said to raise the loss although none does.
inline constexpr double kLevel = 0.01;

// A mean change of the loss, against the same sequences without it.
struct LossChange {
  double change = 0;           // nats per target, over all targets
  double standard_error = 0;   // of the change; NaN for fewer than two sequences
  std::int64_t sequences = 0;  // number of sequences that have a target

  // The probability that chance gives a rise of as many standard errors or more in one of `tested` one-sided t tests,
  // at most 1 (Bonferroni). 0 for a change that is not finite, 1 without a standard error.
  double p_value(std::int64_t tested) const;
  // Whether the loss rises by more than chance explains: p_value() < kLevel.
  bool hurts(std::int64_t tested) const { return p_value(tested) < kLevel; }
  // The least change that hurts, over `count` sequences instead of those of now.
  double noise(std::int64_t tested, std::int64_t count) const;
  double noise(std::int64_t tested) const { return noise(tested, sequences); }
  // The least number of sequences, at least those of now, of which the noise is at most `noise`; nothing if no number
  // that can be measured is enough.
  std::optional<std::int64_t> sequences_for(double noise, std::int64_t tested) const;
};

// Sums over sequences of d, the difference of the loss summed over the targets of the sequence, and of t, their number.
// The mean change c is sum(d) / sum(t), and its variance is computed for a ratio, from d - c t of each
// sequence; where all t are equal, that is the variance of the mean of d / t.
class PairedSums {
 public:
  // Adds sequences: losses with and without what is measured, and the targets. Those without a target are ignored.
  void add(std::span<const double> with, std::span<const double> without, std::span<const std::int64_t> targets);
  // The change over all ranks. Collective.
  LossChange change(comm::Communicator& host_comm) const;

 private:
  double sequences_ = 0, d_ = 0, t_ = 0, dd_ = 0, dt_ = 0, tt_ = 0;
};

}  // namespace fp8::inspect
