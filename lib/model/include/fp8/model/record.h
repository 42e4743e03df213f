/// What tools hand one another: records that name checkpoints, and the line of provenance each tool adds. And opening
/// what a user names as a checkpoint, with a hint where it is something else. Not the checkpoint format (ckpt).
#pragma once

#include <string>

#include "fp8/ckpt/checkpoint.h"
#include "fp8/json/value.h"

namespace fp8::model {

/// Who makes a checkpoint; it becomes an entry of /provenance.
struct Origin {
  std::string tool{};     ///< fp8-init
  std::string version{};  ///< of the suite
  std::string command{};  ///< command line, as it could be typed again
};

/// The origin of a tool's run. The command line begins with `tool`, not with the path it was started by, and words that
/// a shell would not take as they are get quoted.
Origin origin_of(const std::string& tool, const std::string& version, int argc, const char* const* argv);

/// `provenance` (an array, or null) with `origin` as its last entry.
json::Value with_origin(const json::Value& provenance, const Origin& origin);

/// {"type": "checkpoint", "path": path}: what a tool prints for the next one in a pipe.
json::Value checkpoint_record(const std::string& path);

/// `argument` itself; for "-", the path in the last checkpoint record among the JSON Lines on descriptor `fd` (other
/// records are skipped, and reading goes on to the end). Throws Error when there is none.
std::string resolve_checkpoint_argument(const std::string& argument, int fd = 0);

/// Opens a checkpoint. Throws Error that says what `path` is where it is no checkpoint but a Hugging Face folder, a
/// run's folder, a token file, or unfinished (`*.tmp`, also behind a link), and where its counters are not a run's.
ckpt::Checkpoint open_checkpoint(const std::string& path);

/// Whether `path` is a file that begins like a token file, fp8-tokens(5). No error when it cannot be read: false.
bool is_token_file(const std::string& path);

}  // namespace fp8::model
