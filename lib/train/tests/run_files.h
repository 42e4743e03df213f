/// A model and data for runs of all ranks of a job.
#pragma once

#include <optional>
#include <string>

#include "../../comm/tests/mpi_main.h"
#include "fp8/model/initialize.h"
#include "fp8/train/run.h"
#include "small_model.h"

namespace fp8::train {

using namespace test;
using dtype::DType;

inline comm::Communicator& world() { return *comm::world(); }

/// A folder of rank 0 with the model m.h5 and 1000 tokens below 64, data.h5, whose path all ranks have.
class RunFiles {
 public:
  explicit RunFiles(const hf::ModelConfig& model = small_model()) {
    comm::agree(world(), [&] {
      if (world().rank() != 0) return;
      own_.emplace();
      write_tokens(own_->at("data.h5"), 1000, 64);
      (void)model::initialize(model, own_->at("m.h5"), {});
    });
    folder_ = world().all_gather(own_ ? own_->path() : "")[0];
  }
  ~RunFiles() { world().barrier(); }
  RunFiles(const RunFiles&) = delete;
  RunFiles& operator=(const RunFiles&) = delete;
  /// Five steps, each saved.
  settings::RunConfig config(const std::string& out) const {
    settings::RunConfig c;
    c.model = folder_ + "/m.h5", c.data = folder_ + "/data.h5", c.out = folder_ + "/" + out;
    c.seq_length = 8, c.batch_size = 2, c.steps = 5, c.schedule.lr = 1e-3;
    c.save_every = 1;
    c.flags = json::object({});
    return c;
  }

 private:
  std::optional<TemporaryFolder> own_;  // of rank 0
  std::string folder_;
};

}  // namespace fp8::train
