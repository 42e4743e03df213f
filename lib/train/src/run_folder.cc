// Locking and making the folder of a run, and its checkpoints.
#include "run_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "fp8/base/error.h"
#include "fp8/base/folders.h"
#include "fp8/model/record.h"
#include "fp8/train/flags.h"

namespace fp8::train {

void RunFolder::lock() {
  comm::agree(host_comm_, [&] {
    if (host_comm_.rank() != 0) return;
    std::error_code ignored;
    // A folder that cannot be written needs no lock: a finished run there is only read.
    if (std::filesystem::is_directory(path_, ignored) && ::access(path_.c_str(), W_OK) == 0) lock_here();
  });
}

void RunFolder::lock_here() {
  if (const auto holder = lock_.take(path_ + "/.lock"))
    throw Error(path_ + ": another fp8-step uses this folder" + (holder->empty() ? "" : ": " + *holder) +
                "; wait until it ends, or use another " + flag_name("out"));
  locked_ = true;
  if (!lock_.unlockable().empty() && hooks_.warning)
    hooks_.warning(path_ + ": its file system cannot lock files (" + lock_.unlockable() +
                   "): make sure that no other job writes there");
}

void RunFolder::make() {
  comm::agree(host_comm_, [&] {
    if (host_comm_.rank() != 0) return;
    make_folders(path_);
    if (!locked_) {
      lock_here();
      if (!ckpt::list_steps(path_).empty())
        throw Error(path_ + ": another run has meanwhile begun in this folder; the same command resumes it");
    }
    for (const std::string& removed : ckpt::cleanup_tmp(path_))
      if (hooks_.note) hooks_.note(removed + ": left over from an interrupted save, removed");
  });
}

Sources::Sources(comm::Communicator& host_comm, const RunConfig& config, Journal& journal)
    : host_comm_(host_comm), out_(config.out), journal_(journal) {
  comm::agree(host_comm_, [&] {
    if (host_comm_.rank() != 0) return;
    struct stat s {};
    if (::stat(out_.c_str(), &s) == 0 && !S_ISDIR(s.st_mode)) throw Error(out_ + ": exists and is not a folder");
    left_ = ckpt::list_steps(out_);
    std::reverse(left_.begin(), left_.end());
    if (!left_.empty()) open_newest();
  });
  share();
  comm::agree(host_comm_, [&] { model_.emplace(model::open_checkpoint(config.model)); });
}

// Selects the newest checkpoint that can be opened. On rank 0.
void Sources::open_newest() {
  while (!selected_) {
    if (left_.empty()) throw Error(ckpt::all_damaged(out_, newest_reason_));
    const ckpt::StepFolder folder = left_.back();
    left_.pop_back();
    try {
      selected_.emplace(ckpt::open_step(folder));
    } catch (const Error& e) {
      pass_over(folder.path, e.what());
    }
  }
}

// Opens on all ranks what rank 0 has selected.
void Sources::share() {
  const std::string path = host_comm_.all_gather(selected_ ? selected_->path() : "")[0];
  comm::agree(host_comm_, [&] {
    if (host_comm_.rank() != 0 && !path.empty()) selected_.emplace(model::open_checkpoint(path));
  });
}

void Sources::pass_over(const std::string& path, const std::string& reason) {
  if (newest_reason_.empty()) newest_reason_ = reason;
  journal_.warn(-1, ckpt::passed_over(path, reason));
}

void Sources::refuse(const std::string& reason) {
  if (!resuming()) throw comm::AgreedError(reason);
  pass_over(selected_->path(), reason);
  selected_.reset();
  comm::agree(host_comm_, [&] {
    if (host_comm_.rank() == 0) open_newest();
  });
  share();
}

}  // namespace fp8::train
