// A fork without exec: the supervisor is a library, and a process of its own gives it signals, affinity and
// environment.
#include "sweep_worker.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>

#include "cores.h"
#include "fp8/base/error.h"
#include "fp8/base/file.h"
#include "fp8/base/folders.h"
#include "fp8/base/resources.h"
#include "fp8/json/json.h"
#include "fp8/launch/supervise.h"
#include "json_file.h"
#include "sweep_record.h"

namespace fp8::launch {
namespace {

// Writes to the process of the sweep. Errors are ignored: if it has died, the worker is about to be stopped.
void send(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

// RUN/sweep.log. A failed write is ignored, since the file only explains a run.
class Log {
 public:
  explicit Log(const std::string& run) : file_(File::open_append(run + "/sweep.log")) {}
  void add(std::string_view text) {
    try {
      file_.write_all(text);
    } catch (const Error&) {
      return;
    }
  }

 private:
  File file_;
};

// Calls before the first thread of the worker, hence the unguarded access to the environment.
void set_environment(const SweepJob& job, std::size_t part) {
  // NOLINTBEGIN(concurrency-mt-unsafe)
  // mpirun binds ranks to cores from the first one on, whatever cores it may use itself; unbound ranks keep its cores.
  (void)::setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
  if (const char* gpus = std::getenv("CUDA_VISIBLE_DEVICES"))
    (void)::setenv("CUDA_VISIBLE_DEVICES", share_gpus(gpus, part, job.jobs).c_str(), 1);
  // NOLINTEND(concurrency-mt-unsafe)
}

int supervise_run(const SweepJob& job, const SweepRun& run, int out) {
  const std::string folder = job.folder + "/" + run.name;
  make_folders(folder);
  SweepRecord record{.flags = run.flags, .command = command_of(job, run), .position = run.position};
  write_sweep_record(folder, record);
  Log log(folder);
  Job supervised;
  supervised.run = folder;
  supervised.attempts = job.attempts;
  supervised.command = job.command;
  supervised.command.insert(supervised.command.end(), run.flags.begin(), run.flags.end());
  supervised.patience = job.patience;
  const Exit status = supervise(
      supervised, {[&](const json::Value& decision) { send(out, json::dump(decision) + "\n"); },
                   [&](const std::string& note) { log.add("fp8-sweep: " + note + "\n"); },
                   [&](std::string_view lines) { send(out, lines); }, [&](std::string_view text) { log.add(text); }});
  record.status = static_cast<int>(status);
  write_sweep_record(folder, record);
  return static_cast<int>(status);
}

[[noreturn]] void work(const SweepJob& job, const SweepRun& run, std::span<const int> cpus, std::size_t part, int out,
                       pid_t parent) {
  int status = static_cast<int>(Exit::bad);
  try {
    if (::setpgid(0, 0) != 0) throw_errno(run.name, "no process group", errno);
    if (::prctl(PR_SET_PDEATHSIG, static_cast<unsigned long>(SIGUSR1)) != 0)
      throw_errno(run.name, "cannot watch fp8-sweep", errno);
    if (::getppid() != parent) ::_exit(static_cast<int>(Exit::again));
    if (!cpus.empty()) {
      run_on(cpus);
      set_environment(job, part);
    }
    start_team();
    status = supervise_run(job, run, out);
  } catch (const Error& e) {
    status = static_cast<int>(e.code());
    send(out, json::dump(json::object({{"type", "sweep"}, {"error", e.what()}})) + "\n");
  } catch (const std::exception& e) {
    send(out,
         json::dump(json::object({{"type", "sweep"}, {"error", std::string("internal error: ") + e.what()}})) + "\n");
  }
  ::_exit(status);
}

bool update_decision(RunStatus& status, const json::Object& record, RunEvent& event) {
  const std::string action = record.get_string_or("action", "", "record");
  if (action == "launch" || action == "resume") {
    status.from = record.get_int("step", "record");
    status.attempt = record.get_int("attempt", "record");
    event = RunEvent::started;
    return true;
  }
  if (action == "retry") status.reason = record.get_string("ended", "record");
  if (action == "failed") status.reason = "status " + std::to_string(record.get_int("status", "record"));
  if (action == "failed" || action == "give-up") status.tail = error_line(strings_of(record, "stderr_tail", "record"));
  return false;
}

bool update_step(RunStatus& status, const json::Object& record, RunEvent& event) {
  status.step = record.get_int("step", "record");
  status.loss = record.get_double_or("loss", std::numeric_limits<double>::quiet_NaN(), "record");
  event = RunEvent::progress;
  return true;
}

bool update_record(RunStatus& status, const json::Object& record, RunEvent& event) {
  const std::string type = record.get_string_or("type", "", "record");
  if (type == "resume") return update_decision(status, record, event);
  if (type == "step") return update_step(status, record, event);
  if (type == "run") status.steps = record.get_int_or("steps", 0, "record");
  if (type == "eval") status.held_out = record.get_double_or("loss", status.held_out, "record");
  if (type == "sweep") status.reason = record.get_string("error", "record");
  return false;
}

}  // namespace

pid_t start_worker(const SweepJob& job, const SweepRun& run, std::span<const int> cpus, std::size_t part, int out) {
  end_team();  // the worker verifies checkpoints with threads of its own
  const pid_t parent = ::getpid();
  const pid_t worker = ::fork();
  if (worker < 0) throw_errno(run.name, "cannot be started", errno);
  if (worker == 0) work(job, run, cpus, part, out, parent);
  return worker;
}

bool update(RunStatus& status, std::string_view line, RunEvent& event) {
  try {
    const json::Value record = json::parse(line, "record");
    return record.is_object() && update_record(status, record.as_object(), event);
  } catch (const Error&) {
    return false;  // the command may print anything
  }
}

std::string error_line(const std::vector<std::string>& tail) {
  const auto has_letter = [](const std::string& line) {
    return std::any_of(line.begin(), line.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
  };
  auto found =
      std::find_if(tail.rbegin(), tail.rend(), [](const std::string& line) { return line.starts_with("fp8-"); });
  if (found == tail.rend()) found = std::find_if(tail.rbegin(), tail.rend(), has_letter);
  return found == tail.rend() ? "" : *found;
}

std::string share_gpus(const std::string& list, std::size_t part, std::size_t parts) {
  const auto entries = static_cast<std::size_t>(std::count(list.begin(), list.end(), ',')) + 1;
  if (entries < parts) return list;
  std::string share;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (i * parts / entries == part) share += (share.empty() ? "" : ",") + list.substr(begin, end - begin);
    begin = end + 1;
  }
  return share;
}

}  // namespace fp8::launch
