/// Ranks and their collectives. One interface for one process without MPI, for MPI on host memory, and for NCCL on
/// device memory; the same tests hold for all. Errors of MPI end in Error with the collective's name. Not for point-to-
/// point messages between tools: those meet in files and pipes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fp8/base/error.h"
#include "fp8/device/device.h"

namespace fp8::comm {

/// How values of several ranks become one. `amax`: largest of non-negative floats, where NaN beats everything.
enum class Reduce : std::uint8_t { sum, max, min, amax };

/// A collective under way. Buffers must stay alive and untouched until wait(); the destructor waits, and drops the
/// error if there is one. That cannot hang behind an exception on this rank alone: the other ranks still reach what
/// this one has already started.
class Request {
 public:
  /// What an implementation provides.
  struct Operation {
    /// Called once the collective is done.
    virtual ~Operation() = default;
    /// Returns when the collective is done on this rank; throws Error when it failed.
    virtual void wait() = 0;
    /// Lets a pending collective progress without blocking; true when done.
    virtual bool test() = 0;
  };
  /// Nothing under way.
  Request() = default;
  /// Of `op`, which has been started.
  explicit Request(std::unique_ptr<Operation> op) : op_(std::move(op)) {}
  /// Takes over what the other has under way.
  Request(Request&&) noexcept = default;
  /// Waits for its own, then takes over the other's.
  Request& operator=(Request&& other) noexcept;
  ~Request();
  /// Blocks until done. A default-made or already waited request returns at once.
  void wait();
  /// Progresses without blocking; true when done.
  bool test();

 private:
  std::unique_ptr<Operation> op_;
};

/// Why a watchdog ends a job: who is missing from which collective.
struct Stall {
  std::vector<int> ranks;  ///< of the job; empty: everyone is there, and yet the collective does not end
  std::string collective;  ///< its name, as "all-reduce"
  std::int64_t count = 0;  ///< how many-th collective of its group it is, from 1
  std::int64_t step = -1;  ///< as at_step() told; -1: none
  double seconds = 0;      ///< the timeout
  bool answers = true;     ///< whether the processes of `ranks` answer; one that was stopped does not
  std::string error;       ///< instead of all this: a message about this rank alone

  /// As a line for people: "rank 1 did not reach all-reduce 1234 (step 17) within 5 s".
  std::string message() const;
};

class WatchedWork;

/// A group of ranks. Every member must make the same calls in the same order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  /// This process's number, from 0.
  virtual int rank() const = 0;
  /// How many ranks.
  virtual int size() const = 0;
  /// Where the floats of all_reduce and the blocks of gathers and scatters lie.
  virtual device::DeviceType device() const { return device::DeviceType::host; }
  /// Returns when all ranks have called it.
  virtual void barrier() = 0;
  /// Elementwise reduction in place; the same bits on every rank, and again with the same number of ranks. For max and
  /// min of values without NaN; Reduce::amax clears signs.
  virtual void all_reduce(std::span<float> values, Reduce op) = 0;
  /// As above; Reduce::amax is not offered for doubles.
  virtual void all_reduce(std::span<double> values, Reduce op) = 0;
  /// Sums of doubles on device(), in place; on a device it only takes its turn.
  virtual void sum_here(std::span<double> values) { all_reduce(values, Reduce::sum); }
  /// As above; Reduce::amax is not offered for integers.
  virtual void all_reduce(std::span<std::int64_t> values, Reduce op) = 0;
  /// Bytes of `root` to everyone; sizes must be equal on all ranks.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;
  /// Every rank's text, by rank; lengths may differ.
  virtual std::vector<std::string> all_gather(const std::string& text) = 0;
  /// Starts gathering blocks of bytes_of[r] bytes, rank after rank, into `all` (sum of bytes_of). `mine` holds
  /// bytes_of[rank()] and may lie at its place inside `all`. A block may be empty; blocks may exceed 2 GiB.
  virtual Request start_all_gather(const std::byte* mine, std::byte* all, std::span<const std::int64_t> bytes_of) = 0;
  /// Starts the f32 sum of `full` over ranks, scattered: rank r receives its block of count_of[r] floats in `mine`,
  /// which may lie at its place inside `full`. The rest of `full` is left undefined. Summed in the order of ranks: the
  /// same bits again with the same number of ranks.
  virtual Request start_reduce_scatter(float* full, float* mine, std::span<const std::int64_t> count_of) = 0;
  /// The ranks of the same `color` (from 0), ordered by `key`; collective. Must not outlive the Session.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  /// Begins to watch the collectives of these ranks and of their parts from a thread of its own, until the communicator
  /// is gone. When this rank waits in one of them for `seconds`, all ranks are asked where they are: one that does not
  /// answer, or computes and has not come, is missing, and `lost` is called from that thread, on the lowest rank that
  /// waits; it should end the job (abort_all). A rank inside OwnWork is waited for as long as its process answers, and
  /// `lost` is called on a rank inside WatchedWork that makes no progress for `seconds`. Time in which this process
  /// itself was stopped does not count. Collective. False, and nothing is watched, where the library cannot (MPI
  /// without MPI_THREAD_MULTIPLE).
  virtual bool watch(double /*seconds*/, const std::function<void(const Stall&)>& /*lost*/) { return true; }
  /// The step that a watchdog's messages name.
  virtual void at_step(std::int64_t) {}
  /// See OwnWork.
  virtual void own_work(bool /*begins*/) {}
  /// See WatchedWork: where it begins; null where it ends.
  virtual void watch_work(const WatchedWork* /*work*/) {}
};

