/// Ranks, their collectives and messages between two of them. One interface for one process without MPI, for MPI on
/// host memory, and for NCCL on device memory; the same tests hold for all. Errors of MPI end in Error with the
/// collective's name. Not for messages between tools: those meet in files and pipes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/device/device.h"
#include "fp8/device/profile.h"
#include "fp8/watchdog/stall_detector.h"

namespace fp8::comm {

/// A reduction over ranks. `amax`: the largest of non-negative floats, where NaN counts as the largest.
enum class Reduce : std::uint8_t { sum, max, min, amax };

/// A collective or a message that was started. Buffers must stay alive and unchanged until wait(); the destructor
/// waits, and ignores an error. It does not hang if only this rank throws, because the other ranks also reach a
/// collective that this rank has started.
class Request {
 public:
  /// The interface that an implementation provides.
  struct Operation {
    /// Called once the collective is done.
    virtual ~Operation() = default;
    /// Returns when the collective is done on this rank; throws Error when it failed.
    virtual void wait() = 0;
    /// Lets a pending collective progress without blocking; true when done.
    virtual bool test() = 0;
  };
  /// Without a collective.
  Request() = default;
  /// Holds `op`, which was started.
  explicit Request(std::unique_ptr<Operation> op) : op_(std::move(op)) {}
  /// Takes the collective of the other.
  Request(Request&&) noexcept = default;
  /// Waits for its own collective, then takes the other's.
  Request& operator=(Request&& other) noexcept;
  ~Request();
  /// Blocks until done. A default-made or already waited request returns at once.
  void wait();
  /// Progresses without blocking; true when done.
  bool test();

