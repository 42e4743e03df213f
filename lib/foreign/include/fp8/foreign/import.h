/// One import: the files of another trainer, the answer to each of their keys, and the run that they describe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/foreign/answer.h"
#include "fp8/foreign/document.h"

namespace fp8::foreign {

/// What the command line of fp8-import says.
struct Options {
  std::vector<std::string> files;          ///< configuration files; the first is the trainer's own
  std::optional<std::string> from;         ///< --from: name of the trainer
  std::optional<std::string> dataset_dir;  ///< --dataset-dir: folder of data and of dataset_info.json
  std::optional<std::string> model;        ///< --model: local folder of the model, instead of the name in the file
  std::optional<std::int64_t> ranks;       ///< --ranks: processes (GPUs) that the configuration was written for
  std::vector<std::string> allow;          ///< --allow: keys without counterpart that are ignored; "all"
};

/// One source of training or evaluation data.
struct DataSource {
  std::vector<std::string> files;            ///< files on this machine
  std::string format;                        ///< value of fp8-tokenize --from
  std::vector<std::string> columns;          ///< values of --columns: "prompt=question"
  std::optional<std::int64_t> most_records;  ///< records used; nothing: all
};

/// How a trainer makes sequences from records.
struct DataPlan {
  std::vector<DataSource> train, eval;       ///< sources in their order; eval may be empty
  double eval_share = 0;                     ///< share of the records of `train` for evaluation; 0: none
  std::optional<std::int64_t> eval_records;  ///< number of them; finish() makes `eval_share` of it
  std::optional<std::string> chat_template;  ///< value of --template; nothing: that of the tokenizer
  std::string mask = "assistant";            ///< value of --mask: assistant, last, all
  bool conversations = true;                 ///< false: plain text for pretraining
  std::int64_t length = 0;                   ///< most tokens of a record and of a sequence
  std::string too_long = "cut";              ///< value of --too-long
  bool packed = false;                       ///< records are packed into sequences of `length`
  bool skips_bad = false;                    ///< records that are no conversations are left out; else an error
  bool appends_eos = false;                  ///< plain text: each ends with `eos_token` and has no other special one
  std::string eos_token;                     ///< text of a token; empty: the end-of-sequence token of the tokenizer
  std::optional<std::string> tokenizer;      ///< folder or tokenizer.json; nothing: that of the model
};

/// Length of a run as trainers state it; resolved to steps by finish().
struct Duration {
  std::optional<std::int64_t> steps;         ///< optimizer steps; if given, `epochs` has no effect
  double epochs = 0;                         ///< passes over the data
  bool keeps_last_batch = true;              ///< whether an incomplete last batch of an epoch is a step
  std::optional<std::int64_t> warmup_steps;  ///< steps of warm-up; if given, `warmup_ratio` has no effect
  bool both_limit = false;                   ///< the run ends after `steps` or `epochs`, whichever comes first
  bool rounds_once = false;                  ///< steps are rounded up over all epochs together, not in each
  double warmup_ratio = 0;                   ///< share of all steps, rounded up
  /// Steps of warm-up for a number of all steps, where they are another function; else empty.
  std::function<std::int64_t(std::int64_t steps)> warmup_rule{};
  /// Steps of the decay of schedule wsd for a number of all steps and of warm-up; empty: --decay-steps is not written.
  std::function<std::int64_t(std::int64_t steps, std::int64_t warmup)> decay_rule{};
  std::optional<double> warmup_from;  ///< --warmup-from, written if there is a warm-up
};

/// Batches as trainers state them; resolved to --batch-size and --grad-accumulation by finish().
struct Batches {
  std::int64_t micro = 1;              ///< sequences in a micro-batch of one data-parallel rank
  std::int64_t accumulation = 1;       ///< micro-batches of a step
  std::optional<std::int64_t> global;  ///< sequences of a step over all ranks, if stated: gives `accumulation`
};

/// An import in progress. A reader of a trainer takes each key of `documents` once through Keys (keys.h), which adds
/// the answers, and fills the rest.
struct Import {
  Options options;                        ///< the command line
  std::deque<Document> documents;         ///< the files: [0] is the trainer's, others what it names
  std::string trainer;                    ///< "llama-factory", "automodel", "kempner", "axolotl"
  std::vector<Answer> answers;            ///< the table, in the order of the files, defaults last
  json::Object flags;                     ///< configuration of fp8-step: names of fp8-config(5)
  std::optional<std::string> model_name;  ///< folder or hub name of the model that the file states
  std::optional<json::Object> config;     ///< config.json of a model that is trained from scratch
  DataPlan data;                          ///< the data
  Duration duration;                      ///< the length of the run and of its warm-up
  Batches batches;                        ///< the batches
  std::optional<std::int64_t> ranks;      ///< processes that the files state; Options::ranks wins; nothing: 1
  bool one_loss_per_rank = false;         ///< losses are averaged on each rank first, then over ranks
  std::vector<std::string> missing;       ///< what a run needs and is not there: "data: ..."; status 2 if not empty
  std::vector<std::string> unready;       ///< what keeps run.sh from being written besides, with status 0
  std::optional<std::int64_t> eos;        ///< id of DataPlan::eos_token, set by finish()
  std::string model;                      ///< local folder of the model, set by finish(); empty: none
  std::string tokenizer;                  ///< value of fp8-tokenize --tokenizer, set by finish(); empty: none

  /// Sets a flag of fp8-step. A later value replaces an earlier one.
  void set(std::string_view flag, json::Value value);
  /// Adds the answer for a key that the file lacks: the default of the trainer, made explicit.
  void add_default(std::string key, json::Value value, std::string here, std::string why = {});
};

/// A trainer whose configurations are read.
struct Trainer {
  std::string_view name;                   ///< name for --from
  std::string_view title;                  ///< name in text: "LLaMA-Factory"
  int (*score)(const Document& document);  ///< number of keys that only this trainer has; the largest wins
  void (*read)(Import& import);            ///< answers every key
};

/// The trainers, in the order of fp8-import(1). Each is defined in the source of its name: llama_factory.cc,
/// automodel.cc, kempner.cc, axolotl.cc; trainers.h declares them.
const std::vector<Trainer>& trainers();

/// Reads the files, answers each key and resolves length and batches to numbers. Throws Error for files that cannot be
/// parsed, for a trainer that cannot be recognised or does not exist, and for a value of the wrong type (path, line,
/// key, reason).
Import read(const Options& options);

/// The keys without counterpart that Options::allow does not name.
std::vector<Answer> refused(const Import& import);

/// run.json: the configuration of fp8-step, with every value that the other trainer has by default. Ends with a
/// newline.
std::string configuration_text(const Import& import);

/// run.sh: the commands, for `sh -e`, of files in the folder of run.sh. Throws Error if Import::missing or
/// Import::unready is not empty.
std::string script_text(const Import& import);

}  // namespace fp8::foreign
