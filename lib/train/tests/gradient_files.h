/// Gradients that runs of small models write, and their distance from those of one rank.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "../../comm/tests/mpi_main.h"
#include "fp8/convert/fit.h"
#include "fp8/hf/safetensors.h"
#include "fp8/model/initialize.h"
#include "fp8/train/run.h"
#include "small_model.h"

namespace fp8::train {

using namespace test;
using dtype::DType;
using settings::RunConfig;

inline comm::Communicator& world() { return *comm::world(); }

inline constexpr std::int64_t kLength = 8, kGlobalBatch = 24;

/// Which of three thirds one of nine ways is in, of which number 3 * i + j has the values i and j of two settings: each
/// third has every i and every j once.
inline std::size_t third_of(std::size_t way) { return (way / 3 + way % 3) % 3; }

/// Documents of one to seven tokens of which some are no targets; `packed` into sequences.
inline void write_documents(const std::string& path, bool packed) {
  data::TokenInfo info;
  info.vocab_size = 64, info.mask = true;
  if (packed) info.sequence_length = kLength;
  data::TokenWriter writer(path, info, false);
  std::uint32_t next = 1;
  for (int sample = 0; sample < 60; ++sample) {
    for (std::int64_t left = kLength; left > 0;) {
      const std::int64_t n = std::min<std::int64_t>(left, 1 + next % 7);
      std::vector<std::uint32_t> tokens;
      std::vector<std::uint8_t> mask;
      for (std::int64_t i = 0; i < n; ++i) {
        next = next * 1103515245 + 12345;
        tokens.push_back(next >> 16 & 63), mask.push_back((next >> 24 & 3) == 0 ? 0 : 1);
      }
      writer.append(tokens, mask);
      writer.end_document();
      left -= n;
    }
  }
  (void)writer.finish();
}

/// Models, data and gradients of all ranks.
class GradientFiles {
 public:
  explicit GradientFiles(const hf::ModelConfig& model = small_model()) {
    comm::agree(world(), [&] {
      if (world().rank() != 0) return;
      own_.emplace();
      (void)model::initialize(model, own_->at("m.h5"), {.tokenizer_id = "bytes"});
      write_tokens(own_->at("joined.h5"), 1000, 64);
      write_documents(own_->at("separate.h5"), false);
      write_documents(own_->at("packed.h5"), true);
    });
    folder_ = world().all_gather(own_ ? own_->path() : "")[0] + "/";
  }
  ~GradientFiles() { world().barrier(); }
  GradientFiles(const GradientFiles&) = delete;
  GradientFiles& operator=(const GradientFiles&) = delete;

  std::string at(const std::string& name) const { return folder_ + name; }
  // One step in fp32.
  RunConfig config(const std::string& name) const {
    RunConfig c;
    c.model = at("m.h5"), c.data = at("joined.h5"), c.out = at("run-" + name), c.gradients = at(name + ".safetensors");
    c.precision.precision = settings::Precision::fp32, c.precision.execution.activation = DType::f32;
    c.seq_length = kLength, c.steps = 1, c.schedule.lr = 1e-3;
    c.flags = json::object({});
    return c;
  }

 private:
  std::optional<TemporaryFolder> own_;  // of rank 0
  std::string folder_;
};

/// A number among the metadata of a file.
inline double metadata(const std::string& path, const std::string& key) {
  return std::stod(hf::SafetensorsFile(path).metadata().at(key));
}

/// The largest relative L2 of a gradient of `path` against those of `reference`; infinite if one is missing.
inline double distance(const std::string& reference, const std::string& path) {
  const auto names = convert::TensorNames::huggingface;
  const convert::Fit fit = convert::fit(convert::TensorSet(reference, names), convert::TensorSet(path, names));
  double largest = fit.tensors.empty() ? HUGE_VAL : 0;
  for (const convert::TensorFit& t : fit.tensors) {
    if (!t.note.empty()) return HUGE_VAL;
    largest = std::max(largest, t.relative_l2);
  }
  return largest;
}

}  // namespace fp8::train
