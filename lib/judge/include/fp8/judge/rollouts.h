/// Rollouts: token ids with the log-probabilities that a server or a trainer gave them, read from the files that RL
/// trainers and inference servers write. Not what a model makes of them.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "fp8/json/records.h"

namespace fp8::judge {

/// Form of the records in a file.
enum class Form : std::uint8_t {
  automatic,  ///< by the members of the first record of each file
  plain,      ///< {"ids","logprobs"} and optional "mask", "temperature"
  nemo_rl,    ///< train_data_step*.jsonl of NeMo-RL
  vllm,       ///< responses of vLLM to completions and chat, with return_token_ids
  sglang,     ///< responses of SGLang to /generate, with return_logprob
};

/// One sequence of tokens.
struct Rollout {
  std::vector<std::int32_t> ids;        ///< token ids, at least 1
  std::vector<double> logprobs;         ///< of each id given those before it, nats, at most 0; NaN: not given
  std::vector<char> mask;               ///< whether each id is judged
  std::optional<double> temperature{};  ///< the record's temperature, by which logits were divided
  std::string where{};                  ///< "path: line 5", for messages
};

/// How rollouts are read.
struct ReadOptions {
  Form form = Form::automatic;  ///< form of all files
  bool trainer = false;         ///< judge the trainer's log-probabilities (NeMo-RL) instead of the server's
  std::int64_t vocabulary = 0;  ///< ids are below this number
  std::int64_t sequences = 0;   ///< rollouts to read in all; 0: all
};

/// Rollouts of one record. Throws Error with the reason alone: unknown members, ids outside of the vocabulary, lengths
/// that differ, log-probabilities that are no numbers or are positive.
std::vector<Rollout> parse_rollouts(const json::Value& record, const ReadOptions& options);

/// Reads rollouts from files one after the other, one record at a time.
class RolloutReader {
 public:
  /// Opens nothing yet. Copies its arguments.
  RolloutReader(std::vector<std::string> paths, ReadOptions options);

  /// The next rollout; nothing at the end. Throws Error `path: line N: reason`, and `path: reason` for a file of
  /// another kind (torch.save, Parquet) or without a record.
  std::optional<Rollout> next();

 private:
  bool open_next();
  std::vector<std::string> paths_;
  ReadOptions options_;
  std::size_t opened_ = 0;  // files that were opened
  std::optional<json::RecordReader> reader_;
  bool any_ = false;           // whether the open file had a record
  std::deque<Rollout> ready_;  // of the last record
  std::int64_t read_ = 0;
};

}  // namespace fp8::judge
