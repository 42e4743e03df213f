// The frame of every tool: from argv to an exit status.
#include "fp8/cli/run.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string_view>

#include "broken_pipe.h"
#include "fp8/base/clock.h"
#include "fp8/base/cpu.h"
#include "fp8/base/folders.h"
#include "fp8/base/resources.h"
#include "fp8/base/text.h"
#include "fp8/cli/output.h"
#include "fp8/cli/signals.h"

namespace fp8::cli {
namespace {

// The first file that is opened would get a closed descriptor 0, 1 or 2 and receive our messages. /dev/null, opened
// read-only, occupies the descriptor, and writing to it fails as it should.
void hold_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    if (::open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) != fd) return;
  }
}

// Whether this process prints errors of the command line: under mpirun all ranks have the same one, so only rank 0.
bool speaks() {
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");  // NOLINT(concurrency-mt-unsafe): no threads yet
  return rank == nullptr || std::string_view(rank) == "0";
}

// The output of --help, --version and --completion; empty if none was given.
std::string information(const Command& command, const Arguments& arguments, const std::vector<std::string>& versions) {
  if (arguments.flag("help")) return help(command, std::min(terminal_columns(), 100));
  if (arguments.flag("version")) return version_text(command.name, versions) + "\n";
  if (arguments.has("completion")) return completion(command, arguments.text("completion"));
  return "";
}

// Status of `work`, which may throw; prints the error if `aloud`.
int guarded(const std::string& tool, bool aloud, const std::function<int()>& work) {
  try {
    return work();
  } catch (const BrokenPipe&) {
    return 0;
  } catch (const std::exception&) {
    const Error error = current_error();
    if (aloud) print_error(tool, error_message(error));
    return static_cast<int>(error.code());
  }
}

// Flushes stdio; a failed write is an error.
int flushed(const std::string& tool, int status) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  const int error = errno;
  if (error == EPIPE) return status;
  return guarded(tool, true, [&]() -> int {
    if (error != 0) throw_errno("standard output", "", error);
    throw Error("standard output: cannot write");
  });
}

// Removes what a killed run of this command left in the output's folder. A dry run removes nothing.
void clear_leftovers(const Command& command, const Arguments& arguments) {
  const auto given = [&](std::string_view flag) {
    const auto named = [&](const Flag& f) { return f.name == flag; };
    return std::any_of(command.flags.begin(), command.flags.end(), named) && arguments.has(flag);
  };
  if (!given("output") || (given("dry-run") && arguments.flag("dry-run"))) return;
  for (const std::string& path : remove_leftovers(arguments.text("output")))
    if (!arguments.flag("quiet")) print_note(command.name, path + ": left over from an interrupted save, removed");
}

// Ends the process as a signal does by default, without the files that it was writing.
class EndOnSignal {
 public:
  EndOnSignal() : signals_({.early = [this](int signal) { end(signal); }, .first = {}, .again = {}}) {}
  // Keeps a thread from printing an error that occurs because the process ends, such as that a file was removed.
  void wait_if_ending() const {
    while (ending_) ::pause();
  }

 private:
  void end(int signal) {
    ending_ = true;
    end_by_signal(signal);
  }

  std::atomic<bool> ending_ = false;
  StopSignals signals_;  // last: its thread uses the other member
};

// Calls the body of a tool.
int call(const Command& command, const Arguments& arguments, const std::function<int(const Arguments&)>& body) {
  std::optional<EndOnSignal> ends;
  if (command.writes) ends.emplace();  // before any thread
  if (!command.launched) start_team();
  clear_leftovers(command, arguments);
  try {
    return body(arguments);
  } catch (...) {
    if (ends) ends->wait_if_ending();
    throw;
  }
}

// Prints how long the tool ran, its peak memory and the version, for --verbose.
void print_usage(const std::string& tool, Clock::time_point start, const std::vector<std::string>& versions) {
  rusage usage{};
  std::string text = format_short(seconds_since(start), 3) + " s";
  if (::getrusage(RUSAGE_SELF, &usage) == 0)
    text += ", peak memory " + human_bytes(static_cast<std::uint64_t>(usage.ru_maxrss) * 1024);
  print_note(tool, text + "; " + version_text(tool, versions) + ", " + std::string(name_of(cpu_isa())));
}

}  // namespace

std::string error_message(const Error& error) {
  std::string flags;
  for (const Hint& hint : error.hints())
    flags += (flags.empty() ? " (use --" : ", or --") + hint.setting + (hint.text.empty() ? "" : " ") + hint.text;
  return error.what() + (flags.empty() ? flags : flags + ")");
}

void print_error(const std::string& tool, const std::string& message) {
  constexpr std::size_t kLongest = 8192;  // longer than two paths; longer messages contain file content
  const std::string line = terminal_safe(tool + ": " + excerpt(message, kLongest)) + "\n";
  (void)std::fwrite(line.data(), 1, line.size(), stderr);  // a failure cannot be reported
  (void)std::fflush(stderr);
}

void print_note(const std::string& tool, const std::string& text) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    print_error(tool, text.substr(begin, end - begin));
    begin = end + 1;
  }
}

std::function<void(const std::string& path)> waiting_note(const std::string& tool, bool quiet) {
  return [tool, quiet](const std::string& path) {
    if (!quiet) print_note(tool, path + ": is a pipe to which nothing has been written yet; waiting");
  };
}

int run(int argc, char** argv, const Command& command, const std::function<int(const Arguments&)>& body,
        const std::vector<std::string>& versions) {
  const Clock::time_point start = Clock::now();
  hold_standard_descriptors();
  (void)std::signal(SIGPIPE, SIG_IGN);
  (void)std::signal(SIGXFSZ, SIG_IGN);
  const Command full = with_common(command);
  std::optional<Arguments> arguments;
  const int status = guarded(full.name, speaks(), [&] {
    static_cast<void>(cpu_isa());  // throws for an invalid FP8_CPU_ISA
    const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
    arguments = parse(full, words);
    const std::string text = information(full, *arguments, versions);
    if (text.empty()) return -1;
    arguments.reset();
    if (speaks()) Output().text(text);
    return 0;
  });
  if (status >= 0) return status;
  const int done = flushed(full.name, guarded(full.name, true, [&] { return call(full, *arguments, body); }));
  if (arguments->flag("verbose") && speaks()) print_usage(full.name, start, versions);
  return done;
}

}  // namespace fp8::cli
