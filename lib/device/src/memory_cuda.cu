// Device memory, streams and copies with the CUDA runtime, which is linked statically: it loads the driver on the first
// call, and returns an error without one.
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "cuda_memory.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/device/cuda.h"
#include "fp8/device/runtime.h"
#include "staging.h"

namespace fp8::device {

void check_cuda(cudaError_t result, const char* call, const char* file, int line) {
  if (result == cudaSuccess) return;
  std::string where = file;
  if (line > 0) where += ":" + std::to_string(line);
  throw Error(std::string("CUDA: ") + call + ": " + cudaGetErrorString(result) + " (" + where + ")");
}

Event::Event() { FP8_CUDA(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming)); }
Event::~Event() { (void)cudaEventDestroy(handle_); }
void Event::record(cudaStream_t stream) const { FP8_CUDA(cudaEventRecord(handle_, stream)); }
void Event::make_wait(cudaStream_t stream) const { FP8_CUDA(cudaStreamWaitEvent(stream, handle_)); }
void Event::wait() const { FP8_CUDA(cudaEventSynchronize(handle_)); }
bool Event::done() const {
  const cudaError_t result = cudaEventQuery(handle_);
  if (result != cudaErrorNotReady) FP8_CUDA(result);
  return result == cudaSuccess;
}

namespace cuda {
namespace {

constexpr std::size_t kPinned = std::size_t{32} << 20;  // bytes of pinned staging memory

// Copies on a stream, with one event per piece of pinned memory.
class StreamMover final : public Mover {
 public:
  explicit StreamMover(cudaStream_t stream) : stream_(stream) {}
  void begin(void* to, const void* from, std::size_t bytes, bool upload) override {
    FP8_CUDA(cudaMemcpyAsync(to, from, bytes, upload ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream_));
  }
  void note(std::size_t mark) override { events_.at(mark).record(stream_); }
  void wait(std::size_t mark) override { events_.at(mark).wait(); }

 private:
  cudaStream_t stream_;
  std::array<Event, Staging::kPieces> events_;
};

// Pinned memory and its Staging, stored in Stream::kept.
class PinnedStaging {
 public:
  explicit PinnedStaging(cudaStream_t stream) : mover_(stream) {
    FP8_CUDA(cudaHostAlloc(&pinned_, kPinned, cudaHostAllocDefault));
    staging_.emplace(mover_, std::span(static_cast<std::byte*>(pinned_), kPinned));
  }
  PinnedStaging(const PinnedStaging&) = delete;
  PinnedStaging& operator=(const PinnedStaging&) = delete;
  ~PinnedStaging() { (void)cudaFreeHost(pinned_); }
  Staging& operator*() { return *staging_; }

