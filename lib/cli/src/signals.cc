#include "fp8/cli/signals.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "fp8/base/error.h"
#include "fp8/base/folders.h"
#include "fp8/base/resources.h"
#include "fp8/base/signals.h"

namespace fp8::cli {
StopSignals::StopSignals(Hooks hooks) : hooks_(std::move(hooks)) {
  sigset_t held;
  sigemptyset(&held);
  for (const int signal : {SIGUSR1, SIGTERM, SIGINT, SIGHUP}) {
    if (!signal_ignored(signal)) sigaddset(&held, signal);
  }
  signals_ = ::signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK);
  end_ = ::eventfd(0, EFD_CLOEXEC);
  sigset_t before;
  const int error = signals_ < 0 || end_ < 0 ? errno : ::pthread_sigmask(SIG_BLOCK, &held, &before);
  const auto close = [this] {
    for (const int fd : {signals_, end_})
      if (fd >= 0) ::close(fd);
  };
  if (error != 0) {
    close();
    throw_errno("signals", "", error);
  }
  try {
    thread_ = start_thread([this] { listen(); });
  } catch (const Error&) {
    (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    close();
    throw;
  }
}

StopSignals::~StopSignals() {
  (void)::eventfd_write(end_, 1);
  thread_.join();
  ::close(signals_);
  ::close(end_);
}

void StopSignals::begin() {
  const std::lock_guard lock(mutex_);
  begun_ = true;
}

void StopSignals::listen() {
  std::array<pollfd, 2> ready{{{signals_, POLLIN, 0}, {end_, POLLIN, 0}}};
  while (ready[1].revents == 0) {
    struct signalfd_siginfo info {};
    while (::read(signals_, &info, sizeof info) == static_cast<ssize_t>(sizeof info))
      heard(static_cast<int>(info.ssi_signo));
    (void)::poll(ready.data(), ready.size(), -1);  // only a signal can interrupt it
  }
}

void StopSignals::heard(int signal) {
  const std::lock_guard lock(mutex_);
  if (!begun_ && hooks_.early) hooks_.early(signal);
  if (signal == SIGINT && ++interrupts_ > 1 && hooks_.again) hooks_.again();
  if (!requested_.exchange(true) && begun_ && hooks_.first) hooks_.first(signal);
}

void end_by_signal(int signal) {
  remove_unfinished();
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  (void)std::signal(signal, SIG_DFL);
  (void)::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  (void)::kill(::getpid(), signal);
}

}  // namespace fp8::cli
