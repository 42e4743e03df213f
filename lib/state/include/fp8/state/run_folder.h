/// The folder of a run: its lock, and the checkpoints that the run may start from.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fp8/base/lock.h"
#include "fp8/ckpt/find.h"
#include "fp8/comm/comm.h"
#include "fp8/settings/config.h"
#include "fp8/state/journal.h"

namespace fp8::state {

/// Paths of the files and folders that a run reads, which no output may be; some are empty.
std::vector<std::string> inputs_of(const settings::RunConfig& config);

/// Throws Error if --out is a committed checkpoint, a log in it is an input of the run, see check_not_input(), or an
/// output is one that this or another run writes in its folder, see check_not_of_run().
void check_outputs(const settings::RunConfig& config);

/// The folder, which one job at a time may write. Rank 0 locks FOLDER/.lock until this object is destroyed. fp8-resume
/// locks the folder itself, since it starts commands that take this lock.
class RunFolder {
 public:
  RunFolder(comm::Communicator& host_comm, const Hooks& hooks, std::string path)
      : host_comm_(host_comm), hooks_(hooks), path_(std::move(path)) {}
  /// Locks the folder if it exists and can be written; otherwise make() does. Throws AgreedError naming the process
  /// that holds the lock, or the host that does not see the folder, see comm::check_shared(). If the file system cannot
  /// lock, a warning says so. Collective.
  void lock();
  /// Removes the remains of interrupted saves from a locked folder. Throws as make(). Collective.
  void clean();
  /// Makes and locks the folder if lock() found none. Throws AgreedError if the locked folder has been removed or
  /// replaced since. Collective.
  void make();
  /// The lock, which rank 0 has; other ranks hold none.
  const LockedFolder& held() const { return lock_; }

 private:
  void lock_here();
  comm::Communicator& host_comm_;
  const Hooks& hooks_;
  std::string path_;
  LockedFolder lock_;
};

/// Opens the checkpoint of an argument on all ranks, see model::open_checkpoint(): rank 0 opens it and the others the
/// same path, again if another process removes it in between. Throws AgreedError. Collective.
ckpt::Checkpoint open_on_all_ranks(comm::Communicator& host_comm, const std::string& argument);

/// MODEL, and the checkpoints in a run's folder, newest first. Rank 0 selects the newest that can be opened. Opening
/// reads the documents; loading checks the rest. Open files can be read until this object is destroyed, even if their
/// checkpoint is removed. Collective.
class RunCheckpoints {
 public:
  RunCheckpoints(comm::Communicator& host_comm, const settings::RunConfig& config, Journal& journal);
  /// MODEL.
  const ckpt::Checkpoint& model() const { return *model_; }
  /// The checkpoint to start from: the selected one, or MODEL if the run has none.
  const ckpt::Checkpoint& start() const { return selected_ ? *selected_ : *model_; }
  /// Whether the run has a checkpoint to start from.
  bool resuming() const { return selected_.has_value(); }
  /// The selected checkpoint is damaged for `reason`: selects the next. Throws AgreedError if there is none.
  void refuse(const std::string& reason);

 private:
  void open_newest();
  void share();

  comm::Communicator& host_comm_;
  const std::string& out_;
  Journal& journal_;
  ckpt::Finder finder_;                       // used on rank 0
  std::string newest_reason_;                 // why the newest is damaged
  std::optional<ckpt::Checkpoint> model_;     // MODEL
  std::optional<ckpt::Checkpoint> selected_;  // in the folder of the run
};

}  // namespace fp8::state
