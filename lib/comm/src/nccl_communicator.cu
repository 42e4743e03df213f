// Collectives on device memory. All but reduce-scatters have one communicator of NCCL, reduce-scatters a second one,
// because NCCL runs the collectives of a communicator one after the other, also those of several streams: the gather of
// the next layer would wait for the gradients of the last one. Each communicator has a stream, behind what the
// context's stream was given when a collective starts; waiting makes the context's stream wait. Blocks may be uneven,
// which NCCL's gather and scatter do not know: then each block is a broadcast or a reduction of its own.
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "blocks.h"
#include "cuda.h"
#include "fp8/device/cuda.h"
#include "lane.h"
#include "mpi_communicator.h"
#include "nccl_library.h"
#include "of_device.h"

namespace fp8::comm::cuda {
namespace {

using device::DeviceType;

// The first version of NCCL that orders the kernels of several communicators. Without an order, two ranks could each
// run the kernel for which the other one has no room yet.
constexpr int kOrdersCommunicators = 22600;

// Sets a variable of NCCL's unless the user did. NCCL reads them when the first communicator is made.
void set_unless_set(const char* name, const char* value) {
  if (setenv(name, value, 0) != 0) throw Error(std::string("cannot set ") + name + ": out of memory");
}

// Without the sums of NVLink switches, whose order may differ from call to call (NVIDIA/nccl issue 1497). Kernels of
// several communicators start in the order of the program.
const Nccl& library() {
  set_unless_set("NCCL_NVLS_ENABLE", "0");
  set_unless_set("NCCL_LAUNCH_ORDER_IMPLICIT", "1");
  return Nccl::get();
}

// A stream of the current device whose kernels come before those of others.
struct PriorityStream {
  PriorityStream() {
    int least = 0, greatest = 0;
    FP8_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    FP8_CUDA(cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking, greatest));
  }
  PriorityStream(const PriorityStream&) = delete;
  PriorityStream& operator=(const PriorityStream&) = delete;
  ~PriorityStream() { (void)cudaStreamDestroy(handle); }
  cudaStream_t handle = nullptr;
};

// A communicator of NCCL with its stream.
class Connection {
 public:
  // Owns `comm`.
  Connection(const Nccl& nccl, ncclComm_t comm, const device::Context& ctx, const GroupProgress& place)
      : nccl_(nccl), comm_(comm), index_(ctx.stream->index) {
    // The watchdog of the host communicator watches these collectives too.
    lane_.emplace(device::stream_of(ctx), stream_.handle, place.progress, place.group,
                  watchdog::InFlightQueue::Device{[this] { check_state(); }, [this] { (void)nccl_.CommAbort(comm_); }});
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    // A destructor cannot report; collectives under way end first.
    lane_.reset();
    (void)cudaStreamSynchronize(stream_.handle);
    (void)nccl_.CommDestroy(comm_);
  }
  ncclComm_t comm() const { return comm_; }
  // Starts what body(stream) puts on the stream, as one group: a collective, or these messages.
  template <class Body>
  Request start(const char* name, Body&& body, std::span<const watchdog::InFlightQueue::Ends> messages = {}) {
    return lane_->start(
        name, [&](cudaStream_t stream) { in_group(nccl_, name, [&] { body(stream); }); }, messages);
  }

 private:
  void check_state() const {
    FP8_CUDA(cudaSetDevice(index_));  // the current device of the watchdog's thread is device 0
    ncclResult_t error = ncclSuccess;
    nccl_.check(nccl_.CommGetAsyncError(comm_, &error), "state");
    nccl_.check(error, "work");
  }

  const Nccl& nccl_;
  ncclComm_t comm_;
  int index_;
  PriorityStream stream_;
  std::optional<Lane<device::Event, cudaStream_t>> lane_;
};

class NcclCommunicator final : public OfDevice {
 public:
  NcclCommunicator(Communicator& host, const device::Context& ctx, bool reduce_scatters)
      : OfDevice(host, ctx), nccl_(library()) {
    ncclUniqueId id{};
    std::int64_t two = 0;
    agree(host_, [&] {
      two = reduce_scatters && orders_groups() ? 1 : 0;
      if (host_.rank() == 0) nccl_.check(nccl_.GetUniqueId(&id), "id");
    });
    host_.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
    host_.all_reduce(std::span(&two, 1), Reduce::min);
    const GroupProgress place = group_progress(host_);
    const auto [first, second] = join(id, place, two != 0);
    agree(host_, [&, first = first, second = second] {
      gathers_.emplace(nccl_, first, ctx_, place);
      if (second != nullptr) sums_.emplace(nccl_, second, ctx_, place);
    });
  }
  NcclCommunicator(std::unique_ptr<Communicator> host, const device::Context& ctx)
      : NcclCommunicator(*host, ctx, true) {
    owned_ = std::move(host);
  }