/// For as long as it lives this rank works by itself, on files or a decision, however long that takes, and calls no
/// collective; a watchdog then asks no more than that its process runs. agree() holds one around its body.
class OwnWork {
 public:
  /// Of this rank of a group.
  explicit OwnWork(Communicator& group) : group_(group) { group_.own_work(true); }
  ~OwnWork() { group_.own_work(false); }
  OwnWork(const OwnWork&) = delete;
  OwnWork& operator=(const OwnWork&) = delete;

 private:
  Communicator& group_;
};

/// OwnWork that must make progress: the watchdog of a rank ends the job when the count stays the same for the timeout
/// of Communicator::watch(). One at a time.
class WatchedWork {
 public:
  /// `what` is its name in messages, as "writing step-00000004"; `count`, of pieces done, outlives this.
  WatchedWork(Communicator& group, std::string what, const std::atomic<std::uint64_t>& count)
      : own_(group), group_(group), what_(std::move(what)), count_(count) {
    group_.watch_work(this);
  }
  ~WatchedWork() { group_.watch_work(nullptr); }
  WatchedWork(const WatchedWork&) = delete;
  WatchedWork& operator=(const WatchedWork&) = delete;
  /// Its name in messages.
  const std::string& what() const { return what_; }
  /// Pieces done so far.
  std::uint64_t count() const { return count_; }

 private:
  OwnWork own_;
  Communicator& group_;
  std::string what_;
  const std::atomic<std::uint64_t>& count_;
};

/// A group of one, without MPI.
std::unique_ptr<Communicator> solo();

/// Life of MPI in this process: initialized on construction, finalized on destruction. Only one per process. A process
/// that was not started by mpirun or srun as one of several is a group of one and MPI is not touched. Finalizing waits
/// for the other ranks, so an exception that they do not share must not pass a Session: main keeps the Session outside
/// its try block, lets AgreedError end the program in good order, and ends the job by abort_all() after any other.
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

/// Watches this rank from before MPI is initialized until its watchdog begins (Communicator::watch): a rank that does
/// not start, or is stopped then, would make the others wait forever. When the rank is still at the same point after
/// `seconds`, `lost` is called from a thread of its own; it should end the job (abort_all). Ranks call a tenth of a
/// second apart, so that one of them speaks. Time in which this process itself was stopped does not count. Does nothing
/// where launched() is false or `seconds` is 0. Throws Error where there is no thread.
class StartWatch {
 public:
  /// At `point`, which a message names: "MPI_Init".
  StartWatch(double seconds, const char* point, std::function<void(const Stall&)> lost);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;
  /// The rank has come to another point; `seconds` begin again.
  void at(const char* point);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Whether this process was started by mpirun or srun as one of several.
bool launched();

/// This process's number in its job, from 0, as mpirun or srun tells before MPI is initialized; 0 without them.
int job_rank();

/// This process's number among those of its job on this machine, from 0, as mpirun or srun tells; 0 without them.
int local_rank();

/// Text like "Open MPI 4.1.4" of the library in use, without initializing it.
std::string library_version();

/// Ends the whole job at once with this exit status, from one rank, whatever the others are doing. Outside MPI ends
/// this process. Destructors do not run and nothing is flushed.
[[noreturn]] void abort_all(int status);

/// An Error that every rank of the job throws at the same point, with the same message and code: the job can end in
/// good order, and rank 0 speaks.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// Runs `body` on every rank; when it throws on some of them, every rank throws AgreedError: the message and code of
/// the lowest failing rank, with "rank R: " before the message when size > 1, unless all ranks fail with the same one.
/// Collective. `body` must not call collectives that others could wait in.
template <class Body>
void agree(Communicator& world, Body&& body);

/// The collective part of agree(): `mine` is empty where all is well. Throws as agree() says.
void agree_on(Communicator& world, const std::optional<Error>& mine);

template <class Body>
void agree(Communicator& world, Body&& body) {
  std::optional<Error> mine;
  try {
    const OwnWork own(world);
    body();
  } catch (const Error& e) {
    mine = e;
  } catch (const std::bad_alloc&) {
    mine = Error("out of memory");
  } catch (const std::exception& e) {
    mine = Error(e.what());
  }
  agree_on(world, mine);
}

}  // namespace fp8::comm
