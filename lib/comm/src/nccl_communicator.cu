// Collectives on device memory. They run on a stream of their own, behind what the context's stream was given when they
// start; waiting makes the context's stream wait. Blocks may be uneven, which NCCL's gather and scatter do not know:
// then each block is a broadcast or a reduction of its own, all of them one group.
#include <cstdlib>
#include <memory>
#include <optional>

#include "blocks.h"
#include "cuda.h"
#include "fp8/device/cuda.h"
#include "fp8/device/magnitudes.h"
#include "fp8/watchdog/in_flight_queue.h"
#include "mpi_communicator.h"
#include "nccl_library.h"
#include "of_device.h"

namespace fp8::comm::cuda {
namespace {

using device::DeviceType;
using device::Event;

// A collective that the device was given.
class Given final : public Request::Operation {
 public:
  Given(std::shared_ptr<Event> done, cudaStream_t stream) : done_(std::move(done)), stream_(stream) {}
  void wait() override { done_->make_wait(stream_); }
  bool test() override {
    if (!done_->done()) return false;
    wait();
    return true;
  }

 private:
  std::shared_ptr<Event> done_;
  cudaStream_t stream_;
};

class NcclCommunicator final : public OfDevice {
 public:
  NcclCommunicator(Communicator& host, const device::Context& ctx) : OfDevice(host, ctx), nccl_(library()) {
    int version = 0;
    nccl_.check(nccl_.GetVersion(&version), "version");
    ncclUniqueId id{};
    agree(host_, [&] {
      if (host_.rank() == 0) nccl_.check(nccl_.GetUniqueId(&id), "id");
    });
    host_.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
    const GroupProgress place = group_progress(host_);
    join(id, place);
    agree(host_, [&] {
      int least = 0, greatest = 0;
      FP8_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
      FP8_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
    });
    // The watchdog of the host communicator watches these collectives too.
    if (place.progress != nullptr)
      queue_.emplace(
          place.progress, place.group,
          watchdog::InFlightQueue::Device{[this] { check_state(); }, [this] { (void)nccl_.CommAbort(comm_); }});
  }
  NcclCommunicator(std::unique_ptr<Communicator> host, const device::Context& ctx) : NcclCommunicator(*host, ctx) {
    owned_ = std::move(host);
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;
  ~NcclCommunicator() override {
    // A destructor cannot report; what is under way ends first.
    queue_.reset();
    (void)cudaStreamSynchronize(stream_);
    (void)nccl_.CommDestroy(comm_);
    (void)cudaStreamDestroy(stream_);
  }

  void all_reduce(std::span<float> values, Reduce op) override {
    if (values.empty()) return;
    const bool amax = op == Reduce::amax;
    if (amax) device::clear_signs(device::CudaLauncher(ctx_), values.data(), std::ssize(values));
    start("all-reduce", [&](cudaStream_t stream) {
      // Magnitudes order as their bits do, and NaN lies above infinity.
      nccl_.check(nccl_.AllReduce(values.data(), values.data(), values.size(), amax ? ncclInt32 : ncclFloat32,
                                  amax ? ncclMax : op_of(op), comm_, stream),
                  "all-reduce");
    }).wait();
  }
  using OfDevice::all_reduce;
  void sum_here(std::span<double> values) override {
    if (values.empty()) return;
    start("all-reduce", [&](cudaStream_t stream) {
      nccl_.check(nccl_.AllReduce(values.data(), values.data(), values.size(), ncclFloat64, ncclSum, comm_, stream),
                  "all-reduce");
    }).wait();
  }

  Request start_all_gather(const std::byte* mine, std::byte* all, std::span<const std::int64_t> bytes_of) override {
    const std::vector<std::int64_t> offsets = offsets_of(bytes_of, size(), "all-gather");
    if (offsets.back() == 0) return {};
    return start("all-gather", [&](cudaStream_t stream) {
      if (even(bytes_of)) {
        nccl_.check(nccl_.AllGather(mine, all, block(bytes_of, 0), ncclUint8, comm_, stream), "all-gather");
        return;
      }
      in_group("all-gather", [&](int r) {
        std::byte* const to = all + offsets[static_cast<std::size_t>(r)];
        return nccl_.Broadcast(r == rank() ? mine : to, to, block(bytes_of, r), ncclUint8, r, comm_, stream);
      });
    });
  }

  Request start_reduce_scatter(float* full, float* mine, std::span<const std::int64_t> count_of) override {
    const std::vector<std::int64_t> offsets = offsets_of(count_of, size(), "reduce-scatter");
    if (offsets.back() == 0) return {};
    return start("reduce-scatter", [&](cudaStream_t stream) {
      if (even(count_of)) {
        nccl_.check(nccl_.ReduceScatter(full, mine, block(count_of, 0), ncclFloat32, ncclSum, comm_, stream),
                    "reduce-scatter");
        return;
      }
      in_group("reduce-scatter", [&](int r) {
        const float* const from = full + offsets[static_cast<std::size_t>(r)];
        return nccl_.Reduce(from, r == rank() ? mine : nullptr, block(count_of, r), ncclFloat32, ncclSum, r, comm_,
                            stream);
      });
    });
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<NcclCommunicator>(host_.split(color, key), ctx_);
  }

 private:
  // NCCL without the sums of NVLink switches, whose order may differ from call to call (NVIDIA/nccl issue 1497), unless
  // the user chose. NCCL reads the variable when the first communicator is made.
  static const Nccl& library() {
    if (setenv("NCCL_NVLS_ENABLE", "0", 0) != 0) throw Error("cannot set NCCL_NVLS_ENABLE: out of memory");
    return Nccl::get();
  }
  // Makes comm_, for which every rank waits for the others, as the watchdog knows. An error ends the job with this
  // rank's name: the others could not agree on it.
  void join(const ncclUniqueId& id, const GroupProgress& place) {
    std::optional<watchdog::ScopedWait> waiting;
    if (place.progress != nullptr)
      waiting.emplace(*place.progress, place.group, place.progress->reach(place.group), "NCCL start");
    nccl_.check(nccl_.CommInitRank(&comm_, host_.size(), id, host_.rank()), "start");
  }
  // Gives the device a collective that `body` puts on a stream.
  template <class Body>
  Request start(const char* name, Body&& body) {
    const cudaStream_t compute = device::stream_of(ctx_);
    auto ready = std::make_shared<Event>(), done = std::make_shared<Event>();
    ready->record(compute);
    ready->make_wait(stream_);
    body(stream_);
    done->record(stream_);
    if (queue_)
      queue_->add(
          name, [ready] { return ready->done(); }, [done] { return done->done(); });
    return Request(std::make_unique<Given>(std::move(done), compute));
  }
  template <class Each>
  void in_group(const char* name, Each&& each) {
    nccl_.check(nccl_.GroupStart(), name);
    ncclResult_t result = ncclSuccess;
    for (int r = 0; r < size() && result == ncclSuccess; ++r) result = each(r);
    const ncclResult_t ended = nccl_.GroupEnd();
    nccl_.check(result, name);
    nccl_.check(ended, name);
  }
  void check_state() const {
    FP8_CUDA(cudaSetDevice(ctx_.stream->index));  // the current device of the watchdog's thread is device 0
    ncclResult_t error = ncclSuccess;
    nccl_.check(nccl_.CommGetAsyncError(comm_, &error), "state");
    nccl_.check(error, "work");
  }
  static ncclRedOp_t op_of(Reduce op) { return op == Reduce::sum ? ncclSum : op == Reduce::max ? ncclMax : ncclMin; }
  static bool even(std::span<const std::int64_t> sizes) {
    return std::all_of(sizes.begin(), sizes.end(), [&](std::int64_t s) { return s == sizes.front(); });
  }
  static std::size_t block(std::span<const std::int64_t> sizes, int r) {
    return static_cast<std::size_t>(sizes[static_cast<std::size_t>(r)]);
  }

  std::unique_ptr<Communicator> owned_;
  const Nccl& nccl_;
  ncclComm_t comm_ = nullptr;
  cudaStream_t stream_ = nullptr;
  std::optional<watchdog::InFlightQueue> queue_;  // none without MPI: there are no other ranks
};

}  // namespace

std::unique_ptr<Communicator> nccl(Communicator& host, const device::Context& ctx) {
  return std::make_unique<NcclCommunicator>(host, ctx);
}

std::string version() {
  int v = 0;
  const Nccl& library = Nccl::get();
  library.check(library.GetVersion(&v), "version");
  return "NCCL " + std::to_string(v / 10000) + "." + std::to_string(v / 100 % 100) + "." + std::to_string(v % 100);
}

}  // namespace fp8::comm::cuda
