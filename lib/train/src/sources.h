// Where a run may start from. Private to the crate.
#pragma once

#include <string>
#include <vector>

#include "fp8/ckpt/run_folder.h"
#include "fp8/comm/comm.h"
#include "records.h"

namespace fp8::train {

// The checkpoints in a run's folder, newest first; MODEL where there are none. Rank 0 looks. Opening one reads its
// documents; the rest of it is checked as it is loaded. Collective.
class Sources {
 public:
  Sources(comm::Communicator& world, const Config& config, const Journal& journal);
  const std::string& path() const { return path_; }
  bool resuming() const { return resuming_; }
  // The one at hand is damaged: on to the next. Throws Error where there is none left.
  void refuse(const std::string& reason);

 private:
  void take_next();
  void tell(const std::string& path, const std::string& reason) const {
    journal_.note(path + ": damaged, trying an older one: " + reason);
  }

  comm::Communicator& world_;
  const std::string& out_;
  const Journal& journal_;
  std::vector<ckpt::StepFolder> left_;  // on rank 0, oldest first
  std::string path_;
  bool resuming_ = false;
};

}  // namespace fp8::train
