// The scheduler of a sweep: an event loop over the pipes of its workers and the signals of this process.
#include "fp8/launch/run_sweep.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <memory>

#include "cores.h"
#include "fp8/base/clock.h"
#include "fp8/base/signals.h"
#include "fp8/launch/phases.h"
#include "fp8/launch/process.h"
#include "lines.h"
#include "pipe.h"
#include "run_lock.h"
#include "sweep_record.h"
#include "sweep_worker.h"

namespace fp8::launch {
namespace {

constexpr int kMaxWorkerReads = 1024;  // reads from the pipe of a worker that has ended; it holds less than one of them

// A job: a worker process and what it has sent.
struct Worker {
  RunStatus* status;
  pid_t pid = 0;
  Pipe pipe{};
  WholeLines lines{};
  Clock::time_point begin = Clock::now();
};

// Runs the jobs of one sweep. A slot is a part of the cores.
class Scheduler {
 public:
  Scheduler(const SweepJob& job, const SweepHooks& hooks, std::vector<RunStatus>& runs)
      : job_(job), hooks_(hooks), slots_(job.jobs), cores_(job.jobs) {
    if (job.jobs > 1) cores_ = share_cores(usable_threads(), job.jobs);
    for (RunStatus& run : runs) {
      if (!run.skipped) waiting_.push_back(&run);
    }
    std::reverse(waiting_.begin(), waiting_.end());
  }
  // After an exception no job must keep running unsupervised.
  ~Scheduler() {
    for (const auto& worker : slots_) {
      if (!worker) continue;
      (void)::kill(worker->pid, SIGTERM);
      while (::waitpid(worker->pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  void go() {
    start_waiting();
    while (running() > 0) {
      turn();
      start_waiting();
    }
  }

 private:
  std::size_t running() const {
    return static_cast<std::size_t>(
        std::count_if(slots_.begin(), slots_.end(), [](const auto& worker) { return worker != nullptr; }));
  }

  void start_waiting() {
    requests_.take();
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot] || waiting_.empty() || requests_.stop() != 0) continue;
      RunStatus& status = *waiting_.back();
      waiting_.pop_back();
      auto worker = std::make_unique<Worker>();
      worker->status = &status;
      status.cores = cpu_list(cores_[slot]);
      worker->pid = start_worker(job_, *status.run, cores_[slot], slot, worker->pipe.out.get());
      worker->pipe.out.reset();
      status.state = RunState::running;
      slots_[slot] = std::move(worker);
    }
  }

  // Waits for output, a signal or the end of a worker, and handles it.
  void turn() {
    std::vector<pollfd> ready = {{requests_.fd(), POLLIN, 0}};
    for (const auto& worker : slots_) ready.push_back({worker ? worker->pipe.in.get() : -1, POLLIN, 0});
    if (::poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) throw_errno("sweep", "cannot be watched", errno);
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
      if (slots_[slot] && ready[slot + 1].revents != 0) (void)read(*slots_[slot]);
    }
    requests_.take();
    pass_signals();
    reap();
  }

  // Reads available lines of a worker; returns whether there were any bytes.
  bool read(Worker& worker) {
    const std::string_view bytes = worker.pipe.read();
    std::string_view lines = worker.lines.add(bytes);
    while (!lines.empty()) {
      const std::size_t end = std::min(lines.find('\n'), lines.size() - 1);
      RunEvent event = RunEvent::progress;
      if (update(*worker.status, lines.substr(0, end), event)) report(worker, event);
      lines.remove_prefix(end + 1);
    }
    return !bytes.empty();
  }

  void report(Worker& worker, RunEvent event) {
    worker.status->seconds = seconds_since(worker.begin);
    hooks_.run(*worker.status, event);
  }

  // Workers and orphans of killed workers are children of this process.
  void reap() {
    int ended = 0;
    pid_t who = 0;
    while ((who = ::waitpid(-1, &ended, WNOHANG)) > 0 || (who < 0 && errno == EINTR)) {
      for (auto& worker : slots_) {
        if (worker && worker->pid == who) finish(std::exchange(worker, nullptr), ended);
      }
    }
    if (who < 0 && errno != ECHILD) throw_errno("sweep", "its jobs cannot be waited for", errno);
  }

