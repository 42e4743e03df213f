// Files of rollouts, and the kinds of files that are refused.
#include "fp8/judge/rollouts.h"

#include <algorithm>
#include <cmath>

#include "fp8/base/error.h"
#include "fp8/base/file_kind.h"

namespace fp8::judge {
namespace {

// Throws Error for a file whose first bytes are those of another kind, with the command that converts it.
void check_kind(std::string_view head, const std::string& name) {
  if (head.starts_with("PAR1"))
    throw Error(name + ": is a Parquet file; convert it: python3 -c \"import pandas, sys; " +
                "pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], orient='records', lines=True)\" FILE OUT");
  if (head.starts_with("PK\x03\x04") || head.starts_with("\x80\x02"))
    throw Error(name +
                ": is a file of torch.save, as slime writes; convert it: python3 -c \"import json, sys, torch; " +
                "[print(json.dumps({'ids': s['tokens'], 'logprobs': [None] * (len(s['tokens']) - " +
                "len(s['rollout_log_probs'])) + list(s['rollout_log_probs'])})) " +
                "for s in torch.load(sys.argv[1], weights_only=False)['samples']]\" FILE > OUT");
}

}  // namespace

RolloutReader::RolloutReader(std::vector<std::string> paths, ReadOptions options)
    : paths_(std::move(paths)), options_(options) {
  for (const std::string& path : paths_)
    if (is_stream(path))
      throw Error(path + ": not a regular file; each candidate reads the rollouts again, which a pipe cannot");
}

// Opens the next file; false if there is none.
bool RolloutReader::open_next() {
  if (reader_ && !any_) throw Error(reader_->name() + ": has no record");
  if (opened_ == paths_.size()) return false;
  reader_.emplace(paths_[opened_++], json::Layout::by_content);
  any_ = false;
  check_kind(reader_->head(), reader_->name());
  return true;
}

std::optional<Rollout> RolloutReader::next() {
  if (options_.sequences > 0 && read_ == options_.sequences) return std::nullopt;
  while (ready_.empty()) {
    if (!reader_ && !open_next()) return std::nullopt;
    const std::optional<json::Record> record = reader_->next();
    if (!record) {
      if (!open_next()) return std::nullopt;
      continue;
    }
    any_ = true;
    const json::Value value = json::parse(*record, reader_->name());
    const std::string where = reader_->name() + ": line " + std::to_string(record->line);
    try {
      for (Rollout& r : parse_rollouts(value, options_)) {
        r.where = where;
        ready_.push_back(std::move(r));
      }
    } catch (const Error& e) {
      throw Error(where + ": " + e.what());
    }
  }
  Rollout rollout = std::move(ready_.front());
  ready_.pop_front();
  ++read_;
  return rollout;
}

}  // namespace fp8::judge
