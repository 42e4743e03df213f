// A run, from top to bottom: resolve the settings, plan memory, allocate, load, then step, record, evaluate and save
// until the last step or a request to stop, and end. run() at the bottom calls these parts in this order.
#include "fp8/train/run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <utility>

#include "attention_note.h"
#include "checkpoint_space.h"
#include "fp8/base/clock.h"
#include "fp8/base/text.h"
#include "fp8/cli/command.h"
#include "fp8/json/json.h"
#include "fp8/json/trace.h"
#include "fp8/model/record.h"
#include "fp8/settings/checks.h"
#include "fp8/settings/lora.h"
#include "fp8/state/saver.h"
#include "fp8/statistics/records.h"
#include "fp8/train/device_setup.h"
#include "fp8/train/gradients.h"
#include "fp8/train/observe.h"
#include "fp8/train/records.h"
#include "job_memory.h"
#include "machine_report.h"
#include "profile.h"
#include "run_setup.h"
#include "stage_report.h"

namespace fp8::train {
namespace {

constexpr int kMaxSkipsInARow = 10;

// The objects that do not change while steps run. References outlive them.
struct RunContext {
  const RunSetup& setup;
  const DeviceSetup& device;
  comm::Communicator& host_comm;
  const state::Hooks& hooks;
  state::Journal& journal;
  const LockedFolder& held;  // the folder of the run, on rank 0
  const RunInputs& inputs;
  statistics::Collector* collector;      // collector of the steps with records in tensors.jsonl, or null
  shard::MemoryPlan plan;                // plan of this rank
  JobMemory memory;                      // need of the rank that needs the most
  json::Value provenance;                // provenance for checkpoints, as the next member
  std::optional<std::string> tokenizer;  // text of tokenizer.json

  const settings::RunConfig& config() const { return setup.config; }
};

// The objects that steps change. Not movable: the model and the saves refer to themselves.
struct RunState {
  RunState(const RunContext& run, const shard::ModelSpec& spec, device::Buffer step_scalars);