  void finish(std::unique_ptr<Worker> worker, int ended) {
    for (int i = 0; i < kMaxWorkerReads && read(*worker); ++i) {
    }
    RunStatus& status = *worker->status;
    if (WIFSIGNALED(ended)) status.reason = "its supervisor ended with signal " + signal_name(WTERMSIG(ended));
    status.status = WIFEXITED(ended) ? static_cast<Exit>(WEXITSTATUS(ended)) : Exit::bad;
    if (status.status == Exit::done) {
      status.state = RunState::finished;
    } else if (status.status == Exit::diverged) {
      status.state = RunState::diverged;
    } else if (status.status == Exit::again || requests_.stop() != 0) {
      status.state = RunState::stopped;
    } else {
      status.state = RunState::failed;
    }
    if (status.state == RunState::finished || status.status == Exit::again) status.reason = status.tail = "";
    report(*worker, RunEvent::ended);
  }

  // Passes the first request to stop to each worker, and each interrupt after it, which a worker counts as fp8-resume
  // does.
  void pass_signals() {
    if (requests_.stop() == 0) return;
    if (!stopping_) {
      stopping_ = true;
      if (requests_.stop() == SIGINT) interrupts_ = 1;
      send_all(requests_.stop());
      hooks_.stopping(requests_.stop(), running());
    }
    for (; interrupts_ < requests_.interrupts(); ++interrupts_) send_all(SIGINT);
  }

  void send_all(int signal) {
    for (const auto& worker : slots_) {
      if (worker && ::kill(worker->pid, signal) != 0 && errno != ESRCH)
        throw_errno("sweep", "its jobs cannot be signalled", errno);
    }
  }

  const SweepJob& job_;
  const SweepHooks& hooks_;
  Requests requests_;
  std::vector<std::unique_ptr<Worker>> slots_;  // null where no job runs
  std::vector<std::vector<int>> cores_;         // cores of each slot; empty for all
  std::vector<RunStatus*> waiting_;             // the next one last
  bool stopping_ = false;
  int interrupts_ = 0;  // number of SIGINT passed
};

}  // namespace

std::string name_of(RunState state) {
  constexpr std::array<const char*, 7> kNames = {"fresh",    "unfinished", "running", "finished",
                                                 "diverged", "failed",     "stopped"};
  return kNames.at(static_cast<std::size_t>(state));
}

std::vector<std::string> command_of(const SweepJob& job, const SweepRun& run) {
  std::vector<std::string> words = job.command;
  words.insert(words.end(), run.flags.begin(), run.flags.end());
  return command_line(words, job.folder + "/" + run.name, nullptr, 0);
}

std::vector<RunStatus> earlier_runs(const SweepJob& job) {
  std::vector<RunStatus> runs;
  for (const SweepRun& run : job.runs) {
    RunStatus status;
    status.run = &run;
    status.folder = job.folder + "/" + run.name;
    const auto record = read_sweep_record(status.folder);
    if (record && record->flags != run.flags)
      throw Error(status.folder + ": was made with other flags: " + shell_text(record->flags) + "; now " +
                  shell_text(run.flags) + ": give the side another name, or move the folder away");
    if (record || std::filesystem::exists(status.folder)) status.state = RunState::unfinished;
    if (record && record->status && record->command == command_of(job, run)) {
      status.status = static_cast<Exit>(*record->status);
      status.skipped = status.status == Exit::done || status.status == Exit::diverged;
      if (status.skipped) status.state = status.status == Exit::done ? RunState::finished : RunState::diverged;
    }
    runs.push_back(std::move(status));
  }
  return runs;
}

std::vector<RunStatus> run_sweep(const SweepJob& job, const SweepHooks& hooks) {
  if (job.command.empty()) throw Error("command: needed after --");
  const RunLock lock(job.folder, "fp8-sweep");
  std::vector<RunStatus> runs = earlier_runs(job);
  Scheduler(job, hooks, runs).go();
  return runs;
}

Exit sweep_exit(std::span<const RunStatus> runs) {
  bool failed = false, missing = false, diverged = false;
  for (const RunStatus& r : runs) {
    if (r.state == RunState::stopped || r.state == RunState::fresh || r.state == RunState::unfinished)
      return Exit::again;
    if (r.state == RunState::failed) (r.status == Exit::fp8_missing ? missing : failed) = true;
    if (r.state == RunState::diverged) diverged = true;
  }
  if (failed) return Exit::bad;
  if (missing) return Exit::fp8_missing;
  return diverged ? Exit::diverged : Exit::done;
}

}  // namespace fp8::launch
