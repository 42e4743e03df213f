// Collectives over MPI. Reductions are made so that every rank ends with the same bits: reduced at one place and then
// sent, never by an algorithm that sums in a different order on each rank.
#include "mpi_communicator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "blocks.h"
#include "fp8/base/digest.h"
#include "fp8/watchdog/watchdog.h"
#include "mpi_c.h"
#include "mpi_channel.h"

namespace fp8::comm {
namespace {

/// Marks a blocking collective in the progress table: reached now, waited for until the destructor.
class Blocking {
 public:
  Blocking(const GroupProgress& place, const char* name)
      : wait_(*place.progress, place.group, place.progress->reach(place.group), name) {}

 private:
  watchdog::ScopedWait wait_;
};

/// Some requests of MPI, all of one collective.
class Requests {
 public:
  explicit Requests(const char* name) : name_(name) {}
  /// A place for one more request.
  MPI_Request* add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  /// Returns when all are done.
  void wait() {
    std::vector<MPI_Status> statuses(requests_.size());
    check(MPI_Waitall(count(), requests_.data(), statuses.data()), statuses);
  }
  /// Whether all are done.
  bool test() {
    int flag = 0;
    std::vector<MPI_Status> statuses(requests_.size());
    check(MPI_Testall(count(), requests_.data(), &flag, statuses.data()), statuses);
    return flag != 0;
  }

 private:
  int count() const { return static_cast<int>(requests_.size()); }
  void check(int status, const std::vector<MPI_Status>& statuses) const {
    if (status == MPI_ERR_IN_STATUS) {
      for (const MPI_Status& s : statuses) {
        if (s.MPI_ERROR != MPI_ERR_PENDING) check_mpi(s.MPI_ERROR, name_);
      }
    }
    check_mpi(status, name_);
  }
  const char* name_;
  std::vector<MPI_Request> requests_;
};

/// A collective that was started, and is marked in the progress table while this rank waits for it.
class Pending : public Request::Operation {
 public:
  Pending(const GroupProgress& place, const char* name)
      : place_(place), number_(place.progress->reach(place.group)), name_(name) {}
  void wait() override {
    if (done_) return;
    const watchdog::ScopedWait waiting(*place_.progress, place_.group, number_, name_);
    complete();
    done_ = true;
  }
  bool test() override {
    if (!done_) done_ = progress();
    return done_;
  }

 protected:
  /// Returns when this rank's part is done.
  virtual void complete() = 0;
  /// Completes as much as is possible without blocking; false if there is more to come.
  virtual bool progress() = 0;

 private:
  GroupProgress place_;
  std::int64_t number_;
  const char* name_;
  bool done_ = false;
};

/// Calls f(first, count) for the pieces of n elements.
template <class F>
void in_pieces(std::int64_t n, std::int64_t longest, F&& f) {
  for (std::int64_t at = 0; at < n; at += longest) f(at, static_cast<int>(std::min(longest, n - at)));
}

/// Blocks of all ranks, to all ranks.
class AllGather final : public Pending {
 public:
  AllGather(const GroupProgress& place_of, MPI_Comm comm, int rank, std::int64_t longest, const std::byte* mine,
            std::byte* all, std::span<const std::int64_t> bytes_of, const std::vector<std::int64_t>& offsets)
      : Pending(place_of, "all-gather"), requests_("all-gather") {
    const std::int64_t own = bytes_of[static_cast<std::size_t>(rank)];
    std::byte* place = all + offsets[static_cast<std::size_t>(rank)];
    if (offsets.back() <= longest) {
      counts_.assign(bytes_of.begin(), bytes_of.end());
      starts_.assign(offsets.begin(), offsets.end() - 1);
      const void* from = own == 0 || mine == place ? MPI_IN_PLACE : mine;
      check_mpi(MPI_Iallgatherv(from, static_cast<int>(own), MPI_BYTE, all, counts_.data(), starts_.data(), MPI_BYTE,
                                comm, requests_.add()),
                "all-gather");
      return;
    }
    if (own > 0 && mine != place) std::memcpy(place, mine, static_cast<std::size_t>(own));
    for (std::size_t r = 0; r < bytes_of.size(); ++r) {
      in_pieces(bytes_of[r], longest, [&](std::int64_t at, int n) {
        check_mpi(MPI_Ibcast(all + offsets[r] + at, n, MPI_BYTE, static_cast<int>(r), comm, requests_.add()),
                  "all-gather");
      });
    }
  }

