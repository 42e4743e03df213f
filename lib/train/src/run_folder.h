// The folder of a run, which one job at a time may write. Private to the crate.
#pragma once

#include <string>

#include "fp8/base/lock.h"
#include "fp8/train/run.h"

namespace fp8::train {

// Rank 0 locks FOLDER/.lock until this object is destroyed. fp8-resume locks the folder itself, since it starts
// commands that take this lock.
class RunFolder {
 public:
  RunFolder(comm::Communicator& world, const Hooks& hooks, std::string path)
      : world_(world), hooks_(hooks), path_(std::move(path)) {}
  // Locks the folder if it exists and can be written; make() does so otherwise. Collective. Throws AgreedError naming
  // the process that holds it. Where the file system cannot lock, a warning says so.
  void lock();
  // Makes and locks the folder if lock() found none, and removes what interrupted saves left. Collective.
  void make();

 private:
  void lock_here();
  comm::Communicator& world_;
  const Hooks& hooks_;
  std::string path_;
  LockFile lock_;        // rank 0's
  bool locked_ = false;  // rank 0's
};

}  // namespace fp8::train
