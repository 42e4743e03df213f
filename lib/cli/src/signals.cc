#include "fp8/cli/signals.h"

#include <pthread.h>

#include <cerrno>
#include <ctime>

#include "fp8/base/error.h"

namespace fp8::cli {

StopSignals::StopSignals() {
  sigemptyset(&both_);
  for (const int signal : {SIGUSR1, SIGTERM}) sigaddset(&both_, signal);
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &both_, &before_); error != 0) throw_errno("signals", "", error);
}

StopSignals::~StopSignals() {
  const timespec at_once{};
  while (::sigtimedwait(&both_, nullptr, &at_once) > 0 || errno == EINTR) {
  }
  (void)::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool StopSignals::requested() const {
  sigset_t pending;
  if (::sigpending(&pending) != 0) throw_errno("signals", "", errno);
  return sigismember(&pending, SIGUSR1) == 1 || sigismember(&pending, SIGTERM) == 1;
}

}  // namespace fp8::cli
