// Receives signals through a signalfd, without handlers and globals.
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "fp8/base/error.h"
#include "fp8/base/signals.h"
#include "fp8/launch/process.h"

namespace fp8::launch {
Requests::Requests() {
  sigset_t wanted;
  ::sigemptyset(&wanted);
  for (const int signal : {SIGTERM, SIGUSR1, SIGCHLD}) ::sigaddset(&wanted, signal);
  for (const int signal : {SIGINT, SIGHUP}) {
    if (!signal_ignored(signal)) ::sigaddset(&wanted, signal);
  }
  if (::prctl(PR_GET_CHILD_SUBREAPER, &was_subreaper_) != 0 || ::prctl(PR_SET_CHILD_SUBREAPER, 1UL) != 0)
    throw_errno("signals", "cannot become the parent of orphans", errno);
  fd_ = ::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd_ < 0) throw_errno("signals", "", errno);
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;  // with CHLD ignored, waitpid returns no status
  ::sigemptyset(&usual.sa_mask);
  if (::sigaction(SIGCHLD, &usual, &child_before_) != 0 || ::sigprocmask(SIG_BLOCK, &wanted, &before_) != 0) {
    const int error = errno;
    ::close(fd_);
    throw_errno("signals", "", error);
  }
}

Requests::~Requests() {
  try {
    take();  // a pending signal must not end this process after its work is done
  } catch (const Error&) {
    // Without a readable signalfd there is nothing to discard.
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
