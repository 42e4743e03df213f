/// Training curves: reads reference curves, trains runs, and measures the distance between curves.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "fp8/convert/convert.h"
#include "fp8/data/tokenize.h"
#include "fp8/json/json.h"
#include "fp8/train/run.h"
#include "golden.h"

namespace fp8::golden {

/// One step of a curve.
struct Step {
  std::int64_t tokens = 0;                 ///< total after the step
  double loss = 0, grad_norm = 0, lr = 0;  ///< before the update; before clipping; used for the update
  std::int64_t fp8_gemms = 0;              ///< only in curves of fp8-step
};
/// Steps in order.
using Curve = std::vector<Step>;

/// Reads the step records of a reference file.
inline Curve read_curve(const std::string& path) {
  Curve curve;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const json::Value value = json::parse(line, path);
    const json::Object& o = value.as_object();
    if (o.get_string("type", path) != "step") continue;
    EXPECT_EQ(o.get_int("step", path), static_cast<std::int64_t>(curve.size()));
    curve.push_back({o.get_int("tokens", path), o.get_double("loss", path), o.get_double("grad_norm", path),
                     o.get_double("lr", path), 0});
  }
  return curve;
}

/// The distance between two curves, or a bound of it.
struct Bounds {
  double loss_max, loss_mean, grad_norm_mean;  ///< nats, nats, relative
};

/// The distance of `a` from `b` over the steps that both have.
inline Bounds distance(const Curve& a, const Curve& b) {
  Bounds d{0, 0, 0};
  const std::size_t n = std::min(a.size(), b.size());
  for (std::size_t i = 0; i < n; ++i) {
    const double loss = std::fabs(a[i].loss - b[i].loss);
    d.loss_max = std::fmax(d.loss_max, loss);
    d.loss_mean += loss / static_cast<double>(n);
    d.grad_norm_mean += std::fabs(a[i].grad_norm / b[i].grad_norm - 1) / static_cast<double>(n);
  }
  return d;
}

/// Expects that a curve is within `bounds` of a reference and has equal learning rates and token counts.
inline void check(const Curve& curve, const Curve& reference, const Bounds& bounds, const std::string& what) {
  ASSERT_EQ(curve.size(), reference.size()) << what;
  const Bounds d = distance(curve, reference);
  EXPECT_LE(d.loss_max, bounds.loss_max) << what;
  EXPECT_LE(d.loss_mean, bounds.loss_mean) << what;
  EXPECT_LE(d.grad_norm_mean, bounds.grad_norm_mean) << what;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    EXPECT_DOUBLE_EQ(curve[i].lr, reference[i].lr) << what << " step " << i;
    EXPECT_EQ(curve[i].tokens, reference[i].tokens) << what << " step " << i;
  }
}

/// A folder with a model and a token file for training.
class TrainingFolder {
 public:
  /// `model` is one of tests/golden/models.
  explicit TrainingFolder(const std::string& model) {
    convert::convert(model_folder(model), path("model.h5"), {});
    data::tokenize(
        {.inputs = {"share/text/tinyshakespeare.txt"}, .output = path("data.h5"), .from = data::Source::text});
  }
  /// Path of `name` in the folder.
  std::string path(const std::string& name) const { return folder_.at(name); }
  /// Trains on one rank in the folder `out`; returns the curve of the step records.
  Curve run(settings::RunConfig config, const std::string& out) const {
    config.model = path("model.h5");
    config.data = path("data.h5");
    config.out = path(out);
    Curve curve;
    state::Hooks hooks;
    hooks.record = [&](const json::Value& record) {
      const json::Object& o = record.as_object();
      if (o.get_string("type", "record") != "step") return;
      EXPECT_EQ(o.get_int("step", "record"), static_cast<std::int64_t>(curve.size()) + 1);
      EXPECT_FALSE(o.get_bool("skipped", "record"));
      curve.push_back({o.get_int("tokens", "record"), o.get_double("loss", "record"),
                       o.get_double("grad_norm", "record"), o.get_double("lr", "record"),
                       o.get_int("fp8_gemms", "record")});
    };
    const auto world = comm::solo();
    EXPECT_EQ(train::run(config, *world, hooks), Exit::done);
    return curve;
  }

 private:
  TemporaryFolder folder_;
};

/// The settings of all reference curves: data, batch, optimizer, schedule. See tests/golden/curves/README.md.
inline settings::RunConfig hundred_steps() {
  settings::RunConfig c;
  c.seq_length = 64;
  c.batch_size = 8;
  c.sampler = data::SamplerKind::sequential;
  c.steps = 100;
  c.optimizer = {0.9f, 0.95f, 1e-8f, 0.1f};
  c.schedule = {.kind = optim::ScheduleKind::cosine, .lr = 1e-3, .min_lr = 1e-4, .warmup = 10};
  c.clip = 1;
  return c;
}

}  // namespace fp8::golden