  device::Buffer scalars;  // one StepScalars, on the device
  Profiler profiler;
  shard::ShardedModel model;
  MicroBatches batches;
  Position position;
  std::optional<ckpt::Evaluation> evaluation;  // evaluation of the last step
  state::SaveState saves;                      // after the model, so that a save ends before what it reads is destroyed
  int skips_in_a_row = 0;
  Clock::time_point start = Clock::now();  // begin of the first step
  double last_loss = NAN;                  // loss of the last step
  double busy = 0;                         // seconds without waits of the steps since the last record
  // Equal on all ranks.
  bool stop_requested = false, output_failed = false, save_interval_over = false;
};

// Collective.
shard::MemoryPlan plan_of(const RunSetup& s, const shard::ModelSpec& spec, const DeviceSetup& device) {
  return shard::plan_memory(device.context(), device.mesh(), spec, s.shape(*s.sampler),
                            s.shape(s.eval_sampler ? *s.eval_sampler : *s.sampler),
                            s.sample ? s.sample->shape() : shard::BatchShape{});
}

// The context of a device with the profile that operations are recorded in.
Context with_profile(Context ctx, device::Profile* profile) {
  ctx.profile = profile;
  return ctx;
}

RunState::RunState(const RunContext& run, const shard::ModelSpec& spec, device::Buffer step_scalars)
    : scalars(std::move(step_scalars)),
      profiler(run.config()),
      model(with_profile(run.device.context(), profiler.profile()), run.device.mesh(), spec, run.plan),
      batches(run.config().grad_accumulation, run.config().batch_size, run.config().seq_length,
              run.setup.sampler->separate()),
      position(run.setup.position),
      saves(run.host_comm, run.journal, save_policy(run.config(), &run.held), position.step) {}

// Allocates all memory of the run.
void allocate_state(const RunContext& run, std::optional<RunState>& state) {
  device::Buffer scalars(sizeof(StepScalars), run.device.type(), "scalars of a step");
  shard::ModelSpec spec = run.setup.model_spec;
  spec.store.fp8.options.counts = &scalars_in(scalars)->casts;
  // Tensors on a device are saved from a copy in host memory.
  spec.snapshot = spec.snapshot || run.device.type() != device::DeviceType::host;
  state.emplace(run, spec, std::move(scalars));
}

json::Value provenance_of(const RunSetup& s, const ckpt::Checkpoint& start) {
  if (s.resuming && !s.changes_computation()) return start.provenance();
  return model::with_origin(start.provenance(), {"fp8-step", s.config.tool_version, s.config.command});
}

// Names the newest checkpoint of a run in a message.
std::string last_checkpoint(const std::string& run) {
  const std::vector<ckpt::StepFolder> steps = ckpt::list_steps(run);
  return steps.empty() ? "no checkpoint was saved" : "the last checkpoint is " + steps.front().path;
}

// Ends a run whose values are not finite, after the save under way.
[[noreturn]] void diverged(RunState& state, const RunContext& run, const std::string& reason) {
  state::finish_save(state.saves);
  throw comm::AgreedError(reason + "; " + last_checkpoint(run.config().out), Exit::diverged);
}

[[noreturn]] void diverged_in_a_row(RunState& state, const RunContext& run) {
  diverged(
      state, run,
      "the loss or the gradient was not finite in " +
          (state.skips_in_a_row == 1 ? "the last step" : std::to_string(state.skips_in_a_row) + " steps in a row"));
}

void evaluate_now(RunState& state, const RunContext& run) {
  run.journal.progress("evaluating after step " + std::to_string(state.position.step));
  const Clock::time_point start = Clock::now();
  const settings::RunConfig& c = run.config();
  const data::Sampler& sampler = *run.setup.eval_sampler;
  const std::int64_t round = c.batch_size * run.device.mesh().data_parts();
  const std::int64_t samples =
      c.eval_batches > 0 ? std::min(sampler.samples(), c.eval_batches * round) : sampler.samples();
  const LossSum sum = evaluate_samples(
      state.model, run.host_comm, sampler, {samples, c.batch_size, c.seq_length},
      planned_forward(run.setup.model_spec, run.plan.logit_bytes, c.precision, state.model.store.stage()), {});
  json::Value record = eval_record(state.position.step, sum, c.precision, run.device.type());
  record.as_object().set("seconds", seconds_since(start));
  run.journal.emit(record);
  state.evaluation = ckpt::Evaluation{record.as_object().get_double_or("loss", NAN, "evaluation"), sum.targets,
                                      run.inputs.eval_tokens->digest()};
}

// Generates text and records it. Collective.
void sample(RunState& state, const RunContext& run) {
  const std::int64_t step = state.position.step;
  if (state.model.store.scales().needs_calibration())
    return run.journal.warn(step, "no sample: no step had targets yet, so the scales of recipe delayed are not known");
  run.journal.progress("sampling after step " + std::to_string(step));
  const Clock::time_point start = Clock::now();
  const SampledText text = sample_text(state.model, run.host_comm, *run.setup.sample);
  run.journal.emit(sample_record(step, *run.config().sample_prompt, text, seconds_since(start)));
  if (!text.finite) run.journal.warn(step, "the sample ended early: the model's logits are not finite");
}

// The document /train of a checkpoint.
json::Value train_document(const RunState& state, const RunContext& run) {
  const settings::RunConfig& c = run.config();
  json::Value train = json::object({{"step", state.position.step},
                                    {"updates", state.position.updates},
                                    {"tokens", state.position.tokens},
                                    {"phase", settings::phase_of(c.precision)},
                                    {"settings", run.setup.settings}});
  if (const ckpt::PositionBase& base = state.position.base; base != ckpt::PositionBase{})
    train.as_object().set("base",
                          json::object({{"step", base.step}, {"tokens", base.tokens}, {"sample", base.sample}}));
  if (c.rolling && state.position.step < run.setup.last_step) train.as_object().set(state::kRolling, true);
  if (state.evaluation) train.as_object().set("evaluation", to_json(*state.evaluation));
  return train;
}

// Saves the state. The last save of a run is written in this thread and must be committed. Collective.
void save(RunState& state, const RunContext& run, bool last) {
  const settings::RunConfig& c = run.config();
  const std::int64_t step = state.position.step;
  run.journal.progress("saving step " + std::to_string(step));
  state::Documents documents{hf::to_json(run.setup.model_spec.config),
                             train_document(state, run),
                             run.provenance,
                             mesh_record(run.device.mesh().shape()),
                             run.tokenizer,
                             run.setup.tokenizer,
                             run.setup.texts};
  const bool from_copy = state.model.snapshot && (!last || run.device.type() != device::DeviceType::host);
  state::start_save(state.saves, {step, std::move(documents), state.model.store, run.setup.table, state.evaluation},
                    state.model.ctx, from_copy ? &*state.model.snapshot : nullptr, c.async_save && !last);
  if (state.saves.diverged) diverged(state, run, state.saves.failure);
  if (!last) return;
  state::finish_save(state.saves, true);
  if (!state.saves.failure.empty())
    throw comm::AgreedError(state.saves.failure + "; the last step is not saved, earlier checkpoints are unchanged");
}

// Findings of a rank at the end of a step, on which all ranks act; numbers for one reduction.
struct EndOfStep {
  std::int64_t memory_peak, stop_requested, output_failed, save_busy, save_interval_over, folder_lost;
  std::optional<SlowRank> slow = {};  // of the steps since the last record, in a step that is recorded
};

// Throws AgreedError unless the folder of the run and its lock are in place. Collective.
void check_folder(const RunContext& run) {
  comm::agree(run.host_comm, [&] { run.held.check(); });
}

// Whether a step is recorded in the log, without `r` whatever its result; equal on all ranks.
bool is_recorded(const RunContext& run, std::int64_t step, const StepResult& r = {}) {
  return step % run.config().log_every == 0 || step == run.setup.last_step || r.skipped || r.masked;
}

// The maximum over all ranks. On a GPU waits of the host do not show which rank the others wait for, so none is named.
// Collective.
EndOfStep reduce_end_of_step(RunState& state, const RunContext& run, const StepResult& r) {
  const bool stop = run.hooks.stop_requested && run.hooks.stop_requested();
  std::vector<std::int64_t> max{
      peak_memory(state.model),          stop ? 1 : 0,
      run.journal.failed() ? 1 : 0,  // a record lost in this step is noticed in the next
      state.saves.worker.busy() ? 1 : 0, comm::is_writer(run.host_comm) && save_interval_over(state.saves) ? 1 : 0,
      run.held.in_place() ? 0 : 1};
  const auto flags = static_cast<std::ptrdiff_t>(max.size());
  if (run.device.type() == device::DeviceType::host && is_recorded(run, state.position.step, r) && !r.masked)
    std::ranges::copy(busy_term(run.host_comm, std::exchange(state.busy, 0)), std::back_inserter(max));
  run.host_comm.all_reduce(std::span<std::int64_t>(max), comm::Reduce::max);
  return {
      max[0], max[1], max[2], max[3], max[4], max[5], slow_rank(run.device.mesh(), {max.begin() + flags, max.end()})};
}

// Writes the gradients of the step that `record` describes, which are zero if it had no targets. Collective.
void save_gradients(RunState& state, const RunContext& run, const json::Value& record, bool masked) {
  const settings::RunConfig& c = run.config();
  const device::Timer timer(state.model.ctx, device::Work::input_output, "write gradients", 0);
  if (masked) state.model.store.gradients().zero(state.model.ctx);
  write_gradients(state.model, run.host_comm, c.gradients, c.force,
                  gradient_metadata(record, mesh_record(run.device.mesh().shape()), run.setup.model_spec.config));
  run.journal.note("the gradients of step " + std::to_string(state.position.step) + " are in " + c.gradients);
}

void record_step(RunState& state, const RunContext& run, const StepResult& r, const EndOfStep& end) {
  const settings::RunConfig& c = run.config();
  const std::int64_t step = state.position.step;
  const bool first = step == run.setup.position.step + 1;
  const double flops = model::training_flops_per_token(run.setup.model_spec.config, run.setup.model_spec.table);
  json::Value record =
      step_record(c, run.device.type(), r, state.position, run.setup.tokens_per_step(), flops, end.memory_peak);
  add_bubble(r, run.setup.bubble, record);
  if (first && !c.gradients.empty()) save_gradients(state, run, record, r.masked);
  if (!is_recorded(run, state.position.step, r)) return;
  add_slow_rank(end.slow, record);
  const device::Timer timer(state.model.ctx, device::Work::input_output, "write record", 0);
  run.journal.emit(record);
}

void print_step(const RunState& state, const RunContext& run, const StepResult& r) {
  const std::string step = "step " + std::to_string(state.position.step);
  if (r.masked) run.journal.note(step + ": all targets of the batch are masked; nothing is updated");
  const double tokens_per_s = r.masked ? 0 : static_cast<double>(run.setup.tokens_per_step()) / r.seconds;
  const std::int64_t done = state.position.step - run.setup.position.step;
  run.journal.progress(step + "/" + std::to_string(run.setup.last_step) + "  loss " + format_short(r.loss, 5) + "  " +
                           human_count(static_cast<std::uint64_t>(tokens_per_s)) + " tokens/s",
                       seconds_since(state.start), done, run.setup.last_step - state.position.step);
}

// Prints the table of the profiled steps and writes the operations of all ranks to a file of the run. Collective.
void report_profile(RunState& state, const RunContext& run) {
  const settings::RunConfig& c = run.config();
  Profiler& profiler = state.profiler;
  const std::string path = c.out + "/" + profiler.file_name();
  std::string ranks = table_of_stages(run.device.mesh(), profiler.times());
  if (run.device.type() == device::DeviceType::host)
    ranks += line_of_slow_rank(run.device.mesh(), profiler.times().busy);
  // Ranks share the host, so all of them measure it at the same time; each GPU is alone, and the first one's serves.
  if (run.device.type() == device::DeviceType::host || comm::is_writer(run.host_comm)) {
    Limits limits;
    try {
      limits = probe_limits(run.device.context(), c.precision.execution.activation, c.batch_size * c.seq_length,
                            2 * run.setup.model_spec.config.intermediate_size, run.setup.model_spec.config.hidden_size);
    } catch (const Error& e) {
      run.journal.note(cli::flag_name("profile") + ": the limits of the device were not measured: " + e.what());
    }
    run.journal.note("where the time goes, " + path + ":\n" + profiler.table(limits) + ranks);
  }
  const std::vector<std::string> lines = run.host_comm.all_gather(
      profiler.trace_lines(run.host_comm.rank(), name_of_rank(run.device.mesh()), profiler.origin()));
  comm::agree(run.host_comm, [&] {
    if (!comm::is_writer(run.host_comm)) return;
    run.held.check();
    AtomicFile file(path, true);
    File out = File::open_update(file.path());
    out.write_all(json::trace_file(lines));
    out.close();
    file.commit();
  });
  profiler.clear();
}

// Writes what the collector observed in a step that computed, and the loads of experts. Collective.
void record_tensors(const RunState& state, const RunContext& run, const StepResult& r) {
  const settings::RunConfig& c = run.config();
  const device::Timer timer(state.model.ctx, device::Work::input_output, "write tensor statistics", 0);
  std::vector<json::Value> records;
  if (run.collector != nullptr)
    records = records_of(run.collector->end(), c.precision.recipe_text(), linear_names(run.setup.model_spec.table));
  if (!comm::is_writer(run.host_comm)) return;
  const watchdog::LocalWork local(run.host_comm.progress());
  if (r.routing)
    std::ranges::move(expert_records(*r.routing, run.setup.model_spec.config.family), std::back_inserter(records));
  const std::int64_t step = state.position.step;
  if (const auto failed = TensorLog(c.out, run.held).write(step, std::move(records))) run.journal.warn(step, *failed);
}

void train_step(RunState& state, const RunContext& run) {
  const settings::RunConfig& c = run.config();
  run.host_comm.progress().set_step(state.position.step + 1);
  state.evaluation.reset();
  const bool observed = (run.collector != nullptr || state.model.experts) && c.stats_every > 0 &&
                        (state.position.step + 1) % c.stats_every == 0;
  StepEnvironment env{state.model, run.host_comm, state.scalars, c.seed, observed ? run.collector : nullptr,
                      c.aux_loss,  c.z_loss};
  state.profiler.begin_step(state.position.step + 1);
  const bool counted = is_recorded(run, state.position.step + 1);
  state.model.store.count_casts(counted);
  StepResult r = run_step(env, c, *run.setup.sampler, state.batches, state.position,
                          run.setup.planned(run.plan.logit_bytes, state.model.store.stage()));
  r.casts_counted = counted;
  ++state.position.step;
  state.last_loss = r.loss;
  state.busy += r.busy_seconds;
  state.position.updates += r.skipped || r.masked ? 0 : 1;
  state.position.tokens += run.setup.tokens_per_step();
  if (!r.masked) state.skips_in_a_row = r.skipped ? state.skips_in_a_row + 1 : 0;
  const EndOfStep end = reduce_end_of_step(state, run, r);
  if (end.folder_lost != 0) check_folder(run);
  state.stop_requested = end.stop_requested != 0;
  state.output_failed = end.output_failed != 0;
  state.save_interval_over = end.save_interval_over != 0;
  record_step(state, run, r, end);
  if (observed && !r.masked) record_tensors(state, run, r);
  state.profiler.end_step(r.busy_seconds);
  if (state.profiler.complete(state.position.step)) report_profile(state, run);
  print_step(state, run, r);
  state::advance_save(state.saves, state.position.step, end.save_busy != 0, !r.skipped && !r.masked);
  if (state.saves.diverged)
    diverged(state, run, "step " + std::to_string(state.position.step) + ": " + state.saves.failure);
  if (state.skips_in_a_row >= kMaxSkipsInARow) diverged_in_a_row(state, run);
}

// Steps until the last one or a reason to stop. While steps are skipped, nothing is saved: the weights from before the
// first of them may be the cause.
void train_steps(RunState& state, const RunContext& run) {
  const settings::RunConfig& c = run.config();
  bool going = state.position.step < run.setup.last_step;
  while (going) {
    train_step(state, run);
    const std::int64_t step = state.position.step;
    const bool done = step >= run.setup.last_step;
    going = !done && !state.stop_requested && !state.output_failed;
    const bool due = !going || state.save_interval_over || state::save_due(state.saves, step),
               saving = due && state.skips_in_a_row == 0;
    const bool evaluating = c.eval_every > 0 && (step % c.eval_every == 0 || done);
    if (evaluating || (c.keep_best && saving && !state.stop_requested)) evaluate_now(state, run);
    if (run.setup.sample && (step % c.sample_every == 0 || done)) sample(state, run);
    if (saving) save(state, run, !going);
    if (due && !saving) state::postpone_save(state.saves, step);
    if (done && !saving) diverged_in_a_row(state, run);
  }
}

std::string plan_text(const RunSetup& setup, device::DeviceType device, const std::string& memory) {
  const hf::ModelConfig& config = setup.model_spec.config;
  const std::vector<model::Parameter>& table = setup.model_spec.table;
  return "linears:\n" + precision_table(config, table, setup.config.precision) +
         (config.lora ? settings::text_of_lora(*config.lora, table) : "") +
         note_of_emulation(setup.config.precision, device) + "memory:\n" + memory;
}

// Whether cuDNN computes attention.
bool has_fused_attention(const RunSetup& s, const DeviceSetup& device) {
  return device.type() != device::DeviceType::host &&
         s.model_spec.execution.attention.kernels != ops::AttentionKernels::plain;
}

// What attention's gradients take on a GPU; empty where cuDNN does not compute them.
std::string text_of_attention(const RunSetup& s, const DeviceSetup& device, const shard::MemoryPlan& plan) {
  if (!has_fused_attention(s, device)) return {};
  shard::ModelSpec atomic = s.model_spec;
  atomic.execution.attention.deterministic = false;
  const auto workspace = [](const shard::MemoryPlan& p) { return p.bytes_of("attention workspace"); };
  return note_of_attention(s, device, workspace(plan), workspace(plan_of(s, atomic, device)));
}

// The plan, and what the user should know before the run.
void announce_plan(const RunSetup& s, device::DeviceType device, const JobMemory& memory,
                   const state::Journal& journal) {
  journal.note(plan_text(s, device, memory.table));
  if (const std::string stages = note_of_stages(s.model_spec.store.stages, memory.stages); !stages.empty())
    journal.note(stages);
  if (s.resuming) journal.note("resuming from " + s.source);
  for (const std::string& note : s.notes)
    if (!note.empty()) journal.note(note);
}

void announce(const RunContext& run) {
  const RunSetup& s = run.setup;
  announce_plan(s, run.device.type(), run.memory, run.journal);
  if (has_fused_attention(s, run.device))
    if (const std::string note = note_of_outdated_attention(s, run.device); !note.empty()) run.journal.note(note);
  json::Value record = run_record(s, run.memory.plan, run.device);
  add_hosts(run.host_comm.progress().hosts(), record);
  add_stages(s.model_spec.store.stages, run.memory.stages, record);
  if (s.model_spec.config.experts)
    record.as_object().set("experts", std::ranges::count_if(s.table, [](const model::Parameter& p) {
                             return p.slot == model::Slot::experts_down && p.role == model::ParameterRole::linear;
                           }));
  run.journal.emit(record);
}

// Collective.
json::Value end_record(const RunState& state, const RunContext& run, const std::string& reason) {
  return json::object({{"type", "end"},
                       {"step", state.position.step},
                       {"tokens", state.position.tokens},
                       {"reason", reason},
                       {"memory_used", memory_used_on(run.host_comm, run.memory.rank, state.model)}});
}

// The last record of a run that fails. Collective.
void end_with_error(RunState& state, const RunContext& run, const comm::AgreedError& e) {
  try {
    state::finish_save(state.saves);
  } catch (const comm::AgreedError&) {  // the first error is reported
  }
  json::Value record = end_record(state, run, e.code() == Exit::diverged ? "diverged" : "failed");
  record.as_object().set("status", static_cast<std::int64_t>(e.code()));
  record.as_object().set("message", e.what());
  run.journal.emit(record);
  run.journal.close();
}

// One line about the steps of this start of the run.
std::string summary_of(const RunState& state, const RunContext& run) {
  const Position &from = run.setup.position, &to = state.position;
  const std::string path = run.config().out + "/" + ckpt::step_name(to.step);
  const std::int64_t steps = to.step - from.step;
  return std::to_string(steps) + (steps == 1 ? " step, " : " steps, ") +
         human_count(static_cast<std::uint64_t>(to.tokens - from.tokens)) + " tokens in " +
         human_seconds(seconds_since(state.start)) + "; loss " +
         (std::isfinite(state.last_loss) ? format_short(state.last_loss, 5) : "not finite") +
         (state.evaluation ? ", " + format_short(state.evaluation->loss, 5) + " on " + run.config().eval_data : "") +
         (state.skips_in_a_row > 0 ? "" : "; saved " + path);
}

// The last record, and the status of the run. Collective.
Exit end_run(RunState& state, const RunContext& run) {
  const std::int64_t step = state.position.step;
  const std::string& out = run.config().out;
  const bool reached = step >= run.setup.last_step;
  const char* reason = step >= run.config().steps ? "finished"
                       : reached                  ? "until-step"
                       : state.stop_requested     ? "stopped on request"
                                                  : "output lost";
  if (state.stop_requested && !reached)
    run.journal.note("stopped on request: " +
                     (state.skips_in_a_row > 0
                          ? "the last steps were skipped, so nothing of them is saved; " + last_checkpoint(out)
                          : out + "/" + ckpt::step_name(step) + " is saved, and the same command goes on from it"));
  if (state.position.updates == run.setup.position.updates)
    run.journal.warn(step, "no step since step " + std::to_string(run.setup.position.step) +
                               " changed the weights: every one was skipped or had no targets");
  run.journal.emit(end_record(state, run, reason));
  run.journal.note(summary_of(state, run));
  run.journal.close();
  std::int64_t failed = run.journal.failed() ? 1 : 0;
  run.host_comm.all_reduce(std::span<std::int64_t>(&failed, 1), comm::Reduce::max);
  run.journal.rethrow();
  if (failed != 0 && !comm::is_writer(run.host_comm)) return Exit::bad;
  return reached || !state.stop_requested ? Exit::done : Exit::again;
}

// Runs the steps of a run whose state is loaded. Collective.
Exit train(RunState& state, const RunContext& run) {
  announce(run);
  try {
    train_steps(state, run);
    state::finish_save(state.saves);
    check_folder(run);
  } catch (const comm::AgreedError& e) {
    end_with_error(state, run, e);
    throw;
  }
  return end_run(state, run);
}

// Refuses a file of --gradients that cannot be written, before anything is computed. A run that is resumed by the same
// command keeps the file, which may be that of an earlier start, and writes none.
void check_gradients(RunSetup& s) {
  settings::RunConfig& c = s.config;
  if (c.gradients.empty()) return;
  std::error_code ignored;
  if (s.resuming && !c.force && std::filesystem::is_regular_file(c.gradients, ignored)) {
    s.notes.push_back(c.gradients + " exists and is kept: the gradients of this start are not written (" +
                      cli::flag_name("force") + " replaces it)");
    c.gradients.clear();
  } else {
    check_output(c.gradients, c.force, state::inputs_of(c));
  }
}

// Prints the report of a dry run, or that the run has no steps left. Collective.
void report_without_steps(const RunSetup& setup, const DeviceSetup& device, comm::Communicator& host_comm,
                          const state::Journal& journal) {
  if (!setup.config.dry_run) {
    const bool stopped = setup.last_step < setup.config.steps;  // by --until-step
    const bool beyond = setup.position.step > setup.last_step;
    return journal.note(setup.config.out + ": already at step " + std::to_string(setup.position.step) +
                        (!beyond   ? " of "
                         : stopped ? ", beyond " + cli::flag_name("until-step") + " "
                                   : ", beyond the last, ") +
                        std::to_string(setup.last_step) + ", nothing to do");
  }
  const shard::MemoryPlan plan = plan_of(setup, setup.model_spec, device);
  const JobMemory memory = memory_of_job(device.mesh(), plan);
  const state::SpaceForCheckpoints space = checkpoint_space(setup, device, host_comm);
  comm::agree(host_comm, [&] {
    announce_plan(setup, device.type(), memory, journal);
    for (const std::string& text : {space.text(), space.refusal(), space.warning()})
      if (!text.empty()) journal.note(text);
    if (const std::string text = text_of_attention(setup, device, plan); !text.empty()) journal.note(text);
  });
}

}  // namespace

Exit run(const settings::RunConfig& config, comm::Communicator& host_comm, const state::Hooks& hooks) {
  comm::agree(host_comm, [&] {
    settings::check_settings(config);
    state::check_outputs(config);
  });
  state::RunFolder folder(host_comm, hooks, config.out);
  state::Journal journal(hooks, host_comm);
  if (!config.dry_run) folder.lock();
  const RunInputs inputs = open_inputs(config, host_comm);
  std::optional<state::RunCheckpoints> checkpoints(std::in_place, host_comm, config, journal);
  std::optional<comm::Mesh> mesh;
  while (true) {  // once for every checkpoint of the run, until one is not damaged
    RunSetup setup = resolve(config, host_comm, inputs, *checkpoints);
    if (!mesh) mesh.emplace(host_comm, setup.mesh);  // the flags alone describe it
    const DeviceSetup device(config.device, setup.config.precision, *mesh, config.dry_run);
    if (!device.note().empty()) journal.note(device.note());
    setup.divide_layers(device.type());
    std::optional<statistics::Collector> collector;
    if (config.stats_every > 0 && setup.config.precision.precision == settings::Precision::fp8)
      setup.model_spec.store.fp8.observer =
          &collector.emplace(*mesh, collector_options(setup.model_spec.table, {}, false));
    const bool done = setup.position.step >= setup.last_step;
    comm::agree(host_comm, [&] {
      if (!done) check_gradients(setup);
    });
    if (config.dry_run || done) {
      if (const auto damage = state::verify(host_comm, checkpoints->start())) {
        checkpoints->refuse(*damage);
        continue;
      }
      report_without_steps(setup, device, host_comm, journal);
      return Exit::done;
    }
    std::optional<RunContext> context;
    std::optional<RunState> state;
    folder.clean();
    check_space(setup, device, host_comm, journal);
    shard::MemoryPlan plan = plan_of(setup, setup.model_spec, device);
    comm::agree(host_comm, [&] {
      const ckpt::Checkpoint& start = checkpoints->start();
      context.emplace(setup, device, host_comm, hooks, journal, folder.held(), inputs,
                      collector ? &*collector : nullptr, std::move(plan), JobMemory{}, provenance_of(setup, start),
                      start.tokenizer());
      allocate_state(*context, state);
      if (collector) collector->pause();
    });
    context->memory = memory_of_job(*mesh, context->plan);
    if (const auto damage = load_model(state->model, host_comm, checkpoints->start(), setup.config.precision,
                                       setup.moments(), settings::initial_adapters(setup.adapter, setup.config.seed))) {
      checkpoints->refuse(*damage);
      continue;
    }
    checkpoints.reset();
    if (hooks.begins) hooks.begins();
    host_comm.barrier();  // no rank may fail alone after rank 0 has made the folder
    folder.make();
    comm::agree(host_comm, [&] { journal.open(config.out, folder.held()); });
    return train(*state, *context);
  }
}

}  // namespace fp8::train