  void sum_here(std::span<double> values) override {
    if (values.empty()) return;
    const auto sum = [&](cudaStream_t stream) { reduce(values.data(), values.size(), ncclFloat64, ncclSum, stream); };
    gathers_->start("all-reduce", sum).wait();
  }

  Request start_all_gathers(std::span<const GatheredTensor> tensors) override {
    std::vector<std::vector<std::int64_t>> offsets;
    for (const GatheredTensor& t : tensors) offsets.push_back(offsets_of(t.bytes_of, size(), "all-gather"));
    if (is_empty(offsets)) return {};
    return gathers_->start("all-gather", [&](cudaStream_t stream) {
      for (std::size_t i = 0; i < tensors.size(); ++i) gather(tensors[i], offsets[i], stream);
    });
  }

  Request start_reduce_scatters(std::span<const ScatteredTensor> tensors) override {
    std::vector<std::vector<std::int64_t>> offsets;
    for (const ScatteredTensor& t : tensors) offsets.push_back(offsets_of(t.count_of, size(), "reduce-scatter"));
    if (is_empty(offsets)) return {};
    return sums().start("reduce-scatter", [&](cudaStream_t stream) {
      for (std::size_t i = 0; i < tensors.size(); ++i) scatter(tensors[i], offsets[i], stream);
    });
  }

  Request start_all_reduces(std::span<const std::span<float>> tensors, Reduce op) override {
    if (std::all_of(tensors.begin(), tensors.end(), [](const auto& t) { return t.empty(); })) return {};
    // Magnitudes order as their bits do, and NaN lies above infinity.
    const bool amax = op == Reduce::amax;
    for (const std::span<float> t : tensors)
      if (amax && !t.empty()) clear_signs(ctx_, t);
    return gathers_->start("all-reduce", [&](cudaStream_t stream) {
      for (const std::span<float> t : tensors)
        if (!t.empty()) reduce(t.data(), t.size(), amax ? ncclInt32 : ncclFloat32, amax ? ncclMax : op_of(op), stream);
    });
  }

  // NCCL also copies the own block, as a message of this rank to itself. Without blocks of this rank the group is
  // empty, and the watchdog counts it as on the other ranks.
  Request start_all_to_all(const std::byte* from, std::span<const std::int64_t> bytes_to, std::byte* to,
                           std::span<const std::int64_t> bytes_from) override {
    const ExchangedBlocks blocks = exchanged_blocks(bytes_to, bytes_from, rank(), size());
    return gathers_->start("all-to-all", [&](cudaStream_t stream) {
      for (int r = 0; r < size(); ++r) {
        const auto i = static_cast<std::size_t>(r);
        send(from + blocks.sent[i], bytes_to[i], r, stream, "all-to-all");
        receive(to + blocks.received[i], bytes_from[i], r, stream, "all-to-all");
      }
    });
  }
  Request start_messages(std::span<const SentMessage> sent, std::span<const ReceivedMessage> received) override {
    check_messages(sent, received, rank(), size());
    std::vector<watchdog::InFlightQueue::Ends> ends;  // of those that are not empty
    for (const SentMessage& m : sent)
      if (m.bytes > 0) ends.push_back({rank(), m.to});
    for (const ReceivedMessage& m : received)
      if (m.bytes > 0) ends.push_back({m.from, rank()});
    if (ends.empty()) return {};
    return gathers_->start(
        "message",
        [&](cudaStream_t stream) {
          for (const SentMessage& m : sent) send(m.from, m.bytes, m.to, stream, "message");
          for (const ReceivedMessage& m : received) receive(m.to, m.bytes, m.from, stream, "message");
        },
        ends);
  }

  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    return std::make_unique<NcclCommunicator>(host_.split(color, key, name), ctx_);
  }

