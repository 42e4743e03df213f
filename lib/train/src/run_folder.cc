// Locking and making the folder of a run.
#include "run_folder.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "fp8/base/error.h"
#include "fp8/base/folders.h"
#include "fp8/ckpt/run_folder.h"

namespace fp8::train {

void RunFolder::lock() {
  comm::agree(world_, [&] {
    if (world_.rank() != 0) return;
    std::error_code ignored;
    // A folder that cannot be written is no danger to another job: a finished run there is only read.
    if (std::filesystem::is_directory(path_, ignored) && ::access(path_.c_str(), W_OK) == 0) lock_here();
  });
}

void RunFolder::lock_here() {
  if (const auto holder = lock_.take(path_ + "/.lock"))
    throw Error(path_ + ": another fp8-step is at work there" + (holder->empty() ? "" : ": " + *holder) +
                "; wait for its end, or use another --out");
  locked_ = true;
  if (!lock_.unlockable().empty() && hooks_.warning)
    hooks_.warning(path_ + ": its file system cannot lock files (" + lock_.unlockable() +
                   "): make sure that no other job writes there");
}

void RunFolder::make() {
  comm::agree(world_, [&] {
    if (world_.rank() != 0) return;
    make_folders(path_);
    if (!locked_) {
      lock_here();
      if (!ckpt::list_steps(path_).empty())
        throw Error(path_ + ": another run was begun there meanwhile; the same command goes on with it");
    }
    for (const std::string& removed : ckpt::cleanup_tmp(path_))
      if (hooks_.note) hooks_.note(removed + ": left over from an interrupted save, removed");
  });
}

}  // namespace fp8::train
