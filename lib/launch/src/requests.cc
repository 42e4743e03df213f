// Signals as something to poll: no handler, no global.
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "fp8/base/error.h"
#include "fp8/launch/process.h"

namespace fp8::launch {
namespace {

// Whether nobody wants to hear of this signal: nohup, or a shell that started a job in the background.
bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? name : std::to_string(signal);
}

Requests::Requests() {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int signal : {SIGTERM, SIGUSR1, SIGCHLD}) ::sigaddset(&wanted, signal);
  for (const int signal : {SIGINT, SIGHUP}) {
    if (!is_ignored(signal)) ::sigaddset(&wanted, signal);
  }
  if (::prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper_) != 0 || ::prctl(PR_SET_CHILD_SUBREAPER, 1UL) != 0)
    throw_errno("signals", "cannot adopt orphans", errno);
  fd_ = ::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd_ < 0) throw_errno("signals", "", errno);
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;  // where CHLD is ignored, no status comes back
  ::sigemptyset(&usual.sa_mask);
  if (::sigaction(SIGCHLD, &usual, &child_before_) != 0 || ::sigprocmask(SIG_BLOCK, &wanted, &before_) != 0) {
    const int error = errno;
    ::close(fd_);
    throw_errno("signals", "", error);
  }
}

Requests::~Requests() {
  try {
    take();  // what came late must not end this process with its work done
  } catch (const Error&) {
    // Nothing can be read from it: nothing has come.
  }
  ::close(fd_);
  (void)::sigprocmask(SIG_SETMASK, &before_, nullptr);
  (void)::sigaction(SIGCHLD, &child_before_, nullptr);
  (void)::prctl(PR_SET_CHILD_SUBREAPER, static_cast<unsigned long>(was_subreaper_));
}

void Requests::take() {
  struct signalfd_siginfo info {};
  while (true) {
    const ssize_t n = ::read(fd_, &info, sizeof info);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n != static_cast<ssize_t>(sizeof info)) throw_errno("signals", "cannot be read", n < 0 ? errno : EIO);
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    if (stop_ == 0) stop_ = signal;
    if (signal == SIGINT) ++interrupts_;
  }
}

}  // namespace fp8::launch
