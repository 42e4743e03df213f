// The check of a team starts as many threads as OpenMP will, and one more, whose stack is what libgomp allocates beside
// the stacks.
#include "fp8/base/resources.h"

#include <sys/mman.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "fp8/base/error.h"
#ifdef _OPENMP
#include <omp.h>
#endif

namespace fp8 {
namespace {

#ifdef _OPENMP
int team_size() { return omp_get_max_threads(); }

// Returns the number of threads, so that the compiler keeps the region.
int run_team() {
  std::atomic<int> threads = 0;
#pragma omp parallel
  ++threads;
  return threads;
}

bool pause_team() { return omp_pause_resource_all(omp_pause_soft) == 0; }
#else
int team_size() { return 1; }
int run_team() { return 1; }
bool pause_team() { return true; }
#endif

// Threads that wait until all of them are released.
class WaitingThreads {
 public:
  explicit WaitingThreads(int count) {
    try {
      for (int i = 0; i < count; ++i) threads_.push_back(start_thread([this] { wait(); }));
    } catch (...) {
      release();
      throw;
    }
  }
  ~WaitingThreads() { release(); }
  WaitingThreads(const WaitingThreads&) = delete;
  WaitingThreads& operator=(const WaitingThreads&) = delete;

 private:
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return released_; });
  }
  void release() {
    {
      const std::lock_guard lock(mutex_);
      released_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool released_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::thread start_thread(std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& e) {
    throw Error("out of memory: no thread can be started: " + e.code().message() +
                " (ulimit -v limits memory, ulimit -u threads)");
  }
}

void start_team() {
  const int size = team_size();
  if (size == 1) return;
  { const WaitingThreads check(size); }
  // Threads inherit the mask: a signal that a tool blocks later must not end the process through one of these threads.
  sigset_t all, before;
  sigfillset(&all);
  if (const int error = ::pthread_sigmask(SIG_BLOCK, &all, &before); error != 0) throw_errno("signals", "", error);
  const int threads = run_team();
  (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (threads < 1) throw Error("OpenMP runs no thread");
}

void end_team() {
  if (!pause_team()) throw Error("the threads of OpenMP cannot be ended");
}

void check_room(std::size_t bytes, const char* what) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw Error(std::string("out of memory: ") + what);
  (void)::munmap(memory, bytes);
}

}  // namespace fp8