 private:
  void complete() override { requests_.wait(); }
  bool progress() override { return requests_.test(); }
  Requests requests_;
  std::vector<int> counts_, starts_;  // MPI reads them until the gather is done
};

/// Memory that collectives of one communicator borrow in turn: taken once, not in every step.
using Pool = std::vector<std::vector<float>>;

/// Sums this rank's block over the ranks. Everything is sent at once; pieces of the other ranks' blocks are received
/// side by side, the next ones while the last are summed in the order of ranks, so that the sum does not depend on who
/// came first and a piece is still in the cache when it is added. MPI_Ireduce_scatter of Open MPI 4 reduces everything
/// to rank 0 and hands it out from there, with memory for all of it.
class ReduceScatter final : public Pending {
 public:
  ReduceScatter(const GroupProgress& place_of, MPI_Comm comm, int rank, std::int64_t longest, int tag, float* full,
                float* mine, const std::vector<std::int64_t>& offsets, const std::shared_ptr<Pool>& pool)
      : Pending(place_of, "reduce-scatter"),
        comm_(comm),
        rank_(rank),
        ranks_(static_cast<int>(offsets.size()) - 1),
        tag_(tag),
        piece_(std::min(longest, kPiece)),
        mine_(mine),
        pool_(pool) {
    const auto at = [&](int r) { return offsets[static_cast<std::size_t>(r)]; };
    own_ = full + at(rank);
    count_ = at(rank + 1) - at(rank);
    for (int i = 1; i < ranks_; ++i) {
      const int peer = (rank + i) % ranks_;
      float* block = full + at(peer);
      in_pieces(at(peer + 1) - at(peer), piece_, [&](std::int64_t begin, int n) {
        check_mpi(MPI_Isend(block + begin, n, MPI_FLOAT, peer, tag_, comm_, sends_.add()), "reduce-scatter");
      });
    }
  }

 private:
  static constexpr std::int64_t kPiece = 1 << 18;  // floats: 1 MiB

  void complete() override {
    begin();
    while (summed_ < count_) {
      arriving_[turn_]->wait();
      advance();
    }
    sends_.wait();
    end();
  }
  bool progress() override {
    begin();
    while (summed_ < count_) {
      if (!arriving_[turn_]->test()) return false;
      advance();
    }
    if (!sends_.test()) return false;
    end();
    return true;
  }
  // Borrows memory and asks for the first two pieces; once.
  void begin() {
    if (std::exchange(begun_, true) || count_ == 0) return;
    if (!pool_->empty()) {
      memory_ = std::move(pool_->back());
      pool_->pop_back();
    }
    memory_.resize(static_cast<std::size_t>(2 * piece_ * (ranks_ - 1)));
    ask();
    ask();
  }
  // Asks all other ranks for the next piece.
  void ask() {
    if (asked_ >= count_) return;
    const auto slot = static_cast<std::size_t>(asked_ / piece_ % 2);
    arriving_[slot].emplace("reduce-scatter");
    const auto n = static_cast<int>(std::min(piece_, count_ - asked_));
    for (int i = 1; i < ranks_; ++i) {
      const int peer = (rank_ + ranks_ - i) % ranks_;
      check_mpi(MPI_Irecv(from(peer, slot), n, MPI_FLOAT, peer, tag_, comm_, arriving_[slot]->add()), "reduce-scatter");
    }
    asked_ += n;
  }
  // Sums the piece that has arrived and asks for one in its place.
  void advance() {
    constexpr std::int64_t kChunk = 4096;
    const std::int64_t n = std::min(piece_, count_ - summed_);
    std::vector<const float*> terms;
    for (int r = 0; r < ranks_; ++r) terms.push_back(r == rank_ ? own_ + summed_ : from(r, turn_));
    float* to = mine_ + summed_;
#pragma omp parallel for schedule(static) if (n > 16 * kChunk)
    for (std::int64_t begin = 0; begin < n; begin += kChunk) {
      const std::int64_t m = std::min(kChunk, n - begin);
      std::array<float, kChunk> sum;
      std::copy_n(terms[0] + begin, m, sum.data());
      for (std::size_t r = 1; r < terms.size(); ++r) {
        const float* term = terms[r] + begin;
        for (std::int64_t i = 0; i < m; ++i) sum[static_cast<std::size_t>(i)] += term[i];
      }
      std::copy_n(sum.data(), m, to + begin);
    }
    summed_ += n;
    turn_ = 1 - turn_;
    ask();
  }
  // Gives the memory back.
  void end() {
    if (!memory_.empty()) pool_->push_back(std::move(memory_));
    memory_.clear();
  }
  float* from(int peer, std::size_t slot) {
    return memory_.data() +
           piece_ * (static_cast<std::int64_t>(slot) * (ranks_ - 1) + (peer < rank_ ? peer : peer - 1));
  }

