// The loop of fp8-resume: find the newest checkpoint, decide, launch the command, wait for it.
#include "fp8/launch/supervise.h"

#include <utility>

#include "fp8/base/signals.h"
#include "fp8/base/text.h"
#include "fp8/ckpt/run_folder.h"
#include "fp8/launch/attempts.h"
#include "fp8/launch/process.h"
#include "json_file.h"
#include "run_lock.h"

namespace fp8::launch {
namespace {

constexpr std::size_t kNoPhase = static_cast<std::size_t>(-1);

json::Value decision(const std::string& action, std::initializer_list<json::Member> fields) {
  json::Value record = json::object({{"type", "resume"}, {"action", action}});
  for (const json::Member& field : fields) record.as_object().set(field.key, field.value);
  return record;
}

// Identifies the job whose attempts are counted.
json::Value identity(const Job& job) {
  json::Value phases;
  if (job.phases) {
    json::Array array;
    for (const Phase& p : job.phases->list)
      array.push_back(json::object({{"until", p.until}, {"flags", texts(p.flags)}}));
    phases = std::move(array);
  }
  return json::object({{"command", texts(job.command)}, {"phases", std::move(phases)}});
}

// Runs one job.
class Supervisor {
 public:
  // `lock` is the lock of the run's folder, or null for a dry run.
  Supervisor(const Job& job, const Hooks& hooks, const RunLock* lock)
      : job_(job), hooks_(hooks), lock_(lock), attempts_(job.run, identity(job)) {}

  Exit go() {
    while (true) {
      std::string reason;  // why the newest checkpoint is damaged
      const auto record = [&](const json::Value& r) {
        if (reason.empty()) reason = r.as_object().get_string("reason", "record");
        hooks_.record(r);
      };
      const auto newest = find_checkpoint(job_.run, ckpt::Which::last, record, hooks_.note);
      if (lock_ != nullptr) lock_->check();
      if (!newest && !reason.empty()) throw Error(ckpt::all_damaged(job_.run, reason));
      const std::int64_t step = newest ? newest->step : 0;
      const bool progress = attempts_.observe(step);
      const std::size_t phase = job_.phases ? job_.phases->phase_after(step).value_or(kNoPhase) : 0;
      const bool over = job_.phases ? phase == kNoPhase : last_ && last_->with(0);
      if (over) return done(newest);
      requests_.take();
      if ((last_ && last_->asked) || requests_.stop() != 0) return stopped(newest);
      if (last_) say_retry(step, progress, phase);
      const std::vector<std::string> words =
          command_line(job_.command, job_.run, job_.phases ? &*job_.phases : nullptr, phase);
      if (attempts_.count() >= job_.attempts) give_up();
      announce(newest, phase, words);
      if (job_.dry_run) return Exit::done;
      if (const auto end = launch(words)) return *end;
    }
  }

 private:
  std::string attempt_text() const {
    return "attempt " + std::to_string(attempts_.count() + 1) + " of " + std::to_string(job_.attempts);
  }

  Exit done(const std::optional<Found>& newest) {
    if (!job_.dry_run) attempts_.clear();
    hooks_.record(decision("done", {{"step", newest ? json::Value(newest->step) : json::Value()},
                                    {"checkpoint", newest ? json::Value(newest->path) : json::Value()}}));
    hooks_.note(newest ? "done: " + newest->path : "done, without a checkpoint");
    return Exit::done;
  }

  // A stop was requested, and the command has ended or was not started.
  Exit stopped(const std::optional<Found>& newest) {
    const bool saved = !last_ || last_->with(0) || last_->with(static_cast<int>(Exit::again));
    if (!newest && !saved)
      throw Error(job_.run + ": stopped on request, but " + last_->how() + " came before the first checkpoint");
    hooks_.record(decision("stopped", {{"step", newest ? json::Value(newest->step) : json::Value()},
                                       {"checkpoint", newest ? json::Value(newest->path) : json::Value()},
                                       {"saved", saved}}));
    hooks_.note("stopped on request" + (saved ? std::string() : ", but " + last_->how() + " came before a save") +
                (newest ? "; the newest checkpoint is " + newest->path : std::string()) +
                "; the same command resumes the run");
    return Exit::again;
  }

  // Reports why the command is started again, unless it ended because its phase is complete.
  void say_retry(std::int64_t step, bool progress, std::size_t phase) {
    const bool short_of_step = last_->with(0);
    if (short_of_step && progress && phase != phase_) return;
    const std::string how =
        last_->how() +
        (short_of_step ? " before step " + std::to_string(job_.phases->list.at(phase).until) : std::string());
    attempts_.failed(how, last_->said);
    if (attempts_.count() >= job_.attempts) return;
    hooks_.record(decision("retry", {{"ended", how},
                                     {"step", step},
                                     {"progress", progress},
                                     {"attempt", attempts_.count() + 1},
                                     {"attempts", job_.attempts}}));
    hooks_.note("the command ended with " + how + (progress ? " after a newer checkpoint: " : ": ") + attempt_text());
  }

