// A step: read the batch, forward and backward for each micro-batch, norm of the gradient, update, check of what ran.
#include "fp8/train/step.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "fp8/base/checked.h"
#include "fp8/base/clock.h"
#include "fp8/base/text.h"
#include "fp8/cli/command.h"
#include "fp8/device/profile.h"
#include "tokens_of.h"

namespace fp8::train {
namespace {

void clear(const StepEnvironment& env) {
  const StepScalars none;
  device::copy_bytes(env.model.ctx, env.scalars.data(), env.model.ctx.device, &none, device::DeviceType::host,
                     sizeof none);
}

// Forward and backward over this rank's micro-batches; adds their losses.
shard::PassTimes forward_backward(StepEnvironment& env, const MicroBatches& batches, const StepTotals& totals) {
  const float scale = totals.targets > 0 ? static_cast<float>(1.0 / static_cast<double>(totals.targets)) : 0.0f;
  const comm::Mesh& mesh = env.model.store.mesh();
  if (env.model.experts)
    env.model.experts->begin(
        {env.aux_loss, env.z_loss, static_cast<double>(totals.tokens), &env.host_comm, &mesh.of_stage()});
  const shard::PassTimes times = shard::run_passes(
      env.model,
      {static_cast<int>(batches.count()), scale,
       [&](const Context& ctx, device::PooledMemory& memory, int i) { return batches.batch(ctx, memory, i); },
       [&](int i) {
         return shard::BatchPosition{env.seed, batches.step(), batches.first_row(i), batches.global_rows(),
                                     batches.own_rows()};
       },
       [&](const View& losses) {
         if (mesh.counts_samples()) optim::add_sum(env.model.ctx, losses, &scalars_in(env.scalars)->loss);
       }});
  device::mark(env.model.ctx, device::kUpdateMark, 0);
  env.model.store.gradients().finish(env.model.ctx);
  return times;
}

void reduce(const StepEnvironment& env, StepTotals& totals) {
  std::array<std::int64_t, 2> sums{totals.targets, totals.tokens};
  if (!env.model.store.mesh().counts_samples()) sums = {};
  env.host_comm.all_reduce(std::span<std::int64_t>(sums), comm::Reduce::sum);
  totals = {sums[0], sums[1]};
}

// Sums of the counts of all ranks.
void reduce(const StepEnvironment& env, quant::CastCounts& casts, comm::SentBytes& sent) {
  std::vector<std::int64_t> counts(sent.values.begin(), sent.values.end());
  counts.insert(counts.end(), {casts.elements, casts.saturated, casts.underflowed});
  const device::Timer timer(env.model.ctx,
                            comm::exchange_span("all-reduce", device::ExchangeKind::all_reduce, env.host_comm,
                                                8.0 * static_cast<double>(counts.size())));
  env.host_comm.all_reduce(std::span<std::int64_t>(counts), comm::Reduce::sum);
  const std::size_t n = sent.values.size();
  std::copy_n(counts.begin(), n, sent.values.begin());
  casts = {counts[n], counts[n + 1], counts[n + 2]};
}

// Throws AgreedError unless all replicas of the parameters are the same. Collective.
void check_replicas(const StepEnvironment& env, std::int64_t step) {
  const std::optional<std::string> found = env.model.store.differing_replica(env.model.ctx);
  comm::agree(env.host_comm, [&] {
    if (found)
      throw Error(cli::flag_name("paranoid") + ": step " + std::to_string(step) + ": " + *found +
                  "; memory or a processor may be faulty; nothing of this step is kept");
  });
}

}  // namespace

StepScalars read_scalars(const StepEnvironment& env) {
  StepScalars scalars;
  device::copy_bytes(env.model.ctx, &scalars, device::DeviceType::host, env.scalars.data(), env.model.ctx.device,
                     sizeof scalars);
  return scalars;
}

StepScalars* scalars_in(const device::Buffer& buffer) { return reinterpret_cast<StepScalars*>(buffer.data()); }

void calibrate(StepEnvironment& env, const MicroBatches& batches, const StepTotals& totals) {
  env.model.store.scales().begin_calibration();
  (void)forward_backward(env, batches, totals);
  env.model.store.end_calibration(env.model.ctx);
}

Computed compute(StepEnvironment& env, const MicroBatches& batches, const StepTotals& totals, bool trace) {
  Computed c;
  const gemm::Counts before = env.model.engine.counts();
  clear(env);
  if (trace) env.model.store.trace_gradients(&c.trace);
  c.times = forward_backward(env, batches, totals);
  if (trace) env.model.store.trace_gradients(nullptr);
  c.gemms = env.model.engine.counts() - before;
  env.model.store.gradients().add_squares(env.model.ctx, &scalars_in(env.scalars)->square_sum);
  if (!trace) return c;
  const StepScalars scalars = read_scalars(env);
  c.loss = scalars.loss;
  c.square_sum = scalars.square_sum;
  return c;
}

void update(StepEnvironment& env, const optim::Settings& optimizer, double clip, std::int64_t updates, double lr,
            const View& changes) {
  const Context& ctx = env.model.ctx;
  StepScalars* const scalars = scalars_in(env.scalars);
  {
    comm::Communicator& all = env.model.store.mesh().all();
    const device::Timer timer(
        ctx, comm::exchange_span("all-reduce", device::ExchangeKind::all_reduce, all, sizeof scalars->loss));
    if (!ctx.dry) all.sum_here(std::span<double>(&scalars->loss, 1));
  }
  optim::set_gate(ctx, &scalars->loss, &scalars->square_sum, clip, &scalars->gate);
  env.model.store.update(ctx, env.model.engine, optimizer,
                         optim::scalars_of(optimizer, updates + 1, lr, env.seed, &scalars->gate), changes);
}

Computed compute_observed(StepEnvironment& env, const MicroBatches& batches, const StepTotals& totals, bool trace) {
  if (env.collector != nullptr) env.collector->begin();
  Computed computed = compute(env, batches, totals, trace);
  if (env.collector != nullptr) env.collector->pause();
  return computed;
}

void check_planned(comm::Communicator& host_comm, const gemm::Counts& ran, std::int64_t planned,
                   const std::string& where) {
  const std::int64_t gemms = ran.low_precision_gemms();
  comm::agree(host_comm, [&] {
    if (gemms < planned)
      throw Error("FP8 was asked for and did not run as planned: " + std::to_string(gemms) + " of " +
                      std::to_string(planned) + " FP8 GEMMs in " + where,
                  Exit::fp8_missing);
  });
}

std::int64_t planned_experts(const shard::ShardedModel& model) {
  return model.experts ? model.experts->planned_gemms() : 0;
}

namespace {

// The share of the passes in which the ranks wait for other stages; nothing on a GPU, which computes asynchronously.
std::optional<double> measured_bubble(const StepEnvironment& env, const shard::PassTimes& mine) {
  if (env.model.ctx.device != device::DeviceType::host || env.model.store.stage().stages == 1) return std::nullopt;
  double busy = mine.busy, total = mine.total;
  env.host_comm.all_reduce(std::span<double>(&busy, 1), comm::Reduce::sum);
  env.host_comm.all_reduce(std::span<double>(&total, 1), comm::Reduce::max);
  return 1 - busy / (total * env.host_comm.size());
}

// StepResult::update_rms from the sums of squares of an update.
auto rms_by_role(const StepEnvironment& env, const View& changes) {
  const std::vector<model::Parameter>& table = env.model.store.table();
  std::vector<double> squares(table.size());
  device::copy_bytes(env.model.ctx, squares.data(), device::DeviceType::host, changes.data, env.model.ctx.device,
                     changes.bytes());
  std::array<double, kRoles> sums{}, elements{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (!table[i].trainable) continue;
    const auto role = static_cast<std::size_t>(table[i].role);
    double n = 1;
    for (const std::int64_t extent : table[i].whole_shape()) n *= static_cast<double>(extent);
    sums[role] += squares[i];
    elements[role] += n;
  }
  decltype(StepResult::update_rms) rms;
  for (std::size_t role = 0; role < rms.size(); ++role)
    if (elements[role] > 0) rms[role] = std::sqrt(sums[role] / elements[role]);
  return rms;
}

// The update of a step, which is measured if the configuration says so. Collective.
void update_measured(StepEnvironment& env, const settings::RunConfig& c, const Position& position, StepResult& r) {
  const device::Scope scope(*env.model.ctx.arena);
  const bool measured = c.update_rms_every > 0 && (position.step + 1) % c.update_rms_every == 0;
  const View changes = measured ? env.model.store.allocate_changes(env.model.ctx) : View{};
  update(env, c.optimizer, c.clip, position.updates, r.lr, changes);
  if (measured) r.update_rms = rms_by_role(env, changes);
}

}  // namespace

gemm::Counts sum_over_ranks(comm::Communicator& host_comm, const gemm::Counts& mine) {
  std::vector<std::int64_t> gemms;
  std::vector<double> flops;
  for (const auto& kinds : mine.by)
    for (const gemm::Count& count : kinds) gemms.push_back(count.gemms), flops.push_back(count.flops);
  host_comm.all_reduce(std::span<std::int64_t>(gemms), comm::Reduce::sum);
  host_comm.all_reduce(std::span<double>(flops), comm::Reduce::sum);
  gemm::Counts sum;
  std::size_t i = 0;
  for (auto& kinds : sum.by)
    for (gemm::Count& count : kinds) count = {gemms[i], flops[i]}, ++i;
  return sum;
}

void check_same_bits(comm::Communicator& host_comm, const std::vector<model::Parameter>& table, std::int64_t step,
                     const Computed& first, const Computed& second) {
  const auto differs = [&](const std::string& what) {
    throw Error(cli::flag_name("paranoid") + ": step " + std::to_string(step) + ", computed twice: " + what +
                " is not the same; memory or a processor may be faulty; nothing of this step is kept");
  };
  using Entries = std::vector<shard::GradientTrace::Entry>;
  const auto compare = [&](const Entries& one, const Entries& other, const char* what) {
    const auto at = std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first;
    if (at != one.end()) differs(what + table[static_cast<std::size_t>(at->parameter)].name);
    if (one.size() != other.size()) differs("the number of gradients");
  };
  comm::agree(host_comm, [&] {
    compare(first.trace.given, second.trace.given, "the gradient of ");
    if (std::bit_cast<std::uint64_t>(first.loss) != std::bit_cast<std::uint64_t>(second.loss)) differs("the loss");
  });
  comm::agree(host_comm,
              [&] { compare(first.trace.summed, second.trace.summed, "the sum over ranks of the gradient of "); });
  comm::agree(host_comm, [&] {
    if (std::bit_cast<std::uint64_t>(first.square_sum) != std::bit_cast<std::uint64_t>(second.square_sum))
      differs("the norm of the gradient");
  });
}

MicroBatches::MicroBatches(std::int64_t count, std::int64_t sequences, std::int64_t length, bool separate)
    : count_(count), sequences_(sequences), length_(length) {
  const std::int64_t rows = checked_mul(count, sequences, "sequences of a step");
  const std::int64_t bytes =
      checked_mul(checked_mul(rows, length, "tokens of a step"), std::int64_t{separate ? 12 : 8}, "tokens of a step");
  try {
    tokens_ = tensor::Tensor(DType::i32, {rows, length});
    targets_ = tensor::Tensor(DType::i32, {rows, length});
    if (!separate) return;
    starts_ = tensor::Tensor(DType::i32, {rows, length});
    lengths_ = tensor::Tensor(DType::i32, {rows});
    pairs_.resize(static_cast<std::size_t>(count));
  } catch (const Error&) {
    throw Error("out of memory: the tokens of a step, " + human_bytes(static_cast<std::uint64_t>(bytes)) +
                "; use a smaller " + cli::flag_name("batch-size") + ", " + cli::flag_name("seq-length") + " or " +
                cli::flag_name("grad-accumulation"));
  }
}

MicroBatches::MicroBatches(std::int64_t count, const shard::BatchShape& shape)
    : MicroBatches(count, shape.sequences, shape.length, shape.documents.count > 0) {
  bounds_ = shape.documents;
}

std::int64_t MicroBatches::read(const data::Sampler& sampler, std::int64_t step, int rank, int ranks) {
  bounds_ = sampler.bounds(sequences_);
  step_ = step;
  rank_ = rank;
  ranks_ = ranks;
  for (std::int64_t i = 0; i < count_; ++i) {
    const auto part = [&](const tensor::Tensor& t) {
      return t.view().empty() ? std::span<std::int32_t>() : ints_of(rows_of(t, i));
    };
    const std::int64_t pairs =
        sampler.batch(step, first_sample(i), sequences_, part(tokens_), part(targets_), part(starts_));
    if (!pairs_.empty()) pairs_[static_cast<std::size_t>(i)] = pairs;
    for (std::int64_t s = 0; s < sequences_ && !lengths_.view().empty(); ++s)
      ints_of(lengths_.view())[static_cast<std::size_t>(i * sequences_ + s)] =
          static_cast<std::int32_t>(sampler.length_of(sampler.sample_index(step, first_sample(i) + s)));
  }
  return count_targets(ints_of(targets_.view()));
}

std::int64_t MicroBatches::tokens() const {
  if (lengths_.view().empty()) return count_ * sequences_ * length_;
  const std::span<std::int32_t> lengths = ints_of(lengths_.view());
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

View MicroBatches::rows_of(const tensor::Tensor& t, std::int64_t i) const {
  return t.view().rows(i * sequences_, (i + 1) * sequences_);
}

model::Batch MicroBatches::on_host(std::int64_t i) const {
  model::Batch batch{rows_of(tokens_, i), rows_of(targets_, i), sequences_, length_};
  if (!starts_.view().empty()) {
    batch.documents = {rows_of(starts_, i), bounds_.count, bounds_.longest, pairs_[static_cast<std::size_t>(i)]};
    batch.lengths = rows_of(lengths_, i);
  }
  return batch;
}

model::Batch MicroBatches::batch(const Context& ctx, std::int64_t i) const { return shard::on_device(ctx, on_host(i)); }

model::Batch MicroBatches::batch(const Context& ctx, device::PooledMemory& memory, std::int64_t i) const {
  return shard::on_device(ctx, on_host(i), memory);
}

StepResult run_step(StepEnvironment& env, const settings::RunConfig& c, const data::Sampler& sampler,
                    MicroBatches& batches, const Position& position, const gemm::Count& planned) {
  const auto start = Clock::now();
  const watchdog::ProgressTable& progress = env.host_comm.progress();
  const double waited = progress.waited_seconds();
  const comm::Mesh& mesh = env.model.store.mesh();
  const comm::SentBytes sent = mesh.traffic().sent();
  StepResult r;
  const std::int64_t mine = c.batch_size * c.grad_accumulation;
  StepTotals totals;
  {
    const device::Timer timer(env.model.ctx, device::Work::input_output, "read batch",
                              8.0 * static_cast<double>(mine * c.seq_length));
    comm::agree(env.host_comm,
                [&] { totals.targets = batches.read(sampler, position.step, mesh.data_index(), mesh.data_parts()); });
    totals.tokens = batches.tokens();
  }
  r.data_seconds = seconds_since(start);
  reduce(env, totals);
  r.lr = c.schedule.rate(position.step);
  if (totals.targets == 0) {
    r.masked = true;
    r.loss = r.grad_norm = std::numeric_limits<double>::quiet_NaN();
    r.seconds = seconds_since(start);
    return r;
  }

  r.calibrated = env.model.store.scales().needs_calibration();
  if (r.calibrated) calibrate(env, batches, totals);
  r.replayed = c.paranoid > 0 && (position.step + 1) % c.paranoid == 0;
  const Computed computed = compute_observed(env, batches, totals, r.replayed);
  if (r.replayed) {
    const bool recorded = env.model.store.scales().record_amaxes(false);
    check_same_bits(env.host_comm, env.model.store.table(), position.step + 1, computed,
                    compute(env, batches, totals, true));
    env.model.store.scales().record_amaxes(recorded);
  }
  update_measured(env, c, position, r);
  if (r.replayed) check_replicas(env, position.step + 1);
  const StepScalars scalars = read_scalars(env);
  r.loss = scalars.loss / static_cast<double>(totals.targets);
  r.grad_norm = std::sqrt(scalars.square_sum);
  r.skipped = scalars.gate.skip != 0;
  r.casts = scalars.casts;
  r.sent = mesh.traffic().sent() - sent;
  reduce(env, r.casts, r.sent);

  if (env.model.experts) r.routing = env.model.experts->finish();
  check_planned(env.host_comm, computed.gemms, planned.gemms + planned_experts(env.model),
                "step " + std::to_string(position.step + 1));
  r.gemms = sum_over_ranks(env.host_comm, computed.gemms);
  r.bubble = measured_bubble(env, computed.times);
  r.seconds = seconds_since(start);
  r.busy_seconds = r.seconds - (progress.waited_seconds() - waited);
  return r;
}

PlannedForward planned_forward(const shard::ModelSpec& spec, std::int64_t logit_bytes,
                               const settings::PrecisionConfig& precision, const model::StageRange& stage) {
  const quant::Recipe* recipe = precision.recipe_or_null();
  if (recipe == nullptr) return [](std::int64_t) { return std::int64_t{0}; };
  return [&spec, recipe, execution = spec.decoder(logit_bytes),
          table = model::table_of_stage(spec.table, stage)](std::int64_t rows) {
    return model::planned_fp8(spec.config, table, *recipe, rows, execution, false).gemms;
  };
}

}  // namespace fp8::train
