// A run: check everything, find where it stands, plan memory, then step after step until it is done or asked to stop.
#include "fp8/train/run.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>

#include "checks.h"
#include "device_setup.h"
#include "fp8/base/checked.h"
#include "fp8/base/text.h"
#include "fp8/data/tokens.h"
#include "fp8/json/json.h"
#include "fp8/json/trace.h"
#include "fp8/model/record.h"
#include "profile.h"
#include "records.h"
#include "run_folder.h"
#include "saver.h"
#include "sources.h"

namespace fp8::train {
namespace {

constexpr int kMaxSkipsInARow = 10;

// What a run is about, found before anything is written. Equal on every rank.
struct Setup {
  RunConfig config;  // resolved: steps, sequence length, schedule
  hf::ModelConfig model;
  std::vector<model::Parameter> table;   // precisions under FP8: what checkpoints record
  std::vector<model::Parameter> active;  // precisions as they run
  std::string source;                    // what is loaded: MODEL, or the newest of the run
  bool resuming = false;
  Position position;
  std::int64_t global_batch = 0, last_step = 0;
  json::Value settings;
  std::optional<std::string> tokenizer;  // what checkpoints record of it where no tokenizer.json travels
  std::vector<std::string> notes;        // for people
  gemm::Count planned;                   // FP8 GEMMs of a step on this rank

