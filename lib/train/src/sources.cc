// The checkpoints of a run, one after the other until one is whole.
#include "sources.h"

#include <sys/stat.h>

#include <algorithm>

#include "fp8/base/error.h"
#include "fp8/model/record.h"

namespace fp8::train {

Sources::Sources(comm::Communicator& world, const RunConfig& config, const Journal& journal)
    : world_(world), out_(config.out), journal_(journal) {
  comm::agree(world_, [&] {
    if (world_.rank() != 0) return;
    struct stat s {};
    if (::stat(out_.c_str(), &s) == 0 && !S_ISDIR(s.st_mode)) throw Error(out_ + ": exists and is not a folder");
    left_ = ckpt::list_steps(out_);
    std::reverse(left_.begin(), left_.end());
    if (!left_.empty()) open_newest();
  });
  share();
  comm::agree(world_, [&] { model_.emplace(model::open_checkpoint(config.model)); });
}

// On rank 0.
void Sources::open_newest() {
  while (!step_) {
    if (left_.empty()) throw Error(ckpt::all_damaged(out_, newest_reason_));
    const ckpt::StepFolder folder = left_.back();
    left_.pop_back();
    try {
      step_.emplace(ckpt::open_step(folder));
    } catch (const Error& e) {
      pass_over(folder.path, e.what());
    }
  }
}

// What rank 0 has opened, on all.
void Sources::share() {
  const std::string path = world_.all_gather(step_ ? step_->path() : "")[0];
  comm::agree(world_, [&] {
    if (world_.rank() != 0 && !path.empty()) step_.emplace(model::open_checkpoint(path));
  });
}

void Sources::pass_over(const std::string& path, const std::string& reason) {
  if (newest_reason_.empty()) newest_reason_ = reason;
  journal_.note(ckpt::passed_over(path, reason));
}

void Sources::refuse(const std::string& reason) {
  if (!resuming()) throw comm::AgreedError(reason);
  pass_over(step_->path(), reason);
  step_.reset();
  comm::agree(world_, [&] {
    if (world_.rank() == 0) open_newest();
  });
  share();
}

}  // namespace fp8::train