 private:
  // The communicators for gathers and, if there are two, for sums. Every rank waits for the others, as the watchdog
  // knows. An error ends the job with this rank's name: the others could not agree on it. They share no resources of
  // NCCL's (splitShare), because these would put their kernels in one order again.
  std::pair<ncclComm_t, ncclComm_t> join(const ncclUniqueId& id, const GroupProgress& place, bool two) {
    std::optional<watchdog::ScopedWait> waiting;
    if (place.progress != nullptr)
      waiting.emplace(*place.progress, place.group, place.progress->reach(place.group), "NCCL start");
    ncclComm_t first = nullptr, second = nullptr;
    nccl_.check(nccl_.CommInitRank(&first, size(), id, rank()), "start");
    if (two) nccl_.check(nccl_.CommSplit(first, 0, rank(), &second, nullptr), "start");
    return {first, second};
  }
  Connection& sums() { return sums_ ? *sums_ : *gathers_; }

  void reduce(void* values, std::size_t count, ncclDataType_t type, ncclRedOp_t op, cudaStream_t stream) {
    nccl_.check(nccl_.AllReduce(values, values, count, type, op, gathers_->comm(), stream), "all-reduce");
  }
  void send(const std::byte* from, std::int64_t bytes, int to, cudaStream_t stream, const char* what) {
    if (bytes > 0)
      nccl_.check(nccl_.Send(from, static_cast<std::size_t>(bytes), ncclUint8, to, gathers_->comm(), stream), what);
  }
  void receive(std::byte* to, std::int64_t bytes, int from, cudaStream_t stream, const char* what) {
    if (bytes > 0)
      nccl_.check(nccl_.Recv(to, static_cast<std::size_t>(bytes), ncclUint8, from, gathers_->comm(), stream), what);
  }
  void gather(const GatheredTensor& t, const std::vector<std::int64_t>& offsets, cudaStream_t stream) {
    const ncclComm_t comm = gathers_->comm();
    if (even(t.bytes_of)) {
      nccl_.check(nccl_.AllGather(t.mine, t.all, block(t.bytes_of, 0), ncclUint8, comm, stream), "all-gather");
      return;
    }
    for (int r = 0; r < size(); ++r) {
      std::byte* const to = t.all + offsets[static_cast<std::size_t>(r)];
      nccl_.check(nccl_.Broadcast(r == rank() ? t.mine : to, to, block(t.bytes_of, r), ncclUint8, r, comm, stream),
                  "all-gather");
    }
  }
  void scatter(const ScatteredTensor& t, const std::vector<std::int64_t>& offsets, cudaStream_t stream) {
    const ncclComm_t comm = sums().comm();
    if (even(t.count_of)) {
      nccl_.check(nccl_.ReduceScatter(t.full, t.mine, block(t.count_of, 0), ncclFloat32, ncclSum, comm, stream),
                  "reduce-scatter");
      return;
    }
    for (int r = 0; r < size(); ++r) {
      const float* const from = t.full + offsets[static_cast<std::size_t>(r)];
      nccl_.check(nccl_.Reduce(from, r == rank() ? t.mine : nullptr, block(t.count_of, r), ncclFloat32, ncclSum, r,
                               comm, stream),
                  "reduce-scatter");
    }
  }
  static bool is_empty(const std::vector<std::vector<std::int64_t>>& offsets) {
    return std::all_of(offsets.begin(), offsets.end(), [](const auto& o) { return o.back() == 0; });
  }
  static ncclRedOp_t op_of(Reduce op) { return op == Reduce::sum ? ncclSum : op == Reduce::max ? ncclMax : ncclMin; }
  static bool even(const std::vector<std::int64_t>& sizes) {
    return std::all_of(sizes.begin(), sizes.end(), [&](std::int64_t s) { return s == sizes.front(); });
  }
  static std::size_t block(const std::vector<std::int64_t>& sizes, int r) {
    return static_cast<std::size_t>(sizes[static_cast<std::size_t>(r)]);
  }

  std::unique_ptr<Communicator> owned_;
  const Nccl& nccl_;
  std::optional<Connection> gathers_, sums_;  // without sums_, gathers_ sums too
};

}  // namespace

std::unique_ptr<Communicator> nccl(Communicator& host, const device::Context& ctx, bool reduce_scatters) {
  return std::make_unique<NcclCommunicator>(host, ctx, reduce_scatters);
}

bool orders_groups() {
  int version = 0;
  library().check(library().GetVersion(&version), "version");
  return version >= kOrdersCommunicators && std::strcmp(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "0") != 0;
}

std::string version() {
  int v = 0;
  const Nccl& library = Nccl::get();
  library.check(library.GetVersion(&v), "version");
  return "NCCL " + std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

}  // namespace fp8::comm::cuda
