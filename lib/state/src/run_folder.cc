// Locking and making the folder of a run, and its checkpoints.
#include "fp8/state/run_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/folders.h"
#include "fp8/cli/command.h"
#include "fp8/comm/shared_folder.h"
#include "fp8/model/record.h"

namespace fp8::state {

std::vector<std::string> inputs_of(const settings::RunConfig& config) {
  return {config.model, config.data, config.eval_data, config.lora.folder, config.config_file};
}

void check_outputs(const settings::RunConfig& config) {
  std::error_code ignored;
  if (std::filesystem::exists(config.out + "/manifest.json", ignored))
    throw Error(config.out + ": a checkpoint, and " + cli::flag_name("out") + " needs the folder of a run");
  if (std::filesystem::exists(config.out + "/log.jsonl", ignored) &&
      std::filesystem::equivalent(config.out, config.model, ignored))
    throw Error(cli::flag_name("out") + ": " + config.out +
                " is MODEL too: name the folder of a new run, or go on with this run by fp8-resume " + config.out);
  check_not_of_run(config.out);
  if (!config.gradients.empty()) check_not_of_run(config.gradients, config.out);
  for (const char* name : {"/log.jsonl", "/tensors.jsonl"}) check_not_input(config.out + name, inputs_of(config));
}

void RunFolder::lock() {
  comm::check_shared(host_comm_, path_);
  comm::agree(host_comm_, [&] {
    if (!comm::is_writer(host_comm_)) return;
    std::error_code ignored;
    // A folder that cannot be written needs no lock: a finished run there is only read.
    if (std::filesystem::is_directory(path_, ignored) && ::access(path_.c_str(), W_OK) == 0) lock_here();
  });
}

void RunFolder::lock_here() {
  if (const auto holder = lock_.take(path_))
    throw Error(path_ + ": another fp8-step uses this folder" + (holder->empty() ? "" : ": " + *holder) +
                "; wait until it ends, or use another " + cli::flag_name("out"));
  if (!lock_.unlockable().empty() && hooks_.warning)
    hooks_.warning(path_ + ": its file system cannot lock files (" + lock_.unlockable() +
                   "): make sure that no other job writes there");
}

void RunFolder::clean() {
  comm::agree(host_comm_, [&] {
    if (!comm::is_writer(host_comm_) || !lock_.taken()) return;
    lock_.check();
    for (const std::string& removed : ckpt::cleanup_tmp(path_))
      if (hooks_.note) hooks_.note(removed + ": left over from an interrupted save, removed");
  });
}

void RunFolder::make() {
  comm::agree(host_comm_, [&] {
    if (!comm::is_writer(host_comm_)) return;
    lock_.check();
    if (!lock_.taken()) {
      make_folders(path_);
      lock_here();
      if (!ckpt::list_steps(path_).empty())
        throw Error(path_ + ": another run has meanwhile begun in this folder; the same command resumes it");
    }
  });
}

ckpt::Checkpoint open_on_all_ranks(comm::Communicator& host_comm, const std::string& argument) {
  constexpr int kTries = 100;
  for (int i = 0;; ++i) {
    std::optional<ckpt::Checkpoint> checkpoint;
    comm::agree(host_comm, [&] {
      if (comm::is_writer(host_comm)) checkpoint.emplace(model::open_checkpoint(argument));
    });
    const std::string path = host_comm.all_gather(checkpoint ? checkpoint->path() : "")[0];
    try {
      comm::agree(host_comm, [&] {
        if (!comm::is_writer(host_comm)) checkpoint.emplace(model::open_checkpoint(path));
      });
      return std::move(*checkpoint);
    } catch (const comm::AgreedError&) {
      std::error_code ignored;
      std::int64_t removed = comm::is_writer(host_comm) && !std::filesystem::exists(path, ignored) ? 1 : 0;
      host_comm.all_reduce(std::span(&removed, 1), comm::Reduce::max);
      if (removed == 0 || path == argument || i == kTries) throw;
    }
  }
}

RunCheckpoints::RunCheckpoints(comm::Communicator& host_comm, const settings::RunConfig& config, Journal& journal)
    : host_comm_(host_comm),
      out_(config.out),
      journal_(journal),
      finder_(config.out, ckpt::Which::last, [this](const std::string& path, const std::string& reason) {
        if (newest_reason_.empty()) newest_reason_ = reason;
        journal_.warn(-1, ckpt::passed_over(ckpt::Which::last, path, reason));
      }) {
  comm::agree(host_comm, [&] {
    if (!comm::is_writer(host_comm)) return;
    struct stat s {};
    if (::stat(out_.c_str(), &s) == 0 && !S_ISDIR(s.st_mode)) throw Error(out_ + ": exists and is not a folder");
    open_newest();
  });
  share();
  model_.emplace(open_on_all_ranks(host_comm, config.model));
  for (const std::string& message : model_->passed_over()) journal_.warn(-1, message);
}

// Selects the newest checkpoint that can be opened, if the run has any. On rank 0.
void RunCheckpoints::open_newest() {
  selected_ = finder_.next();
  if (!selected_ && !newest_reason_.empty()) throw Error(ckpt::all_damaged(out_, newest_reason_));
}

// Opens on all ranks what rank 0 has selected.
void RunCheckpoints::share() {
  const std::string path = host_comm_.all_gather(selected_ ? selected_->path() : "")[0];
  comm::agree(host_comm_, [&] {
    if (!comm::is_writer(host_comm_) && !path.empty()) selected_.emplace(model::open_checkpoint(path));
  });
}

void RunCheckpoints::refuse(const std::string& reason) {
  if (!resuming()) throw comm::AgreedError(reason);
  if (comm::is_writer(host_comm_)) finder_.pass_over(selected_->path(), reason);
  selected_.reset();
  comm::agree(host_comm_, [&] {
    if (comm::is_writer(host_comm_)) open_newest();
  });
  share();
}

}  // namespace fp8::state