 private:
  StreamMover mover_;
  void* pinned_ = nullptr;
  std::optional<Staging> staging_;
};

// The stream for downloads and their pinned memory, stored in Stream::kept.
class DownloadStream {
 public:
  DownloadStream() { FP8_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  DownloadStream(const DownloadStream&) = delete;
  DownloadStream& operator=(const DownloadStream&) = delete;
  ~DownloadStream() {
    (void)cudaStreamSynchronize(stream_);
    (void)cudaStreamDestroy(stream_);
    (void)cudaFreeHost(pinned_);
  }
  void start(cudaStream_t after, const void* from, std::size_t bytes) {
    if (busy_) throw Error("CUDA: a download starts before another has finished");
    if (bytes > pinned_bytes_) allocate(bytes);
    ready_.record(after);
    ready_.make_wait(stream_);
    FP8_CUDA(cudaMemcpyAsync(pinned_, from, bytes, cudaMemcpyDeviceToHost, stream_));
    done_.record(stream_);
    busy_ = true;
  }
  void finish(void* to, std::size_t bytes) {
    busy_ = false;
    done_.wait();
    std::memcpy(to, pinned_, bytes);
  }
  void abandon() noexcept {
    busy_ = false;
    (void)cudaStreamSynchronize(stream_);
  }

 private:
  void allocate(std::size_t bytes) {
    FP8_CUDA(cudaFreeHost(std::exchange(pinned_, nullptr)));
    pinned_bytes_ = 0;
    FP8_CUDA(cudaHostAlloc(&pinned_, bytes, cudaHostAllocDefault));
    pinned_bytes_ = bytes;
  }

  cudaStream_t stream_ = nullptr;
  Event ready_, done_;  // the source is complete, and the copy is
  void* pinned_ = nullptr;
  std::size_t pinned_bytes_ = 0;
  bool busy_ = false;
};

// The object of the stream with this name, which the first call makes.
template <class T, class... Arguments>
T& kept_of(Stream& stream, const char* name, Arguments... arguments) {
  std::shared_ptr<void>& kept = stream.kept[name];
  if (!kept) kept = std::make_shared<T>(arguments...);
  return *static_cast<T*>(kept.get());
}
DownloadStream& downloads_of(Stream& stream) { return kept_of<DownloadStream>(stream, "downloads"); }
Staging& staging_of(Stream& stream) { return *kept_of<PinnedStaging>(stream, "staging", stream.handle); }

}  // namespace

std::byte* allocate_memory(std::size_t bytes, const char* what) {
  void* data = nullptr;
  const cudaError_t result = cudaMalloc(&data, bytes);
  if (result == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // clears the error, which is reported below, for later calls
    std::size_t free = 0, total = 0;
    FP8_CUDA(cudaMemGetInfo(&free, &total));
    throw Error("out of memory: " + std::string(what) + " needs " + human_bytes(bytes) + " on the GPU, where " +
                human_bytes(free) + " of " + human_bytes(total) + " are free");
  }
  FP8_CUDA(result);
  // cudaMemset runs on the legacy stream, which other streams do not wait for; without the synchronization, work on
  // another stream could use the memory before it is zeroed.
  FP8_CUDA(cudaMemset(data, 0, bytes));
  FP8_CUDA(cudaStreamSynchronize(cudaStreamLegacy));
  return static_cast<std::byte*>(data);
}

void release_memory(std::byte* data) noexcept {
  (void)cudaFree(data);
}  // an error is ignored: at exit the driver may be unloaded already

int count(std::string& why) {
  int devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  (void)cudaGetLastError();
  if (result == cudaSuccess && devices > 0) return devices;
  why = result == cudaErrorInsufficientDriver
            ? "no NVIDIA driver, or a too old one: " + runtime_version() + " needs " + runtime_driver()
        : result == cudaErrorNoDevice || result == cudaSuccess ? "no CUDA device"
                                                               : cudaGetErrorString(result);
  return 0;
}

std::string identity(int index) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) {
    (void)cudaGetLastError();
    return {};
  }
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : properties.uuid.bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

int runtime() { return CUDART_VERSION; }

Stream* open(int index) {
  FP8_CUDA(cudaSetDevice(index));
  cudaDeviceProp properties{};
  FP8_CUDA(cudaGetDeviceProperties(&properties, index));
  auto stream = std::make_unique<Stream>();
  FP8_CUDA(cudaStreamCreateWithFlags(&stream->handle, cudaStreamNonBlocking));
  stream->index = index;
  stream->multiprocessors = properties.multiProcessorCount;
  stream->compute_capability = 10 * properties.major + properties.minor;
  return stream.release();
}

void close(Stream* stream) noexcept {
  (void)cudaStreamSynchronize(stream->handle);
  stream->kept.clear();  // the objects use the stream
  (void)cudaStreamDestroy(stream->handle);
  delete stream;
}

std::string describe(const Stream& stream) {
  cudaDeviceProp properties{};
  FP8_CUDA(cudaGetDeviceProperties(&properties, stream.index));
  return std::string(properties.name) + ", compute capability " + std::to_string(properties.major) + "." +
         std::to_string(properties.minor) + ", " + human_bytes(properties.totalGlobalMem);
}

int capability(const Stream& stream) { return stream.compute_capability; }

std::size_t memory(const Stream& stream) {
  cudaDeviceProp properties{};
  FP8_CUDA(cudaGetDeviceProperties(&properties, stream.index));
  return properties.totalGlobalMem;
}

void copy(Stream& stream, void* to, DeviceType to_device, const void* from, DeviceType from_device, std::size_t bytes) {
  if (to_device == DeviceType::host)
    staging_of(stream).download(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  else if (from_device == DeviceType::host)
    staging_of(stream).upload(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
  else
    FP8_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream.handle));
}

void start_download(Stream& stream, const void* from, std::size_t bytes) {
  downloads_of(stream).start(stream.handle, from, bytes);
}
void finish_download(Stream& stream, void* to, std::size_t bytes) { downloads_of(stream).finish(to, bytes); }
void abandon_download(Stream& stream) noexcept {
  if (const auto kept = stream.kept.find("downloads"); kept != stream.kept.end())
    static_cast<DownloadStream*>(kept->second.get())->abandon();
}

void wait(const Stream& stream) { FP8_CUDA(cudaStreamSynchronize(stream.handle)); }

}  // namespace cuda
}  // namespace fp8::device
