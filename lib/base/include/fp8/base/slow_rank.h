/// The rank of a job for which the others wait: its detection from the times of a step, and its text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace fp8 {

/// A rank that computes longer than others that do the same work.
struct SlowRank {
  std::int64_t rank = 0;  ///< number in the job
  std::string host{};     ///< its machine; empty if it is not known, or there is one
  double lag = 0;         ///< share of the time by which it computes longer than the median, from 0
};

/// Finds the rank with the largest lag. `busy` has the time of each rank of the job without its waits for others, in
/// any unit. Only ranks of one stage do the same work: the job has `stages` of equally many ranks, stage after stage,
/// and the median, of an even number of ranks the lower of the two middle values, is that of a stage. Nothing if a
/// stage is one rank, or no time has passed. The host is empty.
std::optional<SlowRank> find_slow_rank(std::span<const std::int64_t> busy, int stages);

/// "rank 5 on node-3 waits least: 12 % slower than the median", or without a host "rank 5 waits least: ...".
std::string text_of(const SlowRank& slow);

}  // namespace fp8
