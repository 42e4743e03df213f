// The parts of a training step, without a run around them: no files but the tokens, and no checkpoint.
#include "timed_model.h"

#include "fp8/base/folders.h"
#include "fp8/comm/comm.h"
#include "fp8/data/sampler.h"
#include "fp8/dtype/convert.h"
#include "fp8/model/initialize.h"
#include "fp8/plan/run.h"
#include "fp8/train/step.h"
#include "steps.h"

namespace fp8::probe {
namespace {

settings::PrecisionConfig precision_of(const std::string& recipe) {
  settings::PrecisionConfig p;
  if (recipe == settings::kPlainRecipe) return p;
  const bool exact = recipe == settings::kExactRecipe;
  p.precision = exact ? settings::Precision::fp32 : settings::Precision::fp8;
  if (exact)
    p.execution.activation = dtype::DType::f32;
  else
    p.recipe = recipe;
  return p;
}

plan::Run resolved(const TimedModelOptions& options, device::DeviceType device) {
  settings::PlanConfig config;
  config.batch_size = 1;
  config.seq_length = options.longest;
  config.precision = precision_of(options.recipe);
  return plan::resolve(plan::open_model(options.preset, options.keys), config, config.precision, 1, device);
}

void fill(shard::ShardedModel& model, double initializer_range) {
  for (const shard::ParameterShard& own : model.store.shards()) {
    const model::Parameter& p = model.store.table()[static_cast<std::size_t>(own.number)];
    std::vector<float> values(static_cast<std::size_t>(own.rows.count() * p.cols()));
    model::initial_values(p, initializer_range, 0, own.rows.begin * p.cols(), values);
    std::vector<std::byte> stored(own.master.bytes());
    dtype::from_floats(values, own.master.dtype, stored.data());
    device::copy_bytes(model.ctx, own.master.data, model.ctx.device, stored.data(), device::DeviceType::host,
                       stored.size());
  }
  model.store.refresh_compute_weights(model.ctx);
}

}  // namespace

struct TimedModel::Parts {
  Parts(const device::Device& device, const TimedModelOptions& options, plan::Run resolved)
      : run(std::move(resolved)),
        alone(comm::solo()),
        mesh(*alone),
        context(with_profile(device.context())),
        model(context, mesh, run.spec, shard::plan_rank(device.context(), mesh, run.spec, run.shape(), run.shape())),
        scalars(sizeof(train::StepScalars), device.type(), "scalars of a step") {
    const std::int64_t vocabulary = run.spec.config.vocab_size;
    write_random_tokens(folder.at("data.h5"), vocabulary, 2 * options.longest + 1);
    tokens = std::make_unique<data::TokenFile>(folder.at("data.h5"));
    fill(model, run.spec.config.initializer_range);
  }
  device::Context with_profile(device::Context ctx) {
    ctx.profile = &profile;
    return ctx;
  }
  void step(const train::MicroBatches& batches, std::int64_t length) {
    train::StepEnvironment env{model, mesh.all(), scalars};
    const train::StepTotals totals{length, length};
    if (model.store.scales().needs_calibration()) train::calibrate(env, batches, totals);
    (void)train::compute(env, batches, totals, false);
    train::update(env, {}, 1, updates++, 1e-4);
    device::synchronize(model.ctx);
  }

  plan::Run run;
  std::unique_ptr<comm::Communicator> alone;
  comm::Mesh mesh;
  device::Profile profile;
  device::Context context;
  shard::ShardedModel model;
  device::Buffer scalars;
  ScratchFolder folder;
  std::unique_ptr<data::TokenFile> tokens;
  std::int64_t updates = 0;
};

TimedModel::TimedModel(const device::Device& device, const TimedModelOptions& options)
    : parts_(std::make_unique<Parts>(device, options, resolved(options, device.type()))) {
  (void)steps(options.longest, 0);
}

TimedModel::~TimedModel() = default;

std::vector<device::Span> TimedModel::steps(std::int64_t tokens, int count) {
  Parts& p = *parts_;
  const data::Sampler sampler(*p.tokens, data::SamplerKind::sequential, 0, tokens, 1, data::DocumentMode::joined);
  train::MicroBatches batches(1, 1, tokens, false);
  (void)batches.read(sampler, 0, 0, 1);
  p.profile.recording = device::Recording::off;
  p.step(batches, tokens);
  p.profile.clear();
  p.profile.recording = device::Recording::timed;
  for (int i = 0; i < count; ++i) p.step(batches, tokens);
  p.profile.recording = device::Recording::off;
  return p.profile.spans();
}

}  // namespace fp8::probe
