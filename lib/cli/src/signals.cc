// The one global of the suite: a signal handler can reach nothing else.
#include "fp8/cli/signals.h"

#include <cerrno>

#include "fp8/base/error.h"

namespace fp8::cli {
namespace {

constexpr std::array<int, 2> kSignals = {SIGUSR1, SIGTERM};

volatile std::sig_atomic_t last_signal = 0;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

extern "C" void remember(int number) { last_signal = number; }

}  // namespace

StopSignals::StopSignals() {
  last_signal = 0;
  struct sigaction action {};
  action.sa_handler = remember;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    if (::sigaction(kSignals.at(i), &action, &before_.at(i)) != 0) throw_errno("signals", "", errno);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) (void)::sigaction(kSignals[i], &before_[i], nullptr);
}

bool StopSignals::requested() const { return last_signal != 0; }

int StopSignals::signal() const { return last_signal; }

}  // namespace fp8::cli
