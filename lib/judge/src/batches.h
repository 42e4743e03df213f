// Rollouts in batches of equal length. Private to the crate.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "fp8/judge/rollouts.h"

namespace fp8::judge {

// Whether token `i` is judged: it has a token before it and a log-probability, and the mask selects it.
bool is_judged(const Rollout& r, std::size_t i);

// Rollouts that are computed together; all have the same number of ids.
struct Batch {
  std::int64_t first = 0;         // number of the first rollout
  std::vector<Rollout> rollouts;  // successive ones
  // Tokens that the model reads, of each rollout.
  std::int64_t length() const { return static_cast<std::int64_t>(rollouts.front().ids.size()) - 1; }
};

// Changes a rollout before it is computed.
using Transform = std::function<void(Rollout&)>;

// Divides rollouts into batches of at most `size` successive ones of equal length. A rollout without a judged token is
// left out, but counts in the numbers of rollouts.
class BatchReader {
 public:
  BatchReader(RolloutReader reader, std::int64_t size, Transform transform = {})
      : reader_(std::move(reader)), size_(size), transform_(std::move(transform)) {}
  // The next batch; nothing at the end. Throws as RolloutReader::next().
  std::optional<Batch> next();

 private:
  bool fetch();
  RolloutReader reader_;
  std::int64_t size_;
  Transform transform_;
  std::optional<Rollout> ahead_;
  std::int64_t number_ = -1;  // of ahead_
};

// What the rollouts hold.
struct Contents {
  std::int64_t sequences = 0, ids = 0, judged = 0;
  std::int64_t first = 0, masked = 0, missing = 0;  // tokens that are not judged, by reason
  std::int64_t longest = 0;                         // ids
  bool temperatures = false;                        // whether a record states a temperature other than 1
  std::optional<double> temperature{};              // the temperature of all records, if it is the same
  std::int64_t skipped() const { return first + masked + missing; }
};

// Reads all rollouts. Throws Error if no token is judged.
Contents scan(RolloutReader reader);

}  // namespace fp8::judge