  MPI_Comm comm_;
  int rank_, ranks_, tag_;
  std::int64_t piece_;
  float* mine_;
  const float* own_ = nullptr;
  std::int64_t count_ = 0, asked_ = 0, summed_ = 0;
  std::size_t turn_ = 0;
  bool begun_ = false;
  Requests sends_{"reduce-scatter"};
  std::array<std::optional<Requests>, 2> arriving_;
  std::vector<float> memory_;
  std::shared_ptr<Pool> pool_;
};

class MpiCommunicator final : public Communicator {
 public:
  /// `key` and `name` are the group's on every rank; the communicator is freed at the end unless it is all ranks.
  MpiCommunicator(MPI_Comm comm, std::shared_ptr<watchdog::ProgressTable> progress, std::uint64_t key,
                  const std::string& name, std::int64_t longest)
      : comm_(comm), key_(key), longest_(longest) {
    check_mpi(MPI_Comm_rank(comm_, &rank_), "rank");
    check_mpi(MPI_Comm_size(comm_, &size_), "size");
    place_.group = progress->add_group(key, members_of(comm_, size_), name);
    place_.progress = std::move(progress);
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;
  ~MpiCommunicator() override {
    // A destructor cannot report; the memory of a communicator is all that a failure would lose.
    if (watchdog_) end_watch();
    if (comm_ != MPI_COMM_WORLD) MPI_Comm_free(&comm_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void barrier() override {
    const Blocking here(place_, "barrier");
    check_mpi(MPI_Barrier(comm_), "barrier");
  }

  void all_reduce(std::span<float> values, Reduce op) override {
    if (op != Reduce::amax) return reduce(values, MPI_FLOAT, op_of(op));
    // Non-negative floats order as their bits do, and NaN lies above infinity.
    for (float& v : values) v = std::bit_cast<float>(std::bit_cast<std::uint32_t>(v) & 0x7FFFFFFFu);
    reduce(values, MPI_INT32_T, MPI_MAX);
  }
  void all_reduce(std::span<double> values, Reduce op) override { reduce(values, MPI_DOUBLE, op_of(op)); }
  void all_reduce(std::span<std::int64_t> values, Reduce op) override { reduce(values, MPI_INT64_T, op_of(op)); }

  void broadcast(std::span<std::byte> bytes, int root) override {
    const Blocking here(place_, "broadcast");
    in_pieces(std::ssize(bytes), longest_, [&](std::int64_t at, int n) {
      check_mpi(MPI_Bcast(bytes.data() + at, n, MPI_BYTE, root, comm_), "broadcast");
    });
  }

  std::vector<std::string> all_gather(const std::string& text) override {
    const std::int64_t length = std::ssize(text);
    std::vector<std::int64_t> lengths(static_cast<std::size_t>(size_));
    {
      const Blocking here(place_, "all-gather of lengths");
      check_mpi(MPI_Allgather(&length, 1, MPI_INT64_T, lengths.data(), 1, MPI_INT64_T, comm_), "all-gather of lengths");
    }
    const std::vector<std::int64_t> offsets = offsets_of(lengths, size_, "all-gather");
    std::string all(static_cast<std::size_t>(offsets.back()), '\0');
    start_all_gather(reinterpret_cast<const std::byte*>(text.data()), reinterpret_cast<std::byte*>(all.data()), lengths)
        .wait();
    std::vector<std::string> texts;
    for (std::size_t r = 0; r < lengths.size(); ++r) {
      texts.push_back(all.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(lengths[r])));
    }
    return texts;
  }

  Request start_all_gather(const std::byte* mine, std::byte* all, std::span<const std::int64_t> bytes_of) override {
    const std::vector<std::int64_t> offsets = offsets_of(bytes_of, size_, "all-gather");
    if (offsets.back() == 0) return {};
    return Request(std::make_unique<AllGather>(place_, comm_, rank_, longest_, mine, all, bytes_of, offsets));
  }

  Request start_reduce_scatter(float* full, float* mine, std::span<const std::int64_t> count_of) override {
    const std::vector<std::int64_t> offsets = offsets_of(count_of, size_, "reduce-scatter");
    if (offsets.back() == 0) return {};
    tag_ = (tag_ + 1) % kTags;
    return Request(std::make_unique<ReduceScatter>(place_, comm_, rank_, longest_, tag_, full, mine, offsets, pool_));
  }

  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    MPI_Comm part = MPI_COMM_NULL;
    const std::int64_t number = place_.progress->reach(place_.group);
    {
      const watchdog::ScopedWait here(*place_.progress, place_.group, number, "split");
      check_mpi(MPI_Comm_split(comm_, color, key, &part), "split");
    }
    // Equal on all ranks of the part, and unlike that of any other part, as far as 64 bits go.
    const std::array<std::uint64_t, 3> path{key_, static_cast<std::uint64_t>(number),
                                            static_cast<std::uint64_t>(color)};
    return std::make_unique<MpiCommunicator>(part, place_.progress, digest_of(std::as_bytes(std::span(path))).lo, name,
                                             longest_);
  }

  bool watch(double seconds, const std::function<void(const watchdog::Stall&)>& on_stall) override {
    if (watchdog_) end_watch();
    int provided = MPI_THREAD_SINGLE;
    check_mpi(MPI_Query_thread(&provided), "threads");
    if (provided < MPI_THREAD_MULTIPLE) return false;
    if (seconds <= 0) return true;
    const Blocking here(place_, "start of the watchdog");
    watchdog_ = std::make_unique<watchdog::Watchdog>(mpi_channel(comm_), *place_.progress, rank_, seconds, on_stall);
    return true;
  }
  watchdog::ProgressTable& progress() override { return *place_.progress; }
  const GroupProgress& group_progress_of() const { return place_; }
  double watched() const { return watchdog_ ? watchdog_->timeout() : 0; }

 private:
  /// The ranks of a communicator, as the whole job numbers them.
  static std::vector<int> members_of(MPI_Comm comm, int size) {
    MPI_Group part = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
    check_mpi(MPI_Comm_group(comm, &part), "group");
    check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &all), "group");
    std::vector<int> own(static_cast<std::size_t>(size)), members(own.size());
    std::iota(own.begin(), own.end(), 0);
    check_mpi(MPI_Group_translate_ranks(part, size, own.data(), all, members.data()), "group");
    check_mpi(MPI_Group_free(&part), "group");
    check_mpi(MPI_Group_free(&all), "group");
    return members;
  }
  /// The barrier comes first, so that the watchdogs watch the wait for the other ranks.
  void end_watch() noexcept {
    try {
      barrier();
    } catch (const Error&) {
      // MPI_Finalize, which waits for all ranks, fails for the same reason.
    }
    watchdog_.reset();
  }
  static MPI_Op op_of(Reduce op) {
    switch (op) {
      case Reduce::sum:
        return MPI_SUM;
      case Reduce::max:
        return MPI_MAX;
      case Reduce::min:
        return MPI_MIN;
      case Reduce::amax:
        break;
    }
    throw Error("all-reduce: amax is for float");
  }
  template <class T>
  void reduce(std::span<T> values, MPI_Datatype type, MPI_Op op) {
    const Blocking here(place_, "all-reduce");
    in_pieces(std::ssize(values), longest_, [&](std::int64_t at, int n) {
      T* piece = values.data() + at;
      const void* from = rank_ == 0 ? MPI_IN_PLACE : piece;
      check_mpi(MPI_Reduce(from, piece, n, type, op, 0, comm_), "all-reduce");
      check_mpi(MPI_Bcast(piece, n, type, 0, comm_), "all-reduce");
    });
  }
  MPI_Comm comm_;
  std::uint64_t key_;
  std::int64_t longest_;
  int rank_ = 0, size_ = 1;
  static constexpr int kTags = 32768;  // tags that MPI allows at least; as many may be under way
  int tag_ = 0;  // tag of the last reduce-scatter, different for each, so that pieces of two do not meet
  std::shared_ptr<Pool> pool_ = std::make_shared<Pool>();
  GroupProgress place_;
  std::unique_ptr<watchdog::Watchdog> watchdog_;
};

}  // namespace

void check_mpi(int status, const std::string& collective) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  const bool known = MPI_Error_string(status, text.data(), &length) == MPI_SUCCESS;
  throw Error("MPI " + collective + ": " +
              (known ? std::string(text.data(), static_cast<std::size_t>(length)) : std::to_string(status)));
}

double watched_seconds(const Communicator& group) {
  const auto* mpi = dynamic_cast<const MpiCommunicator*>(&group);
  return mpi != nullptr ? mpi->watched() : 0;
}

GroupProgress group_progress(const Communicator& group) {
  const auto* mpi = dynamic_cast<const MpiCommunicator*>(&group);
  return mpi != nullptr ? mpi->group_progress_of() : GroupProgress{};
}

std::unique_ptr<Communicator> mpi_world(std::int64_t longest_message) {
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "error handler");
  return std::make_unique<MpiCommunicator>(MPI_COMM_WORLD, std::make_shared<watchdog::ProgressTable>(), 0, "",
                                           longest_message);
}

}  // namespace fp8::comm