 private:
  std::unique_ptr<Operation> op_;
};

/// A tensor that start_all_gathers() gathers: blocks of bytes, rank after rank. A block may be empty or exceed 2 GiB.
struct GatheredTensor {
  const std::byte* mine = nullptr;     ///< this rank's block; may lie at its place in `all`
  std::byte* all = nullptr;            ///< all blocks
  std::vector<std::int64_t> bytes_of;  ///< size of each rank's block
};

/// A tensor of floats that start_reduce_scatters() adds over the ranks, each of which gets a block of the sums.
struct ScatteredTensor {
  float* full = nullptr;               ///< the terms of this rank; undefined afterwards, but for `mine`
  float* mine = nullptr;               ///< the sums of its block; may lie at its place in `full`
  std::vector<std::int64_t> count_of;  ///< floats in each rank's block
};

/// A message that start_messages() sends.
struct SentMessage {
  const std::byte* from = nullptr;
  std::int64_t bytes = 0;
  int to = 0;  ///< rank that receives it
};

/// A message that start_messages() receives.
struct ReceivedMessage {
  std::byte* to = nullptr;
  std::int64_t bytes = 0;
  int from = 0;  ///< rank that sends it
};

/// A group of ranks. Every member must make the same calls in the same order, except for messages, which concern two of
/// them; and wait for requests in the same order, because some go on in wait() and test() only.
class Communicator {
 public:
  virtual ~Communicator() = default;
  /// This process's number, from 0.
  virtual int rank() const = 0;
  /// How many ranks.
  virtual int size() const = 0;
  /// Device of the floats of all-reduces, of the blocks of gathers, scatters and all-to-alls, and of messages.
  virtual device::DeviceType device() const { return device::DeviceType::host; }
  /// Number of distinct machines of its ranks, for plans (device::Exchange); 1 where nothing is planned.
  virtual int machines() const { return 1; }
  /// Returns when all ranks have called it.
  virtual void barrier() = 0;
  /// start_all_gathers() of one tensor, and the wait for it.
  void gather(const GatheredTensor& tensor) { start_all_gathers({&tensor, 1}).wait(); }
  /// start_all_reduces() of one tensor, and the wait for it.
  void all_reduce(std::span<float> values, Reduce op) { start_all_reduces({&values, 1}, op).wait(); }
  /// Elementwise reduction of doubles; Reduce::amax is not offered.
  virtual void all_reduce(std::span<double> values, Reduce op) = 0;
  /// Sums of doubles on device(), in place; on a GPU the host does not wait for it.
  virtual void sum_here(std::span<double> values) { all_reduce(values, Reduce::sum); }
  /// Elementwise reduction of integers; Reduce::amax is not offered.
  virtual void all_reduce(std::span<std::int64_t> values, Reduce op) = 0;
  /// Sends the bytes of `root` to all ranks; sizes must be equal on all ranks.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;
  /// Every rank's text, by rank; lengths may differ.
  virtual std::vector<std::string> all_gather(const std::string& text) = 0;
  /// Starts the all-gathers of several tensors, with one request for all of them. NCCL gets them as one group, which
  /// costs a kernel or a few, and the watchdog counts one collective; elsewhere each is a collective of its own.
  virtual Request start_all_gathers(std::span<const GatheredTensor> tensors) = 0;
  /// Starts the reduce-scatters (sums) of several tensors, with one request for all of them. The bits of the result
  /// repeat with the same number of ranks: on the host the sum is in the order of ranks; NCCL's order is its own and
  /// repeats on the same machines with the same settings. NCCL runs them at the same time as all-gathers, including
  /// all-gathers that were started before.
  virtual Request start_reduce_scatters(std::span<const ScatteredTensor> tensors) = 0;
  /// Starts the elementwise reductions in place of several tensors, with one request for all of them, and the same bits
  /// on every rank. Sums are in the order of start_reduce_scatters(). Max and min need values without NaN; Reduce::amax
  /// clears signs.
  virtual Request start_all_reduces(std::span<const std::span<float>> tensors, Reduce op) = 0;
  /// Starts to send a block to each rank: bytes_to[r] bytes of `from`, where the blocks lie in the order of ranks, go
  /// to rank r. Its block of bytes_from[r] bytes for this rank arrives in `to`, also in the order of ranks. The two do
  /// not overlap. bytes_to[r] equals bytes_from of rank r for this rank; a block may be empty; blocks may exceed 2 GiB.
  virtual Request start_all_to_all(const std::byte* from, std::span<const std::int64_t> bytes_to, std::byte* to,
                                   std::span<const std::int64_t> bytes_from) = 0;
  /// Starts messages to and from other ranks of the group, of 0 bytes or more, with one request for all of them. The
  /// other rank sends or receives as many bytes. Messages from one rank to another arrive in the order in which they
  /// were started; otherwise ranks may start them in any order relative to other messages and to collectives, but not
  /// on a GPU: there the messages and collectives of a group run in the order in which a rank starts them, and each
  /// ends when the other ranks run theirs. Two ranks that send to each other, or several that send in a ring, start
  /// what each of them sends and receives by one call, and wait for it then; separate calls would wait for each other.
  virtual Request start_messages(std::span<const SentMessage> sent, std::span<const ReceivedMessage> received) = 0;
  /// The ranks of the same `color` (from 0), ordered by `key`; collective. Messages of the watchdog contain `name`, as
  /// "dp_shard", unless it is empty, as the name of all ranks is. Must not outlive the Session.
  virtual std::unique_ptr<Communicator> split(int color, int key, const std::string& name) = 0;

