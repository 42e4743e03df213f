/// What the stand-in for NCCL does: collectives and messages of the ranks of a communicator, which are files in a
/// folder of it. A rank publishes its operands when the operation starts on its stream, and the operation ends when
/// those of all ranks have arrived.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

/// A communicator.
struct ncclComm {
  std::string folder;                           ///< the same on all ranks
  int rank = 0, size = 1;                       ///< of this communicator
  std::uint64_t splits = 0;                     ///< calls of ncclCommSplit() so far
  std::uint64_t collectives = 0;                ///< started so far
  std::map<int, std::uint64_t> sent, received;  ///< messages so far, by the other rank
  std::vector<std::string> published;           ///< files of the last collectives of this rank
  std::atomic<bool> aborted = false;            ///< by ncclCommAbort()
  std::atomic<bool> failed = false;             ///< an operation of the ranks did not match
};

namespace fp8::ccl {

/// The kinds of operations.
enum class Kind : std::uint8_t { all_reduce, all_gather, reduce_scatter, broadcast, reduce, send, receive };

/// An operation, and the arguments that must be the same on all ranks.
struct Call {
  Kind kind;
  ncclDataType_t type;
  ncclRedOp_t op;
  std::uint64_t count;  ///< elements of the call
  int root;             ///< or the other rank of a message
  auto operator<=>(const Call&) const = default;
};

/// The operations of a group on one stream.
class Group {
 public:
  explicit Group(ncclComm& comm) : comm_(comm) {}
  /// Adds an operation.
  void add(const Call& call, const void* from, void* to) { items_.push_back({call, from, to, {}, {}, false}); }
  /// Publishes the operands on the first call; returns whether everything has ended. Throws if the calls of the ranks
  /// do not match.
  bool advance();
  ncclComm& comm() { return comm_; }
  /// The first operation.
  std::string name() const;

 private:
  struct Item {
    Call call;
    const void* from;
    void* to;
    std::string file;                 // of this rank
    std::vector<std::string> others;  // of all ranks, or of the sender
    bool over;
  };
  void start();
  bool end(Item& item);
  void finish(const Item& item, const std::vector<std::string>& contents);

  ncclComm& comm_;
  std::vector<Item> items_;
  bool started_ = false;
};

/// Bytes of an element.
std::size_t size_of(ncclDataType_t type);

/// Creates a file that other ranks see complete or not at all.
void publish(const std::string& path, const std::string& content);

/// Reads a file; returns whether it exists.
bool read(const std::string& path, std::string& content);

}  // namespace fp8::ccl
