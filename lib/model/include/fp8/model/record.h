/// Records that tools pass to one another: checkpoint paths and provenance entries. Opens the user's checkpoint
/// arguments, with a hint if the path is not a checkpoint. The checkpoint format is in ckpt.
#pragma once

#include <optional>
#include <string>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/json/value.h"

namespace fp8::model {

/// Origin of a checkpoint; becomes an entry of /provenance.
struct Origin {
  std::string tool{};     ///< fp8-init
  std::string version{};  ///< version of the suite
  std::string command{};  ///< command line, quoted for a shell
};

/// The origin of a tool's run. The command line begins with `tool`, not with its path, and words with shell
/// metacharacters are quoted.
Origin origin_of(const std::string& tool, const std::string& version, int argc, const char* const* argv);

/// `provenance` (an array, or null) with `origin` as its last entry.
json::Value with_origin(const json::Value& provenance, const Origin& origin);

/// {"type": "checkpoint", "path": path}: the output of a tool for the next one in a pipe.
json::Value checkpoint_record(const std::string& path);

/// `argument` itself; for "-", the path in the last checkpoint record among the JSON Lines on descriptor `fd`, read to
/// the end (other records are skipped). Throws Error when there is none.
std::string resolve_checkpoint_argument(const std::string& argument, int fd = 0);

/// Opens the checkpoint of an argument, a path or RUN, RUN@last, RUN@best, RUN@N (see ckpt::open_of_run()), and holds
/// it open. Throws Error that identifies the path if it is instead a Hugging Face folder, a token file, or unfinished
/// (`*.tmp`, also through a link), and if its counters are invalid.
ckpt::Checkpoint open_checkpoint(const std::string& argument);

/// Identifier of the model's tokenizer, fp8-tokens(5): the digest of its tokenizer.json, else the identifier recorded
/// with the training data ("bytes", or a digest); nothing if both are missing. Throws Error `path: /tokenizer: reason`
/// if tokenizer.json cannot be read.
std::optional<std::string> tokenizer_id(const ckpt::Checkpoint& checkpoint);

/// Whether `path` is a file that begins like a token file, fp8-tokens(5). False if it cannot be read.
bool is_token_file(const std::string& path);

}  // namespace fp8::model
