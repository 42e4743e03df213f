// Where a run may start from. Private to the crate.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fp8/ckpt/run_folder.h"
#include "fp8/comm/comm.h"
#include "records.h"

namespace fp8::train {

// MODEL, and the checkpoints in a run's folder, newest first: rank 0 looks which of them can be opened. Opening reads
// documents; the rest is checked as it is loaded. Files stay open, also of a checkpoint that is pruned meanwhile, until
// this goes. Collective.
class Sources {
 public:
  Sources(comm::Communicator& world, const RunConfig& config, const Journal& journal);
  const ckpt::Checkpoint& model() const { return *model_; }
  // What to start from: the step at hand, or MODEL where the run has none.
  const ckpt::Checkpoint& start() const { return step_ ? *step_ : *model_; }
  bool resuming() const { return step_.has_value(); }
  // The one at hand is damaged: on to the next. Throws Error where there is none left.
  void refuse(const std::string& reason);

 private:
  void open_newest();
  void share();

  comm::Communicator& world_;
  const std::string& out_;
  const Journal& journal_;
  void pass_over(const std::string& path, const std::string& reason);

  std::vector<ckpt::StepFolder> left_;  // on rank 0, oldest first
  std::string newest_reason_;           // why the newest is damaged
  std::optional<ckpt::Checkpoint> model_, step_;
};

}  // namespace fp8::train
