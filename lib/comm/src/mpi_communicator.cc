// Collectives over MPI. Reductions are made so that every rank ends with the same bits: reduced at one place and then
// sent, never by an algorithm that sums in a different order on each rank.
#include "mpi_communicator.h"

#include <array>
#include <numeric>
#include <utility>

#include "blocks.h"
#include "fp8/base/digest.h"
#include "fp8/watchdog/watchdog.h"
#include "mpi_c.h"
#include "mpi_channel.h"
#include "mpi_started.h"
#include "together.h"

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

  using Communicator::all_reduce;
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
    gather({reinterpret_cast<const std::byte*>(text.data()), reinterpret_cast<std::byte*>(all.data()), lengths});
    std::vector<std::string> texts;
    for (std::size_t r = 0; r < lengths.size(); ++r) {
      texts.push_back(all.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(lengths[r])));
    }
    return texts;
  }

  Request start_all_gathers(std::span<const GatheredTensor> tensors) override {
    std::vector<Request> parts;
    for (const GatheredTensor& t : tensors)
      if (const std::vector<std::int64_t> offsets = offsets_of(t.bytes_of, size_, "all-gather"); offsets.back() > 0)
        parts.push_back(mpi_all_gather(group(), t, offsets));
    return together(std::move(parts));
  }

  Request start_reduce_scatters(std::span<const ScatteredTensor> tensors) override {
    std::vector<Request> parts;
    for (const ScatteredTensor& t : tensors)
      if (const std::vector<std::int64_t> offsets = offsets_of(t.count_of, size_, "reduce-scatter"); offsets.back() > 0)
        parts.push_back(mpi_reduce_scatter(group(), next_tag(), t, offsets));
    return together(std::move(parts));
  }

  Request start_all_reduces(std::span<const std::span<float>> tensors, Reduce op) override {
    std::vector<Request> parts;
    for (const std::span<float> t : tensors)
      if (!t.empty()) parts.push_back(mpi_all_reduce(group(), next_tag(), t, op));
    return together(std::move(parts));
  }

  // Also without blocks of this rank, because others may have some, and all count the collective.
  Request start_all_to_all(const std::byte* from, std::span<const std::int64_t> bytes_to, std::byte* to,
                           std::span<const std::int64_t> bytes_from) override {
    const ExchangedBlocks blocks = exchanged_blocks(bytes_to, bytes_from, rank_, size_);
    return mpi_all_to_all(group(), next_tag(), from, to, blocks);
  }

  Request start_messages(std::span<const SentMessage> sent, std::span<const ReceivedMessage> received) override {
    check_messages(sent, received, rank_, size_);
    std::vector<Request> parts;
    for (const ReceivedMessage& m : received)
      if (m.bytes > 0) parts.push_back(mpi_receive(group(), m));
    for (const SentMessage& m : sent)
      if (m.bytes > 0) parts.push_back(mpi_send(group(), m));
    return together(std::move(parts));
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
  std::string text_of_rank(int rank) const override { return place_.progress->text_of_rank(place_.group, rank); }
  const GroupProgress& group_progress_of() const { return place_; }
  double watched() const { return watchdog_ ? watchdog_->timeout() : 0; }

 private:
  MpiGroup group() const { return {comm_, rank_, size_, longest_, place_, pool_}; }
  /// A tag that no other collective under way has, so that pieces of two do not meet.
  int next_tag() {
    constexpr int kTags = 32767;  // tags that MPI allows at least, besides kMessageTag; as many may be under way
    return tag_ = tag_ % kTags + 1;
  }
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
  int tag_ = kMessageTag;  // tag of the last collective that has one
  std::shared_ptr<std::vector<std::vector<float>>> pool_ = std::make_shared<std::vector<std::vector<float>>>();
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
