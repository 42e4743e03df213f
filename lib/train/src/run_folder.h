// The folder of a run: its lock, and the checkpoints that the run may start from. Private to the crate.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fp8/base/lock.h"
#include "fp8/ckpt/run_folder.h"
#include "fp8/comm/comm.h"
#include "records.h"

namespace fp8::train {

// The folder, which one job at a time may write. Rank 0 locks FOLDER/.lock until this object is destroyed. fp8-resume
// locks the folder itself, since it starts commands that take this lock.
class RunFolder {
 public:
  RunFolder(comm::Communicator& host_comm, const Hooks& hooks, std::string path)
      : host_comm_(host_comm), hooks_(hooks), path_(std::move(path)) {}
  // Locks the folder if it exists and can be written; otherwise make() does. Throws AgreedError naming the process that
  // holds the lock. If the file system cannot lock, a warning says so. Collective.
  void lock();
  // Makes and locks the folder if lock() found none, and removes the remains of interrupted saves. Collective.
  void make();

 private:
  void lock_here();
  comm::Communicator& host_comm_;
  const Hooks& hooks_;
  std::string path_;
  LockFile lock_;        // of rank 0
  bool locked_ = false;  // on rank 0
};

// MODEL, and the checkpoints in a run's folder, newest first. Rank 0 selects the newest that can be opened. Opening
// reads the documents; loading checks the rest. Open files can be read until this object is destroyed, even if their
// checkpoint is removed. Collective.
class Sources {
 public:
  Sources(comm::Communicator& host_comm, const RunConfig& config, Journal& journal);
  const ckpt::Checkpoint& model() const { return *model_; }
  // What to start from: the selected checkpoint, or MODEL if the run has none.
  const ckpt::Checkpoint& start() const { return selected_ ? *selected_ : *model_; }
  bool resuming() const { return selected_.has_value(); }
  // The selected checkpoint is damaged for `reason`: selects the next. Throws AgreedError if there is none.
  void refuse(const std::string& reason);

 private:
  void open_newest();
  void share();
  void pass_over(const std::string& path, const std::string& reason);

  comm::Communicator& host_comm_;
  const std::string& out_;
  Journal& journal_;
  std::vector<ckpt::StepFolder> left_;        // not yet tried, oldest first; on rank 0
  std::string newest_reason_;                 // why the newest is damaged
  std::optional<ckpt::Checkpoint> model_;     // MODEL
  std::optional<ckpt::Checkpoint> selected_;  // in the folder of the run
};

}  // namespace fp8::train
