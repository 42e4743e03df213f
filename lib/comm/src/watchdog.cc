// A thread that wakes up a few times in a timeout, and small messages that MPI carries for it.
#include "watchdog.h"

#include <chrono>
#include <list>
#include <utility>

#include "fp8/base/clock.h"
#include "mpi_communicator.h"

namespace fp8::comm {
namespace {

class MpiChannel final : public Channel {
 public:
  explicit MpiChannel(MPI_Comm comm) { check_mpi(MPI_Comm_dup(comm, &comm_), "start of the watchdog"); }
  MpiChannel(const MpiChannel&) = delete;
  MpiChannel& operator=(const MpiChannel&) = delete;
  ~MpiChannel() override {
    // Messages this small have left, or wait for a rank that has ended its watch and will not ask for them.
    for (Sent& s : sent_) MPI_Request_free(&s.request);
    MPI_Comm_free(&comm_);
  }
  void send(int rank, const Message& message) override {
    sent_.remove_if([](Sent& s) {
      int done = 0;
      check_mpi(MPI_Test(&s.request, &done, MPI_STATUS_IGNORE), "watchdog");
      return done != 0;
    });
    Sent& s = sent_.emplace_back(Sent{message, MPI_REQUEST_NULL});
    check_mpi(MPI_Isend(&s.message, static_cast<int>(sizeof(Message)), MPI_BYTE, rank, 0, comm_, &s.request),
              "watchdog");
  }
  std::optional<std::pair<int, Message>> receive() override {
    int there = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, 0, comm_, &there, &status), "watchdog");
    if (!there) return std::nullopt;
    Message m;
    check_mpi(MPI_Recv(&m, static_cast<int>(sizeof(Message)), MPI_BYTE, status.MPI_SOURCE, 0, comm_, MPI_STATUS_IGNORE),
              "watchdog");
    return std::pair(status.MPI_SOURCE, m);
  }

 private:
  struct Sent {
    Message message;
    MPI_Request request;
  };
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::list<Sent> sent_;  // MPI reads them until they have left
};

}  // namespace

std::unique_ptr<Channel> mpi_channel(MPI_Comm comm) { return std::make_unique<MpiChannel>(comm); }

Watchdog::Watchdog(std::unique_ptr<Channel> channel, ProgressTable& progress, int rank, double timeout,
                   std::function<void(const Stall&)> lost)
    : channel_(std::move(channel)),
      lost_(std::move(lost)),
      timeout_(timeout),
      detector_(progress, *channel_, rank, timeout, lost_),
      thread_([this] { run(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Watchdog::run() {
  try {
    Clock::time_point last = Clock::now();
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::duration<double>(detector_.pace()), [&] { return stop_; })) {
      const Clock::time_point now = Clock::now();
      detector_.tick(std::chrono::duration<double>(now - last).count());
      last = now;
    }
    detector_.answer();
  } catch (const Error& e) {
    lost_({{}, "", 0, -1, timeout_, true, e.what()});
  }
}

}  // namespace fp8::comm