  [[noreturn]] void give_up() {
    hooks_.record(
        decision("give-up", {{"ended", attempts_.how().empty() ? json::Value() : json::Value(attempts_.how())},
                             {"attempts", attempts_.count()},
                             {"stderr_tail", texts(attempts_.stderr_tail())}}));
    if (!attempts_.stderr_tail().empty()) hooks_.note("stderr tail of the last attempt:");
    for (const std::string& line : attempts_.stderr_tail()) hooks_.note("  " + line);
    throw Error(job_.run + ": gave up after " + std::to_string(attempts_.count()) +
                " attempts without a newer checkpoint" +
                (attempts_.how().empty() ? std::string() : ", the last with " + attempts_.how()) +
                "; to try again after fixing the cause, remove " + attempts_.path());
  }

  // Reports the phase and the command line of the next launch.
  void announce(const std::optional<Found>& newest, std::size_t phase, const std::vector<std::string>& words) {
    if (job_.phases && phase != phase_) {
      const Phase& now = job_.phases->list.at(phase);
      const std::size_t count = job_.phases->list.size();
      hooks_.record(decision(
          "phase", {{"phase", phase + 1}, {"phases", count}, {"until", now.until}, {"flags", texts(now.flags)}}));
      hooks_.note("phase " + std::to_string(phase + 1) + " of " + std::to_string(count) + ", to step " +
                  std::to_string(now.until) + ": " + shell_text(now.flags));
    }
    phase_ = phase;
    json::Value record = decision(newest ? "resume" : "launch", {{"step", newest ? newest->step : 0}});
    if (newest) record.as_object().set("checkpoint", newest->path);
    record.as_object().set("attempt", attempts_.count() + 1);
    record.as_object().set("attempts", job_.attempts);
    record.as_object().set("command", texts(words));
    hooks_.record(record);
    hooks_.note((newest ? "resuming from " + newest->path : "starting") + ": " + shell_text(words));
  }

  // Subtracts the last attempt, unless another folder has taken the place of the run's.
  void forgive() {
    if (lock_ == nullptr || lock_->in_place()) attempts_.forgive();
  }

  // Runs the command; returns the status of this program when the command's status is final.
  std::optional<Exit> launch(const std::vector<std::string>& words) {
    attempts_.begin();
    const Streams streams{hooks_.out, hooks_.err, [&](int signal) { say_stopping(signal); },
                          [&](std::size_t count) { say_waiting(count); }};
    try {
      last_ = run_command(words, requests_, streams, job_.patience);
    } catch (const Error&) {
      forgive();
      throw;
    }
    if (last_->lost) {
      forgive();
      std::rethrow_exception(last_->lost);
    }
    const bool final = last_->with(2) || last_->with(3) || last_->with(4);
    if (final || (last_->asked && (last_->with(0) || last_->with(static_cast<int>(Exit::again))))) forgive();
    if (!final) return std::nullopt;
    hooks_.record(decision("failed", {{"status", last_->status}, {"stderr_tail", texts(last_->said)}}));
    hooks_.note("the command ended with " + last_->how() + ", which a retry would not change");
    return static_cast<Exit>(last_->status);
  }

  void say_stopping(int signal) {
    hooks_.record(decision("stop", {{"signal", signal_name(signal)}}));
    hooks_.note(signal_name(signal) + ": asking the command to save and stop");
  }

  void say_waiting(std::size_t count) {
    hooks_.record(decision("wait", {{"processes", count}}));
    hooks_.note("the command ended and left " + std::to_string(count) + " processes running: waiting for them");
  }

  const Job& job_;
  const Hooks& hooks_;
  const RunLock* lock_;
  Requests requests_;
  Attempts attempts_;
  std::optional<Ended> last_;     // how the last command ended
  std::size_t phase_ = kNoPhase;  // the phase reported last
};

}  // namespace

std::optional<Found> find_checkpoint(const std::string& run, ckpt::Which which,
                                     const std::function<void(const json::Value&)>& record,
                                     const std::function<void(const std::string&)>& note) {
  const auto found = ckpt::find_valid(run, which, [&](const std::string& path, const std::string& reason) {
    record(decision("damaged", {{"path", path}, {"reason", reason}}));
    note(ckpt::passed_over(which, path, reason));
  });
  if (!found) return std::nullopt;
  return Found{found->path(), ckpt::position_of(*found).step};
}

Exit supervise(const Job& job, const Hooks& hooks) {
  if (job.command.empty()) throw Error("command: needed after --");
  if (job.phases) check_phases(*job.phases, job.command);
  std::optional<RunLock> lock;
  if (!job.dry_run) lock.emplace(job.run, "fp8-resume");
  return Supervisor(job, hooks, lock ? &*lock : nullptr).go();
}

}  // namespace fp8::launch
