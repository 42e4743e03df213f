// A stand-in for NCCL: its functions between processes of this machine, on streams of the stand-in for the runtime.
// There is room for one kernel at a time: the operations of all communicators run one after the other, in the order of
// the program if NCCL_LAUNCH_ORDER_IMPLICIT is 1, else in any order. Ranks that start them in different orders wait for
// each other for ever, as they may on a GPU. Calls that do not match are errors, where NCCL waits or writes nonsense.
// FP8_NCCL_VERSION=22500 makes it an older one. FP8_NCCL_DELAY=<number> lets each operation begin up to 10 ms after its
// turn, at random by this seed and the rank.
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "ccl_exchange.h"
#include "runtime.h"

namespace {

using fp8::ccl::Call;
using fp8::ccl::Group;
using fp8::ccl::Kind;

constexpr std::chrono::seconds kPatience(60);

std::string& last_error() {
  static std::string text;
  return text;
}
ncclResult_t refuse(const std::string& why) {
  last_error() = why;
  return ncclInvalidArgument;
}

// Who may run.
class Turns {
 public:
  static Turns& get() {
    static Turns turns;
    return turns;
  }
  std::uint64_t take() {
    const std::lock_guard lock(mutex_);
    return taken_++;
  }
  // Whether the holder of this number runs.
  bool begin(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    if (running_ == number) return true;
    if (running_ != kNone || (in_order() && number != ended_)) return false;
    running_ = number;
    return true;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    running_ = kNone;
    ++ended_;
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  static bool in_order() {
    const char* const set = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    return set != nullptr && std::string(set) == "1";
  }
  std::mutex mutex_;
  std::uint64_t taken_ = 0, ended_ = 0, running_ = kNone;
};

// How late the next operation begins.
class Delays {
 public:
  static std::chrono::microseconds next() {
    static Delays delays;
    return std::chrono::microseconds(delays.seed_ == 0 ? 0 : delays.random_() % 10000);
  }

 private:
  const int seed_ = std::getenv("FP8_NCCL_DELAY") == nullptr ? 0 : std::atoi(std::getenv("FP8_NCCL_DELAY"));
  std::mt19937 random_{static_cast<unsigned>(seed_ * 64 + fp8::runtime::rank())};
};

// An operation of the ranks: it begins in its turn, after a delay.
class Launched {
 public:
  explicit Launched(std::shared_ptr<Group> group) : group_(std::move(group)) {}
  // Goes on; whether it is over.
  bool advance() {
    if (!Turns::get().begin(number_)) return false;
    if (!begin_) begin_ = std::chrono::steady_clock::now() + Delays::next();
    if (std::chrono::steady_clock::now() < *begin_) return false;
    if (!group_->comm().aborted && !group_->advance()) return false;
    Turns::get().end();
    return true;
  }

