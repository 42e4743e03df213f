/// Whole runs of a small model on one rank.
#pragma once

#include <string>
#include <vector>

#include "fp8/model/initialize.h"
#include "fp8/train/run.h"
#include "small_model.h"

namespace fp8::train {

using namespace test;
using dtype::DType;

/// A model and data in a folder, and the records of the last run.
class Run : public FolderTest {
 protected:
  Run() {
    write_tokens(at("data.h5"), 1000, 64);
    (void)model::initialize(small_model(), at("m.h5"), {});
    config_.model = at("m.h5"), config_.data = at("data.h5"), config_.out = at("run");
    config_.seq_length = 8, config_.batch_size = 2, config_.steps = 4, config_.schedule.lr = 1e-3;
    config_.flags = json::object({});
  }
  // Runs; requests a stop after `stop_after` steps (0: never) and collects records and notes.
  Exit go(int stop_after = 0) {
    records_.clear(), notes_.clear();
    int asked = 0;
    state::Hooks hooks;
    hooks.record = [&](const json::Value& r) { records_.push_back(r); };
    hooks.note = [&](const std::string& text) { notes_ += text + "\n"; };
    hooks.warning = hooks.note;
    hooks.progress = [](const std::string&) {};
    hooks.stop_requested = [&] { return ++asked == stop_after; };
    const auto one = comm::solo();
    return run(config_, *one, hooks);
  }
  std::string refusal(Exit code = Exit::bad) {
    return error_of([&] { (void)go(); }, code);
  }
  // The types of the records, with their steps.
  std::string story() const {
    std::string text;
    for (const json::Value& r : records_) {
      const json::Value* step = r.as_object().find("step");
      text += r.as_object().get_string("type", "record") +
              (step != nullptr ? " " + std::to_string(step->as_int()) : "") + ", ";
    }
    return text;
  }
  // The losses of the records as text.
  std::string losses() const {
    std::string text;
    for (const json::Value& r : records_) {
      if (const json::Value* loss = r.as_object().find("loss")) text += json::dump(*loss) + " ";
    }
    return text;
  }
  settings::RunConfig config_;
  std::vector<json::Value> records_;
  std::string notes_;
};

}  // namespace fp8::train