  std::int64_t tokens_per_step() const { return checked_mul(global_batch, config.seq_length, "tokens of a step"); }
};

// The files that a run reads besides its checkpoint.
struct Inputs {
  std::optional<data::TokenFile> tokens, eval_tokens;
};

json::Value mesh_of(const comm::Communicator& world) {
  return json::object({{"world", world.size()}, {"dp_shard", world.size()}});
}

void check_flags(const RunConfig& c) {
  check_precision(c.precision);
  if (c.schedule.min_lr > c.schedule.lr) throw Error("--min-lr: above --lr");
  if (c.schedule.decay_steps > 0 && c.schedule.kind != optim::ScheduleKind::wsd)
    throw Error("--decay-steps: only with --schedule wsd");
  if (c.eval_every > 0 && c.eval_data.empty()) throw Error("--eval-every: needs --eval-data");
  if (c.keep_best && c.eval_data.empty()) throw Error("--keep-best: needs --eval-data");
}

// Steps, warmup and the schedule's length.
void resolve_steps(RunConfig& c, std::int64_t samples, std::int64_t global_batch) {
  if (c.steps == 0 && c.epochs > 0)
    c.steps = std::max<std::int64_t>(
        1, std::llround(c.epochs * static_cast<double>(samples) / static_cast<double>(global_batch)));
  if (c.steps == 0) throw Error("--steps: needed (or --epochs)");
  if (c.profile_last > c.steps) throw Error("--profile: the run has only " + std::to_string(c.steps) + " steps");
  c.schedule.steps = c.steps;
  if (c.warmup_ratio > 0) c.schedule.warmup = std::llround(c.warmup_ratio * static_cast<double>(c.steps));
  if (c.schedule.kind == optim::ScheduleKind::wsd && c.schedule.decay_steps > c.steps - c.schedule.warmup)
    throw Error("--decay-steps: more than the steps after warmup");
}

void resume_from(Setup& s, const ckpt::Checkpoint& c, const ckpt::Checkpoint& model) {
  const std::string what = c.path() + ": /train";
  s.position = ckpt::counters_of(c);
  const json::Value* settings = c.train().as_object().find("settings");
  if (settings == nullptr || !settings->is_object())
    throw Error(what + ": has no settings, so the run cannot be resumed");
  for (const auto& [key, value] : s.settings.as_object()) {
    if (!settings->as_object().contains(key)) throw Error(what + ": settings: \"" + key + "\" is missing");
  }
  check_same_settings(*settings, s.settings, s.config.out);
  if (!hf::same_model(s.model, config_of(model, "trained")))
    throw Error(c.path() + ": /config: is not the configuration of " + s.config.model + ", which the run began with");
  const auto [step, updates, tokens] = s.position;
  if (step > 0 && tokens / step != s.tokens_per_step())
    throw Error(what + ": " + std::to_string(tokens) + " tokens in " + std::to_string(step) + " steps, which have " +
                std::to_string(s.tokens_per_step()) + " each");
  check_moments(c, s.table);
}

Setup prepare(const RunConfig& config, comm::Communicator& world, const data::TokenFile& tokens,
              const Sources& sources) {
  Setup s;
  s.config = config;
  s.resuming = sources.resuming();
  const ckpt::Checkpoint& checkpoint = sources.start();
  s.source = checkpoint.path();
  s.model = config_of(checkpoint, "trained");
  check_vocabulary(tokens, s.model);
  const std::optional<std::string> known = tokenizer_of(checkpoint, config.any_tokenizer);
  s.notes = {check_tokenizer(tokens, checkpoint, known, config.any_tokenizer)};
  if (!checkpoint.tokenizer()) s.tokenizer = known ? known : tokens.info().tokenizer;
  s.config.seq_length = resolved_length(config.seq_length, s.model);
  check_micro_batch(config.batch_size, s.config.seq_length);
  s.global_batch =
      checked_mul(checked_mul(config.batch_size, config.grad_accumulation), std::int64_t{world.size()}, "global batch");
  const data::Sampler sampler(tokens, config.sampler, config.seed, s.config.seq_length, s.global_batch);
  resolve_steps(s.config, sampler.samples(), s.global_batch);
  s.table = table_with_precisions(s.model, config.precision, checkpoint, sources.model());
  s.active = active_table(s.table, config.precision);
  s.settings = fixed_settings(s.config, s.global_batch, sources.model().digest(), tokens.digest());
  if (s.resuming) resume_from(s, checkpoint, sources.model());
  s.last_step = config.until_step > 0 ? std::min(config.until_step, s.config.steps) : s.config.steps;
  if (const quant::Recipe* recipe = config.precision.recipe_or_null()) {
    s.planned = model::planned_fp8(s.model, s.active, *recipe, config.batch_size * s.config.seq_length,
                                   config.recompute, config.precision.activations, true);
    s.planned.gemms *= config.grad_accumulation;
  }
  return s;
}

// Where the newest checkpoint of a run is, in words.
std::string last_checkpoint(const std::string& run) {
  const std::vector<ckpt::StepFolder> steps = ckpt::list_steps(run);
  return steps.empty() ? "no checkpoint was saved" : "the last checkpoint is " + steps.front().path;
}

// The loop and what hangs on it.
class Run {
 public:
  Run(const Setup& setup, const DeviceSetup& work, comm::Communicator& world, const Hooks& hooks, Journal& journal,
      const Inputs& inputs);
  // Fills the parameters; nothing is written yet. Returns why the checkpoint is damaged; nothing where it is not.
  // Collective.
  [[nodiscard]] std::optional<std::string> load_state(const ckpt::Checkpoint& checkpoint);
  // Says what is about to run, then runs it. Collective.
  Exit go();

 private:
  void announce();
  void steps();
  void train_one();
  void evaluate();
  void tell_profile();
  void save(bool last);
  [[noreturn]] void diverged(const std::string& reason);
  [[noreturn]] void diverged_in_row();
  json::Value train_document() const;
  json::Value end_record(const std::string& reason) const;
  Exit finish();

