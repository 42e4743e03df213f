// Non-blocking sends on a communicator that carries no collectives.
#include "mpi_channel.h"

#include <list>
#include <optional>
#include <utility>

#include "mpi_communicator.h"

namespace fp8::comm {
namespace {

using watchdog::Message;

class MpiChannel final : public watchdog::Channel {
 public:
  explicit MpiChannel(MPI_Comm comm) {
    check_mpi(MPI_Comm_dup(comm, &comm_), "start of the watchdog");
    check_mpi(MPI_Comm_size(comm_, &size_), "start of the watchdog");
  }
  MpiChannel(const MpiChannel&) = delete;
  MpiChannel& operator=(const MpiChannel&) = delete;
  ~MpiChannel() override {
    // Messages of this size were sent at once, or are for a rank that has stopped its watchdog and ignores them. They
    // may arrive later, so the communicator lives until MPI_Finalize: the next one could get its number, and Open MPI
    // would deliver them there and lose those that have their sequence numbers.
    for (Sent& s : sent_) MPI_Request_free(&s.request);
  }
  int size() const override { return size_; }
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
    int arrived = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, 0, comm_, &arrived, &status), "watchdog");
    if (!arrived) return std::nullopt;
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
  MPI_Comm comm_ = MPI_COMM_NULL;  // of this channel alone
  int size_ = 0;
  std::list<Sent> sent_;  // MPI reads a message until its request is done
};

}  // namespace

std::unique_ptr<watchdog::Channel> mpi_channel(MPI_Comm comm) { return std::make_unique<MpiChannel>(comm); }

}  // namespace fp8::comm
