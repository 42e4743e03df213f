// The checkpoints of a run, one after the other until one is whole.
#include "sources.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>

#include "fp8/base/error.h"

namespace fp8::train {

Sources::Sources(comm::Communicator& world, const Config& config, const Journal& journal)
    : world_(world), out_(config.out), journal_(journal), path_(config.model) {
  comm::agree(world_, [&] {
    if (world_.rank() != 0) return;
    struct stat s {};
    if (::stat(out_.c_str(), &s) == 0 && !S_ISDIR(s.st_mode)) throw Error(out_ + ": exists and is not a folder");
    left_ = ckpt::list_steps(out_);
    std::reverse(left_.begin(), left_.end());
  });
  std::array<std::int64_t, 1> found{left_.empty() ? 0 : 1};
  world_.all_reduce(std::span<std::int64_t>(found), comm::Reduce::max);
  resuming_ = found[0] != 0;
  if (resuming_) take_next();
}

void Sources::take_next() {
  std::string found;
  comm::agree(world_, [&] {
    if (world_.rank() != 0) return;
    while (found.empty()) {
      if (left_.empty()) throw Error(out_ + ": every checkpoint in it is damaged; move them away to start again");
      const ckpt::StepFolder folder = left_.back();
      left_.pop_back();
      try {
        (void)ckpt::open_step(folder);
        found = folder.path;
      } catch (const Error& e) {
        tell(folder.path, e.what());
      }
    }
  });
  path_ = world_.all_gather(found)[0];
}

void Sources::refuse(const std::string& reason) {
  if (!resuming_) throw comm::AgreedError(reason);
  tell(path_, reason);
  take_next();
}

}  // namespace fp8::train