  const Setup& setup_;
  const RunConfig& config_;
  const DeviceSetup& work_;
  comm::Communicator& world_;
  const Hooks& hooks_;
  Journal& journal_;
  const data::TokenFile* eval_tokens_;
  device::Buffer scalars_;  // of the step at hand
  MemoryPlan plan_;
  device::Arena arena_;
  Context ctx_;
  gemm::Engine engine_;
  model::Decoder decoder_;
  std::optional<ParameterStore> store_;
  std::optional<Snapshot> snapshot_;  // with --async-save
  data::Sampler sampler_;
  std::optional<MicroBatches> batches_;
  Position position_;
  json::Value provenance_;
  std::optional<std::string> tokenizer_;
  Profiler profiler_;
  std::optional<SavedEvaluation> evaluation_;  // of the step at hand
  std::optional<Saver> saver_;                 // last but for flags: it ends before what it saves goes
  int skips_in_a_row_ = 0;
  bool asked_to_stop_ = false, output_failed_ = false, time_to_save_ = false;  // equal on all ranks
};

StoreOptions options_of(const RunConfig& c, quant::CastCounts* counts) {
  StoreOptions o = store_options(c.precision, counts);
  o.master = c.master;
  o.moments = c.moments;
  o.zero = c.zero;
  o.reshard_after_forward = c.reshard_after_forward;
  o.accumulation = c.grad_accumulation > 1;
  return o;
}

MemoryPlan plan_of(const Setup& s, const DeviceSetup& work) {
  return plan_memory(work.context(), work.group(), s.model, s.active, options_of(s.config, nullptr),
                     {s.config.precision.activations, s.config.recompute}, s.config.batch_size, s.config.seq_length,
                     s.config.async_save);
}

Run::Run(const Setup& setup, const DeviceSetup& work, comm::Communicator& world, const Hooks& hooks, Journal& journal,
         const Inputs& inputs)
    : setup_(setup),
      config_(setup.config),
      work_(work),
      world_(world),
      hooks_(hooks),
      journal_(journal),
      eval_tokens_(inputs.eval_tokens ? &*inputs.eval_tokens : nullptr),
      scalars_(sizeof(StepScalars), work.type(), "numbers of a step"),
      plan_(plan_of(setup, work)),
      ctx_(work.context()),
      decoder_(setup.model, {setup.config.precision.activations, setup.config.recompute}),
      sampler_(*inputs.tokens, setup.config.sampler, setup.config.seed, setup.config.seq_length, setup.global_batch),
      position_(setup.position),
      profiler_(setup.config) {
  arena_ = plan_.allocate(work.type());
  ctx_.arena = &arena_;
  ctx_.profile = profiler_.profile();
  batches_.emplace(config_.grad_accumulation, config_.batch_size, config_.seq_length);
}

std::optional<std::string> Run::load_state(const ckpt::Checkpoint& checkpoint) {
  comm::agree(world_, [&] {
    store_.emplace(ctx_, work_.group(), setup_.model, setup_.active, options_of(config_, &scalars_in(scalars_)->casts));
    if (config_.async_save || work_.type() != device::DeviceType::host) snapshot_.emplace(ctx_, *store_);
    provenance_ = setup_.resuming ? checkpoint.provenance()
                                  : model::with_origin(checkpoint.provenance(),
                                                       {"fp8-step", config_.tool_version, config_.command});
    tokenizer_ = checkpoint.tokenizer();
    saver_.emplace(world_, journal_,
                   SavePolicy{config_.out, config_.save_every, config_.keep, config_.milestone_every, config_.keep_best,
                              config_.save_seconds, config_.rolling},
                   position_.step);
  });
  if (auto reason = load(ctx_, world_, checkpoint, *store_, setup_.resuming)) return reason;
  store_->refresh_compute_weights(ctx_);
  return std::nullopt;
}

void Run::announce() {
  journal_.note("linears:\n" + precision_table(setup_.model, setup_.active) + "memory:\n" + plan_.to_text());
  if (setup_.resuming) journal_.note("resuming from " + setup_.source);
  for (const std::string& note : setup_.notes)
    if (!note.empty()) journal_.note(note);
  journal_.emit(run_record(config_, setup_.model, setup_.active, plan_, work_, mesh_of(world_),
                           setup_.tokens_per_step(), position_.step));
}

void Run::train_one() {
  work_.group().at_step(position_.step + 1);
  evaluation_.reset();
  StepEnvironment env{ctx_, world_, work_.group(), engine_, decoder_, *store_, scalars_, config_};
  profiler_.begin_step(position_.step + 1);
  const StepResult r = run_step(env, sampler_, *batches_, position_, setup_.planned);
  ++position_.step;
  position_.updates += r.skipped || r.masked ? 0 : 1;
  position_.tokens += setup_.tokens_per_step();
  if (!r.masked) skips_in_a_row_ = r.skipped ? skips_in_a_row_ + 1 : 0;
  const bool stop = hooks_.stop_requested && hooks_.stop_requested();
  std::array<std::int64_t, 5> shared{peak_memory(), stop ? 1 : 0,
                                     journal_.failed() ? 1 : 0,  // a record lost here is noticed a step later
                                     saver_->busy(), world_.rank() == 0 && saver_->time_over() ? 1 : 0};
  world_.all_reduce(std::span<std::int64_t>(shared), comm::Reduce::max);
  asked_to_stop_ = shared[1] != 0;
  output_failed_ = shared[2] != 0;
  time_to_save_ = shared[4] != 0;
  if (position_.step % config_.log_every == 0 || position_.step == setup_.last_step || r.skipped || r.masked) {
    const device::Timer timer(ctx_, device::Work::input_output, "write record", 0);
    journal_.emit(step_record(config_, work_.type(), r, position_, setup_.tokens_per_step(),
                              static_cast<double>(model::matmul_parameter_count(setup_.model, setup_.active)),
                              shared[0]));
  }
  profiler_.end_step();
  if (profiler_.complete(position_.step)) tell_profile();
  if (r.masked)
    journal_.note("step " + std::to_string(position_.step) +
                  ": no token of the batch carries loss; nothing is updated");
  saver_->advance(position_.step, shared[3] != 0, !r.skipped && !r.masked);
  journal_.progress("step " + std::to_string(position_.step) + "/" + std::to_string(setup_.last_step) + "  loss " +
                    format_short(r.loss, 5) + "  " +
                    human_count(static_cast<std::uint64_t>(static_cast<double>(setup_.tokens_per_step()) / r.seconds)) +
                    " tokens/s");
  if (saver_->diverged()) diverged("step " + std::to_string(position_.step) + ": " + saver_->failure());
  if (skips_in_a_row_ >= kMaxSkipsInARow) diverged_in_row();
}

// Ends a run whose numbers are not finite, when the save under way is finished.
void Run::diverged(const std::string& reason) {
  saver_->settle();
  throw comm::AgreedError(reason + "; " + last_checkpoint(config_.out), Exit::diverged);
}

void Run::diverged_in_row() {
  diverged("the loss or the gradient was not finite in " +
           (skips_in_a_row_ == 1 ? "the last step" : std::to_string(skips_in_a_row_) + " steps in a row"));
}

// The table on rank 0's way out, the operations of all ranks in a file of the run.
void Run::tell_profile() {
  const Limits limits = probe_limits(config_.precision.activations, config_.batch_size * config_.seq_length,
                                     2 * setup_.model.intermediate_size, setup_.model.hidden_size);
  journal_.note("where the time goes, " + config_.out + "/" + profiler_.file_name() + ":\n" + profiler_.table(limits));
  const std::vector<std::string> lines = world_.all_gather(profiler_.trace_lines(world_.rank(), profiler_.origin()));
  comm::agree(world_, [&] {
    if (world_.rank() != 0) return;
    AtomicFile file(config_.out + "/" + profiler_.file_name(), true);
    File out = File::open_update(file.path());
    out.write_all(json::trace_file(lines));
    out.close();
    file.commit();
  });
  profiler_.clear();
}

void Run::evaluate() {
  const auto start = std::chrono::steady_clock::now();
  const data::Sampler sampler(*eval_tokens_, data::SamplerKind::sequential, 0, config_.seq_length, 1);
  const std::int64_t round = config_.batch_size * world_.size();
  const std::int64_t samples =
      config_.eval_batches > 0 ? std::min(sampler.samples(), config_.eval_batches * round) : sampler.samples();
  const LossSum sum =
      evaluate_samples(ctx_, world_, engine_, decoder_, *store_, sampler, samples, config_.batch_size,
                       config_.seq_length, planned_forward(setup_.model, setup_.active, config_.precision), {});
  json::Value record = eval_record(position_.step, sum, config_.precision, work_.type());
  record.as_object().set("seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  journal_.emit(record);
  evaluation_ =
      SavedEvaluation{record.as_object().get_double_or("loss", NAN, "evaluation"), sum.targets, eval_tokens_->digest()};
}

json::Value Run::train_document() const {
  json::Value train = json::object(
      {{"step", position_.step},
       {"updates", position_.updates},
       {"tokens", position_.tokens},
       {"phase",
        json::object({{"precision", std::string(name_of(config_.precision.precision))},
                      {"recipe", config_.precision.precision == Precision::fp8 ? json::Value(config_.precision.recipe)
                                                                               : json::Value()}})},
       {"settings", setup_.settings}});
  if (config_.rolling && position_.step < setup_.last_step) train.as_object().set(kRolling, true);
  if (config_.keep_best && evaluation_) train.as_object().set("evaluation", to_json(*evaluation_));
  return train;
}

// The last save of a run, or of a stop, is written while nothing else goes on, and must be committed.
void Run::save(bool last) {
  journal_.progress("saving step " + std::to_string(position_.step));
  saver_->save(
      {position_.step,
       {hf::to_json(setup_.model), train_document(), provenance_, mesh_of(world_), tokenizer_, setup_.tokenizer},
       *store_,
       setup_.table,
       config_.keep_best ? evaluation_ : std::nullopt},
      ctx_, snapshot_ && (!last || work_.type() != device::DeviceType::host) ? &*snapshot_ : nullptr,
      config_.async_save && !last);
  if (saver_->diverged()) diverged(saver_->failure());
  if (last) saver_->conclude();
  if (last && !saver_->failure().empty())
    throw comm::AgreedError(saver_->failure() + "; the last step is lost, what was saved before is not");
}

// Nothing is saved while steps are skipped: the weights that the first of them found may be at fault.
void Run::steps() {
  bool going = position_.step < setup_.last_step;
  while (going) {
    train_one();
    const bool done = position_.step >= setup_.last_step;
    going = !done && !asked_to_stop_ && !output_failed_;
    const bool due = !going || time_to_save_ || saver_->due(position_.step), saving = due && skips_in_a_row_ == 0;
    const bool evaluating = config_.eval_every > 0 && (position_.step % config_.eval_every == 0 || done);
    if (evaluating || (config_.keep_best && saving && !asked_to_stop_)) evaluate();
    if (saving) save(!going);
    if (due && !saving) saver_->put_off(position_.step);
    if (done && !saving) diverged_in_row();
  }
}

Exit Run::go() {
  announce();
  try {
    steps();
  } catch (const comm::AgreedError& e) {
    saver_->settle();  // what was begun before is as good as any
    json::Value record = end_record(e.code() == Exit::diverged ? "diverged" : "failed");
    record.as_object().set("status", static_cast<std::int64_t>(e.code()));
    record.as_object().set("message", e.what());
    journal_.emit(record);
    journal_.close();
    throw;
  }
  return finish();
}

json::Value Run::end_record(const std::string& reason) const {
  return json::object({{"type", "end"}, {"step", position_.step}, {"tokens", position_.tokens}, {"reason", reason}});
}

// The last record, and what became of the run.
Exit Run::finish() {
  saver_->settle();
  const bool reached = position_.step >= setup_.last_step;
  const char* reason = position_.step >= config_.steps ? "finished"
                       : reached                       ? "until-step"
                       : asked_to_stop_                ? "stopped on request"
                                                       : "output lost";
  if (asked_to_stop_ && !reached)
    journal_.note("stopped on request: " +
                  (skips_in_a_row_ > 0
                       ? "the last steps were skipped, so nothing of them is saved; " + last_checkpoint(config_.out)
                       : config_.out + "/" + ckpt::step_name(position_.step) +
                             " is saved, and the same command goes on from it"));
  journal_.emit(end_record(reason));
  journal_.close();
  std::array<std::int64_t, 1> failed{journal_.failed() ? 1 : 0};
  world_.all_reduce(std::span<std::int64_t>(failed), comm::Reduce::max);
  journal_.rethrow();
  if (failed[0] != 0 && world_.rank() != 0) return Exit::bad;
  return reached || !asked_to_stop_ ? Exit::done : Exit::again;
}

// Everything that can be found without the weights. Collective.
Setup agreed_setup(const RunConfig& config, comm::Communicator& world, const Inputs& inputs, const Sources& sources) {
  Setup setup;
  json::Value shared;
  comm::agree(world, [&] {
    setup = prepare(config, world, *inputs.tokens, sources);
    if (inputs.eval_tokens) {
      check_vocabulary(*inputs.eval_tokens, setup.model);
      const ckpt::Checkpoint& start = sources.start();
      setup.notes.push_back(
          check_tokenizer(*inputs.eval_tokens, start, tokenizer_of(start, config.any_tokenizer), config.any_tokenizer));
      (void)data::Sampler(*inputs.eval_tokens, data::SamplerKind::sequential, 0, setup.config.seq_length, 1);
    }
    shared = setup.settings;
    shared.as_object().set("eval-data", inputs.eval_tokens ? inputs.eval_tokens->digest() : "");
  });
  check_same_on_all_ranks(world, shared);
  return setup;
}

// What is to be said in place of a run: that of a dry run, or that all is done.
void tell(const Setup& setup, const DeviceSetup& work, comm::Communicator& world, const Journal& journal) {
  comm::agree(world, [&] {
    if (setup.config.dry_run) {
      journal.note("linears:\n" + precision_table(setup.model, setup.active) + "memory:\n" +
                   plan_of(setup, work).to_text());
    } else {
      journal.note(setup.config.out + ": already at step " + std::to_string(setup.position.step) + " of " +
                   std::to_string(setup.last_step) + ", nothing to do");
    }
  });
}

}  // namespace

Exit run(const RunConfig& config, comm::Communicator& world, const Hooks& hooks) {
  Journal journal(hooks, world);
  Inputs inputs;
  comm::agree(world, [&] { check_flags(config); });
  RunFolder folder(world, hooks, config.out);
  if (!config.dry_run) folder.lock();
  comm::agree(world, [&] {
    inputs.tokens.emplace(config.data);
    if (!config.eval_data.empty()) inputs.eval_tokens.emplace(config.eval_data);
  });
  std::optional<Sources> sources(std::in_place, world, config, journal);
  while (true) {
    const Setup setup = agreed_setup(config, world, inputs, *sources);
    const DeviceSetup work(config.device, config.precision, world);
    std::optional<Run> r;
    std::optional<std::string> damage;
    if (config.dry_run || setup.position.step >= setup.last_step) {
      damage = verify(world, sources->start());
    } else {
      comm::agree(world, [&] { r.emplace(setup, work, world, hooks, journal, inputs); });
      damage = r->load_state(sources->start());
    }
    if (damage) {
      sources->refuse(*damage);
      continue;
    }
    sources.reset();
    if (!r) {
      tell(setup, work, world, journal);
      return Exit::done;
    }
    if (hooks.begins) hooks.begins();
    world.barrier();  // a rank that could still end by itself would leave what rank 0 makes next
    folder.make();
    comm::agree(world, [&] { journal.open(config.out); });
    return r->go();
  }
}

}  // namespace fp8::train
