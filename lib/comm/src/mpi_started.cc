// Collectives over MPI that go on in wait() and test(). MPI numbers the collectives of a communicator in the order of
// the calls, which a step that follows in wait() or test() would change; such steps are messages with a tag of the
// collective instead.
#include "mpi_started.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "magnitude.h"

namespace fp8::comm {
namespace {

/// Some requests of MPI, all of one collective.
class Requests {
 public:
  Requests(const MpiGroup& group, int tag, const char* name) : comm_(group.comm), tag_(tag), name_(name) {}
  /// A place for one more request.
  MPI_Request* add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  /// Starts to send n elements in pieces.
  template <class T>
  void send(const T* from, std::int64_t n, std::int64_t longest, int peer) {
    in_pieces(n, longest, [&](std::int64_t at, int count) {
      check_mpi(MPI_Isend(from + at, count, type(from), peer, tag_, comm_, add()), name_);
    });
  }
  /// Starts to receive n elements in pieces. Pieces from the same rank arrive in the order in which they were sent.
  template <class T>
  void receive(T* to, std::int64_t n, std::int64_t longest, int peer) {
    in_pieces(n, longest, [&](std::int64_t at, int count) {
      check_mpi(MPI_Irecv(to + at, count, type(to), peer, tag_, comm_, add()), name_);
    });
  }
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
  static MPI_Datatype type(const float*) { return MPI_FLOAT; }
  static MPI_Datatype type(const std::byte*) { return MPI_BYTE; }
  int count() const { return static_cast<int>(requests_.size()); }
  void check(int status, const std::vector<MPI_Status>& statuses) const {
    if (status == MPI_ERR_IN_STATUS) {
      for (const MPI_Status& s : statuses) {
        if (s.MPI_ERROR != MPI_ERR_PENDING) check_mpi(s.MPI_ERROR, name_);
      }
    }
    check_mpi(status, name_);
  }
  MPI_Comm comm_;
  int tag_;
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

/// Blocks of all ranks, to all ranks.
class AllGather final : public Pending {
 public:
  AllGather(const MpiGroup& group, const std::byte* mine, std::byte* all, std::span<const std::int64_t> bytes_of,
            const std::vector<std::int64_t>& offsets)
      : Pending(group.place, "all-gather"), requests_(group, kMessageTag, "all-gather") {
    const std::int64_t own = bytes_of[static_cast<std::size_t>(group.rank)];
    std::byte* place = all + offsets[static_cast<std::size_t>(group.rank)];
    if (offsets.back() <= group.longest) {
      counts_.assign(bytes_of.begin(), bytes_of.end());
      starts_.assign(offsets.begin(), offsets.end() - 1);
      const void* from = own == 0 || mine == place ? MPI_IN_PLACE : mine;
      check_mpi(MPI_Iallgatherv(from, static_cast<int>(own), MPI_BYTE, all, counts_.data(), starts_.data(), MPI_BYTE,
                                group.comm, requests_.add()),
                "all-gather");
      return;
    }
    if (own > 0 && mine != place) std::memcpy(place, mine, static_cast<std::size_t>(own));
    for (std::size_t r = 0; r < bytes_of.size(); ++r) {
      in_pieces(bytes_of[r], group.longest, [&](std::int64_t at, int n) {
        check_mpi(MPI_Ibcast(all + offsets[r] + at, n, MPI_BYTE, static_cast<int>(r), group.comm, requests_.add()),
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

/// into[i] = op(into[i], term[i]); amax needs values without a sign.
void combine(Reduce op, std::span<float> into, const float* term) {
  const auto each = [&](auto&& f) {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] = f(into[i], term[i]);
  };
  switch (op) {
    case Reduce::sum:
      return each([](float a, float b) { return a + b; });
    case Reduce::max:
      return each([](float a, float b) { return std::max(a, b); });
    case Reduce::min:
      return each([](float a, float b) { return std::min(a, b); });
    case Reduce::amax:
      return each(larger_magnitude);
  }
}

/// Reduces this rank's block over the ranks. Everything is sent at once; pieces of the other ranks' blocks are received
/// side by side, the next ones while the last are reduced in the order of ranks, so that a sum does not depend on who
/// came first and a piece is still in the cache when it is added. MPI_Ireduce_scatter of Open MPI 4 reduces everything
/// to rank 0 and hands it out from there, with memory for all of it.
class OrderedReduction {
 public:
  OrderedReduction(const MpiGroup& group, int tag, const char* name, Reduce op, float* full, float* mine,
                   const std::vector<std::int64_t>& offsets)
      : group_(group), tag_(tag), name_(name), op_(op), piece_(std::min(group.longest, kPiece)), mine_(mine) {
    const auto at = [&](int r) { return offsets[static_cast<std::size_t>(r)]; };
    own_ = full + at(group.rank);
    count_ = at(group.rank + 1) - at(group.rank);
    for (int i = 1; i < group.size; ++i) {
      const int peer = (group.rank + i) % group.size;
      sends_.send(full + at(peer), at(peer + 1) - at(peer), piece_, peer);
    }
  }
  /// Returns when `mine` is complete and all is sent.
  void wait() {
    begin();
    while (reduced_ < count_) {
      arriving_[turn_]->wait();
      advance();
    }
    sends_.wait();
    end();
  }
  /// Goes on without blocking; whether `mine` is complete and all is sent.
  bool test() {
    begin();
    while (reduced_ < count_) {
      if (!arriving_[turn_]->test()) return false;
      advance();
    }
    if (!sends_.test()) return false;
    end();
    return true;
  }

 private:
  static constexpr std::int64_t kPiece = 1 << 18;  // floats: 1 MiB

  // Borrows memory and asks for the first two pieces; once.
  void begin() {
    if (std::exchange(begun_, true) || count_ == 0) return;
    if (!group_.pool->empty()) {
      memory_ = std::move(group_.pool->back());
      group_.pool->pop_back();
    }
    memory_.resize(static_cast<std::size_t>(2 * piece_ * (group_.size - 1)));
    ask();
    ask();
  }
  // Asks all other ranks for the next piece.
  void ask() {
    if (asked_ >= count_) return;
    const auto slot = static_cast<std::size_t>(asked_ / piece_ % 2);
    arriving_[slot].emplace(group_, tag_, name_);
    const std::int64_t n = std::min(piece_, count_ - asked_);
    for (int i = 1; i < group_.size; ++i) {
      const int peer = (group_.rank + group_.size - i) % group_.size;
      arriving_[slot]->receive(from(peer, slot), n, piece_, peer);
    }
    asked_ += n;
  }
  // Reduces the piece that has arrived and asks for one in its place.
  void advance() {
    constexpr std::int64_t kChunk = 4096;
    const std::int64_t n = std::min(piece_, count_ - reduced_);
    std::vector<const float*> terms;
    for (int r = 0; r < group_.size; ++r) terms.push_back(r == group_.rank ? own_ + reduced_ : from(r, turn_));
    float* to = mine_ + reduced_;
#pragma omp parallel for schedule(static) if (n > 16 * kChunk)
    for (std::int64_t begin = 0; begin < n; begin += kChunk) {
      const std::int64_t m = std::min(kChunk, n - begin);
      std::array<float, kChunk> result;
      std::copy_n(terms[0] + begin, m, result.data());
      for (std::size_t r = 1; r < terms.size(); ++r)
        combine(op_, std::span(result).first(static_cast<std::size_t>(m)), terms[r] + begin);
      std::copy_n(result.data(), m, to + begin);
    }
    reduced_ += n;
    turn_ = 1 - turn_;
    ask();
  }
  // Gives the memory back.
  void end() {
    if (!memory_.empty()) group_.pool->push_back(std::move(memory_));
    memory_.clear();
  }
  float* from(int peer, std::size_t slot) {
    return memory_.data() +
           piece_ * (static_cast<std::int64_t>(slot) * (group_.size - 1) + (peer < group_.rank ? peer : peer - 1));
  }

  MpiGroup group_;
  int tag_;
  const char* name_;
  Reduce op_;
  std::int64_t piece_;
  float* mine_;
  const float* own_ = nullptr;
  std::int64_t count_ = 0, asked_ = 0, reduced_ = 0;
  std::size_t turn_ = 0;
  bool begun_ = false;
  Requests sends_{group_, tag_, name_};
  std::array<std::optional<Requests>, 2> arriving_;
  std::vector<float> memory_;
};

/// Sums this rank's block over the ranks.
class ReduceScatter final : public Pending {
 public:
  ReduceScatter(const MpiGroup& group, int tag, float* full, float* mine, const std::vector<std::int64_t>& offsets)
      : Pending(group.place, "reduce-scatter"),
        reduction_(group, tag, "reduce-scatter", Reduce::sum, full, mine, offsets) {}

 private:
  void complete() override { reduction_.wait(); }
  bool progress() override { return reduction_.test(); }
  OrderedReduction reduction_;
};

/// Where even parts of n elements begin, and last the end of all.
std::vector<std::int64_t> even_parts(std::int64_t n, int ranks) {
  std::vector<std::int64_t> offsets{0};
  for (int r = 0; r < ranks; ++r) offsets.push_back(offsets.back() + n / ranks + (r < n % ranks ? 1 : 0));
  return offsets;
}

/// Each rank reduces one part and sends the result to the others.
class AllReduce final : public Pending {
 public:
  AllReduce(const MpiGroup& group, int tag, std::span<float> values, Reduce op)
      : Pending(group.place, "all-reduce"),
        group_(group),
        values_(values.data()),
        offsets_(even_parts(std::ssize(values), group.size)),
        reduction_(group, tag, "all-reduce", op, values_, part(group.rank), offsets_),
        results_(group, tag, "all-reduce") {}

 private:
  void complete() override {
    reduction_.wait();
    exchange();
    results_.wait();
  }
  bool progress() override {
    if (!exchanging_ && !reduction_.test()) return false;
    exchange();
    return results_.test();
  }
  // Starts the exchange of results, once. The terms in the parts of the other ranks were sent before.
  void exchange() {
    if (std::exchange(exchanging_, true)) return;
    for (int i = 1; i < group_.size; ++i) {
      const int to = (group_.rank + i) % group_.size, from = (group_.rank + group_.size - i) % group_.size;
      results_.receive(part(from), count(from), group_.longest, from);
      results_.send(part(group_.rank), count(group_.rank), group_.longest, to);
    }
  }
  float* part(int rank) const { return values_ + offsets_[static_cast<std::size_t>(rank)]; }
  std::int64_t count(int rank) const { return part(rank + 1) - part(rank); }

  MpiGroup group_;
  float* values_;
  std::vector<std::int64_t> offsets_;
  OrderedReduction reduction_;
  Requests results_;
  bool exchanging_ = false;
};

/// A block from each rank to each rank.
class AllToAll final : public Pending {
 public:
  AllToAll(const MpiGroup& group, int tag, const std::byte* from, std::byte* to, const ExchangedBlocks& blocks)
      : Pending(group.place, "all-to-all"), requests_(group, tag, "all-to-all") {
    for (int i = 0; i < group.size; ++i) {
      const auto receiver = static_cast<std::size_t>((group.rank + i) % group.size);
      const auto sender = static_cast<std::size_t>((group.rank + group.size - i) % group.size);
      const std::byte* const sent = from + blocks.sent[receiver];
      const std::int64_t bytes = blocks.sent[receiver + 1] - blocks.sent[receiver];
      std::byte* const received = to + blocks.received[sender];
      if (i > 0) {
        requests_.receive(received, blocks.received[sender + 1] - blocks.received[sender], group.longest,
                          static_cast<int>(sender));
        requests_.send(sent, bytes, group.longest, static_cast<int>(receiver));
      } else if (bytes > 0) {
        std::memcpy(received, sent, static_cast<std::size_t>(bytes));
      }
    }
  }

 private:
  void complete() override { requests_.wait(); }
  bool progress() override { return requests_.test(); }
  Requests requests_;
};

/// This rank's part of a message: to send it or to receive it.
class Message final : public Pending {
 public:
  /// start(requests) starts the part.
  template <class Start>
  Message(const MpiGroup& group, int from, int to, Start&& start)
      : Pending({group.place.progress, group.place.progress->message_group(group.place.group, from, to).first},
                "message"),
        requests_(group, kMessageTag, "message") {
    start(requests_);
  }

 private:
  void complete() override { requests_.wait(); }
  bool progress() override { return requests_.test(); }
  Requests requests_;
};

}  // namespace

Request mpi_all_gather(const MpiGroup& group, const GatheredTensor& tensor, const std::vector<std::int64_t>& offsets) {
  return Request(std::make_unique<AllGather>(group, tensor.mine, tensor.all, tensor.bytes_of, offsets));
}

Request mpi_reduce_scatter(const MpiGroup& group, int tag, const ScatteredTensor& tensor,
                           const std::vector<std::int64_t>& offsets) {
  return Request(std::make_unique<ReduceScatter>(group, tag, tensor.full, tensor.mine, offsets));
}

Request mpi_all_reduce(const MpiGroup& group, int tag, std::span<float> values, Reduce op) {
  if (op == Reduce::amax) clear_signs(values);
  return Request(std::make_unique<AllReduce>(group, tag, values, op));
}

Request mpi_all_to_all(const MpiGroup& group, int tag, const std::byte* from, std::byte* to,
                       const ExchangedBlocks& blocks) {
  return Request(std::make_unique<AllToAll>(group, tag, from, to, blocks));
}

Request mpi_send(const MpiGroup& group, const SentMessage& m) {
  return Request(std::make_unique<Message>(group, group.rank, m.to,
                                           [&](Requests& r) { r.send(m.from, m.bytes, group.longest, m.to); }));
}

Request mpi_receive(const MpiGroup& group, const ReceivedMessage& m) {
  return Request(std::make_unique<Message>(group, m.from, group.rank,
                                           [&](Requests& r) { r.receive(m.to, m.bytes, group.longest, m.from); }));
}

}  // namespace fp8::comm
