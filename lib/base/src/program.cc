// The child's input and output are files in memory, so that neither process waits for the other.
#include "fp8/base/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "fp8/base/clock.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"

namespace fp8 {
namespace {

// A file in memory; `name` is the name of the program, for messages.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& name) : fd_(::memfd_create("fp8-program", MFD_CLOEXEC)), name_(name) {
    if (fd_ < 0) throw_errno(name_, "no memory file", errno);
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int fd() const { return fd_; }

  void write(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t n = ::write(fd_, text.data(), text.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw_errno(name_, "cannot write its input", errno);
      text.remove_prefix(static_cast<std::size_t>(n));
    }
    if (::lseek(fd_, 0, SEEK_SET) != 0) throw_errno(name_, "cannot rewind its input", errno);
  }
  // The child's output.
  std::string text() const {
    std::string all;
    std::array<char, 1 << 16> piece{};
    ssize_t n = 0;
    while ((n = ::pread(fd_, piece.data(), piece.size(), static_cast<off_t>(all.size()))) > 0)
      all.append(piece.data(), static_cast<std::size_t>(n));
    if (n < 0) throw_errno(name_, "cannot read what it wrote", errno);
    return all;
  }

 private:
  int fd_;
  const std::string& name_;
};

// Arguments of posix_spawn, freed by the destructor.
class SpawnSetup {
 public:
  SpawnSetup(const std::string& name, int in, int out, int err) {
    const auto check = [&](int error) {
      if (error != 0) throw_errno(name, "cannot be set up", error);
    };
    check(::posix_spawn_file_actions_init(&actions_));
    check(::posix_spawnattr_init(&attributes_));
    const std::array<int, 3> from = {in, out, err};
    for (int to = 0; to < 3; ++to) {
      check(::posix_spawn_file_actions_adddup2(&actions_, from.at(static_cast<std::size_t>(to)), to));
    }
    sigset_t defaults;
    ::sigemptyset(&defaults);
    for (const int ignored : {SIGPIPE, SIGXFSZ})
      ::sigaddset(&defaults, ignored);  // ignored in the tools, and inherited
    check(::posix_spawnattr_setsigdefault(&attributes_, &defaults));
    check(::posix_spawnattr_setpgroup(&attributes_, 0));
    check(::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP));
  }
  ~SpawnSetup() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

// Waits for the child, at most `seconds` if above 0; returns its exit status, or 128 + the signal number.
int wait_for(const std::string& name, pid_t child, double seconds) {
  constexpr std::chrono::milliseconds kPause(10);
  const auto begin = Clock::now();
  bool killed = false;
  int status = 0;
  while (true) {
    const pid_t ended = ::waitpid(child, &status, seconds > 0 && !killed ? WNOHANG : 0);
    if (ended < 0 && errno != EINTR) throw_errno(name, "cannot be waited for", errno);
    if (ended > 0) break;
    if (ended < 0 || seconds_since(begin) < seconds) {
      std::this_thread::sleep_for(kPause);
      continue;
    }
    killed = true;
    if (::kill(-child, SIGKILL) != 0 && errno != ESRCH) throw_errno(name, "cannot be killed", errno);
  }
  if (killed) throw Error(name + ": still running after " + format_short(seconds, 3) + " s, killed");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

std::optional<ProgramResult> run_program(std::vector<std::string> words, const std::string& input, double seconds) {
  const std::string name = words.at(0);
  const MemoryFile in(name), out(name), err(name);
  in.write(input);
  const SpawnSetup setup(name, in.fd(), out.fd(), err.fd());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, argv.front(), setup.actions(), setup.attributes(), argv.data(), environ);
  if (error == ENOENT) return std::nullopt;
  if (error != 0) throw_errno(name, "cannot be run", error);
  const int status = wait_for(name, child, seconds);
  return ProgramResult{status, out.text(), err.text()};
}

std::string find_program(const std::string& path, const std::string& name) {
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    std::string candidate = (end > begin ? path.substr(begin, end - begin) : ".") + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  return {};
}

void check_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (::access(name.c_str(), F_OK) != 0) throw Error(name + ": no such program");
    if (::access(name.c_str(), X_OK) != 0) throw_errno(name, "cannot be run", errno);
    return;
  }
  const char* const path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): never set here
  if (find_program(path != nullptr ? path : "/bin:/usr/bin", name).empty()) throw Error(name + ": no such program");
}

}  // namespace fp8