 private:
  std::shared_ptr<Group> group_;
  std::uint64_t number_ = Turns::get().take();
  std::optional<std::chrono::steady_clock::time_point> begin_;
};

// The group that this thread has begun.
struct Begun {
  struct Part {
    ncclComm_t comm;
    cudaStream_t stream;
    std::shared_ptr<Group> group;
  };
  int depth = 0;
  std::vector<Part> parts;
};
thread_local Begun begun;

void launch_all() {
  for (const Begun::Part& part : begun.parts) {
    fp8::runtime::launch(part.stream, "NCCL " + part.group->name(),
                         [launched = Launched(part.group)]() mutable { return launched.advance(); });
  }
  begun.parts.clear();
}

ncclResult_t enqueue(const Call& call, const void* from, std::uint64_t from_count, void* to, std::uint64_t to_count,
                     ncclComm_t comm, cudaStream_t stream) {
  const std::size_t size = fp8::ccl::size_of(call.type);
  if (size == 0) return refuse("the stand-in lacks a type");
  if (call.root < 0 || call.root >= comm->size) return refuse("there is no such rank");
  if (call.op != ncclSum && call.op != ncclMax && call.op != ncclMin) return refuse("the stand-in lacks an operation");
  if (from_count > 0 && !fp8::runtime::on_device(from, from_count * size)) return refuse("operands are not on the GPU");
  if (to_count > 0 && !fp8::runtime::on_device(to, to_count * size)) return refuse("the result is not on the GPU");
  ++begun.depth;
  Begun::Part* part = nullptr;
  for (Begun::Part& p : begun.parts) {
    if (p.comm == comm && p.stream == stream) part = &p;
  }
  if (part == nullptr) part = &begun.parts.emplace_back(Begun::Part{comm, stream, std::make_shared<Group>(*comm)});
  part->group->add(call, from, to);
  return ncclGroupEnd();
}

// Publishes a text of this rank, and waits for those of all ranks.
std::vector<std::string> meet(const ncclComm& comm, const std::string& name, const std::string& text) {
  const auto path = [&](int rank) { return comm.folder + "/" + name + "." + std::to_string(rank); };
  fp8::ccl::publish(path(comm.rank), text);
  std::vector<std::string> all(static_cast<std::size_t>(comm.size));
  const auto begin = std::chrono::steady_clock::now();
  for (int r = 0; r < comm.size; ++r) {
    while (!fp8::ccl::read(path(r), all[static_cast<std::size_t>(r)])) {
      if (std::chrono::steady_clock::now() - begin > kPatience) throw std::runtime_error("a rank is missing");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return all;
}

ncclResult_t join(ncclComm_t* to, const std::string& folder, int rank, int size) {
  auto made = std::make_unique<ncclComm>();
  made->folder = folder;
  made->rank = rank;
  made->size = size;
  std::filesystem::create_directories(folder);
  for (const std::string& there : meet(*made, "joined", std::to_string(size))) {
    if (there != std::to_string(size)) return refuse("ranks disagree on their number");
  }
  *to = made.release();
  return ncclSuccess;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const char* const text = std::getenv("FP8_NCCL_VERSION");
  *version = text == nullptr ? 22809 : std::atoi(text);
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclInvalidArgument ? "invalid argument" : "internal error";
}
const char* ncclGetLastError(ncclComm_t) { return last_error().c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::string name = std::filesystem::temp_directory_path() / "nccl.XXXXXX";
  if (mkdtemp(name.data()) == nullptr || name.size() >= sizeof id->internal) return refuse("no folder for files");
  *id = {};
  std::memcpy(id->internal, name.data(), name.size());
  return ncclSuccess;
}
ncclResult_t ncclCommInitRank(ncclComm_t* to, int size, ncclUniqueId id, int rank) {
  return join(to, id.internal, rank, size);
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* to, ncclConfig_t*) {
  const std::string name = "split" + std::to_string(comm->splits++);
  const auto all = meet(*comm, name, std::to_string(color) + " " + std::to_string(key));
  *to = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  std::vector<std::pair<int, int>> members;  // key and rank
  for (int r = 0; r < comm->size; ++r) {
    const std::string& there = all[static_cast<std::size_t>(r)];
    if (std::stoi(there) == color) members.emplace_back(std::stoi(there.substr(there.find(' '))), r);
  }
  std::sort(members.begin(), members.end());
  int rank = 0;
  while (members[static_cast<std::size_t>(rank)].second != comm->rank) ++rank;
  return join(to, comm->folder + "." + name + "." + std::to_string(color), rank, static_cast<int>(members.size()));
}
// The last rank removes the files.
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::unique_ptr<ncclComm> owned(comm);
  fp8::ccl::publish(comm->folder + "/left." + std::to_string(comm->rank), "");
  for (int r = 0; r < comm->size; ++r) {
    if (!std::filesystem::exists(comm->folder + "/left." + std::to_string(r))) return ncclSuccess;
  }
  std::error_code ignored;
  std::filesystem::remove_all(comm->folder, ignored);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  if (!fp8::runtime::has_device()) return ncclUnhandledCudaError;
  *error = comm->failed ? ncclInternalError : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++begun.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (begun.depth == 0) return refuse("no group has begun");
  if (--begun.depth == 0) launch_all();
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return enqueue({Kind::all_reduce, type, op, count, 0}, from, count, to, count, comm, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  const std::uint64_t all = count * static_cast<std::uint64_t>(comm->size);
  return enqueue({Kind::all_gather, type, ncclSum, count, 0}, from, count, to, all, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const std::uint64_t all = count * static_cast<std::uint64_t>(comm->size);
  return enqueue({Kind::reduce_scatter, type, op, count, 0}, from, all, to, count, comm, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  const std::uint64_t mine = comm->rank == root ? count : 0;
  return enqueue({Kind::broadcast, type, ncclSum, count, root}, from, mine, to, count, comm, stream);
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  const std::uint64_t mine = comm->rank == root ? count : 0;
  return enqueue({Kind::reduce, type, op, count, root}, from, count, to, mine, comm, stream);
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return enqueue({Kind::send, type, ncclSum, count, peer}, from, count, nullptr, 0, comm, stream);
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return enqueue({Kind::receive, type, ncclSum, count, peer}, nullptr, 0, to, count, comm, stream);
}
}