  /// Starts a watchdog thread (fp8/watchdog/watchdog.h) for the collectives of these ranks and of their splits, which
  /// runs until the communicator is destroyed. When a collective does not end on this rank within `seconds`, the
  /// watchdogs of all ranks are queried; a rank that does not answer, or computes and has not reached the collective,
  /// is missing, and the lowest rank that waits calls `on_stall` on its watchdog thread, which should end the job
  /// (abort_all). A rank in LocalWork is only required to answer. A rank in WatchedWork calls `on_stall` if the work
  /// makes no progress for `seconds`. Time in which this process was stopped does not count. 0 s: stops the watchdog.
  /// Collective. Returns false, and watches nothing, if MPI lacks MPI_THREAD_MULTIPLE.
  virtual bool watch(double seconds, const std::function<void(const watchdog::Stall&)>& on_stall) = 0;
  /// The table that the watchdog reads: for the step in its messages, LocalWork and WatchedWork. Communicators made by
  /// split() share it.
  virtual watchdog::ProgressTable& progress() = 0;
  /// A rank of this group in messages, behind the word rank: its number in the job, and its machine if the job has
  /// several (name_hosts() in hosts.h), as "5 (node-3)".
  virtual std::string text_of_rank(int rank) const { return std::to_string(rank); }
};

/// What a profile records of an exchange of `bytes` (device::Exchange) in a group; none in a group of one.
inline device::Exchange exchange_of(device::ExchangeKind kind, const Communicator& group, double bytes) {
  if (group.size() == 1) return {};
  return {kind, group.size(), group.machines(), bytes};
}

/// The record of an exchange for which the rank waits at once.
inline device::Span exchange_span(std::string_view name, device::ExchangeKind kind, const Communicator& group,
                                  double bytes) {
  return {.work = device::Work::communication,
          .name = name,
          .bytes = bytes,
          .launches = group.size() == 1 ? 0 : 1,
          .exchange = exchange_of(kind, group, bytes)};
}

/// Whether this rank is the one that writes what a job writes once: records, documents, files of results.
inline bool is_writer(const Communicator& job) { return job.rank() == 0; }

/// A group of one, without MPI.
std::unique_ptr<Communicator> solo();

/// Life of MPI in this process: initialized on construction, finalized on destruction. Only one per process. A process
/// that was not started by mpirun or srun as one of several is a group of one and MPI is not touched. Finalizing waits
/// for the other ranks, so an exception that they do not share must not pass a Session: main keeps the Session outside
/// its try block, returns a status after an AgreedError, and ends the job by abort_all() after any other.
class Session {
 public:
  /// Initializes MPI when launched(). Throws Error when that fails.
  Session();
  /// Finalizes MPI if this Session initialized it.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  /// All ranks of the job.
  Communicator& world();

 private:
  std::unique_ptr<Communicator> world_;
  bool mpi_ = false;
};

/// The innermost program that started this process as one of a job, and how many processes it started.
struct Launcher {
  std::string name;  ///< "mpirun", "srun", or "mpiexec" of an MPI with PMI; empty without a launcher
  int tasks = 1;     ///< processes of the job, by the launcher
};

/// The launcher by the environment: OMPI_COMM_WORLD_SIZE, else SLURM_STEP_NUM_TASKS, else PMI_SIZE. The ranks of an
/// mpirun in an allocation also have Slurm's variables, those of the daemons that started them. Batch scripts and the
/// shell of an allocation have no launcher.
Launcher launcher();

/// Whether this process was started by mpirun or srun as one of several that can reach each other.
bool launched();

/// This process's number in its job, from 0, by the environment of mpirun or srun; 0 without them.
int job_rank();

/// This process's number among those of its job on this machine, from 0, by the same environment; 0 without them.
int local_rank();

/// job_rank() in messages before MPI runs, as "rank 5", or "rank 5 (node-3)" if by the environment of mpirun or srun
/// the job has several machines.
std::string job_rank_text();

/// Makes waits of this rank give the processor to other processes whenever nothing has arrived, for ranks that share
/// too few processors. Open MPI does so by itself only where its mpirun counts fewer slots than ranks. Call it in a
/// Session; does nothing if the user has set mpi_yield_when_idle, or with another MPI.
void yield_when_idle();

/// Text like "Open MPI 4.1.4" of the library in use, without initializing it.
std::string library_version();

/// The same of the MPI that several ranks would use here: a program of the device bundle has none of its own and loads
/// it first. Throws Error naming what to install if it cannot.
std::string found_library_version();

/// Ends the whole job at once with this exit status, from one rank, without waiting for others. Outside MPI ends
/// this process. Destructors do not run and nothing is flushed.
[[noreturn]] void abort_all(int status);

/// An Error that every rank of the job throws at the same point, with the same message and code: the job can end in
/// good order, and rank 0 prints the message.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Runs `body` on every rank; when it throws on some of them, every rank throws AgreedError: the message and code of
/// the lowest failing rank, behind "rank R: " with R of text_of_rank(), unless all ranks fail with the same one.
/// Collective. `body` must not call collectives that others could wait in.
template <class Body>
void agree(Communicator& world, Body&& body);

/// The collective part of agree(): `mine` is the error of this rank. Throws as agree() does.
void agree_on(Communicator& world, const std::optional<Error>& mine);

template <class Body>
void agree(Communicator& world, Body&& body) {
  std::optional<Error> mine;
  try {
    const watchdog::LocalWork local(world.progress());
    body();
  } catch (const std::exception&) {
    mine = current_error();
  }
  agree_on(world, mine);
}

}  // namespace fp8::comm
