#include "batches.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/error.h"

namespace fp8::judge {

bool is_judged(const Rollout& r, std::size_t i) { return i > 0 && r.mask[i] != 0 && !std::isnan(r.logprobs[i]); }

namespace {

bool any_judged(const Rollout& r) {
  for (std::size_t i = 1; i < r.ids.size(); ++i)
    if (is_judged(r, i)) return true;
  return false;
}

void count(const Rollout& r, Contents& c) {
  for (std::size_t i = 0; i < r.ids.size(); ++i) {
    if (is_judged(r, i))
      ++c.judged;
    else if (i == 0)
      ++c.first;
    else
      ++(r.mask[i] == 0 ? c.masked : c.missing);
  }
  const double temperature = r.temperature.value_or(1);
  if (c.sequences == 0) c.temperature = temperature;
  if (c.temperature && *c.temperature != temperature) c.temperature.reset();
  c.temperatures = c.temperatures || temperature != 1;
  ++c.sequences;
  c.ids += static_cast<std::int64_t>(r.ids.size());
  c.longest = std::max(c.longest, static_cast<std::int64_t>(r.ids.size()));
}

}  // namespace

// Makes `ahead_` the next rollout with a judged token; false if there is none.
bool BatchReader::fetch() {
  while (!ahead_) {
    std::optional<Rollout> next = reader_.next();
    if (!next) return false;
    ++number_;
    if (transform_) transform_(*next);
    if (any_judged(*next)) ahead_ = std::move(next);
  }
  return true;
}

std::optional<Batch> BatchReader::next() {
  if (!fetch()) return std::nullopt;
  Batch batch{.first = number_, .rollouts = {}};
  do {
    batch.rollouts.push_back(std::move(*ahead_));
    ahead_.reset();
  } while (std::ssize(batch.rollouts) < size_ && fetch() && number_ == batch.first + std::ssize(batch.rollouts) &&
           ahead_->ids.size() == batch.rollouts.front().ids.size());
  return batch;
}

Contents scan(RolloutReader reader) {
  Contents contents;
  std::string where;
  while (const std::optional<Rollout> r = reader.next()) {
    where = r->where;
    count(*r, contents);
  }
  if (contents.judged == 0) throw Error(where + ": no token has a log-probability that is judged");
  return contents;
}

}  // namespace fp8::judge
