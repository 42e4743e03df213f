// The queues of the stand-in and the functions of the CUDA runtime on them.
#include "runtime.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

// The types behind cudaEvent_t and cudaStream_t.
struct CUevent_st {
  std::shared_ptr<bool> last;  // whether the last record has been reached; null before the first one
  int stream = 0;              // stream of the last record
};
struct CUstream_st {
  struct Named {
    std::string name;
    fp8::runtime::Operation run;
  };
  std::deque<Named> operations;  // the first one may be running
  int number = 0;                // in the order of creation, from 1; 0 is the legacy stream
};

namespace fp8::runtime {
namespace {

constexpr auto kSilence =
    std::chrono::milliseconds(30);  // of the host, after which the device works without being asked
constexpr auto kPause = std::chrono::microseconds(100);  // when no stream gets on
constexpr unsigned kSteps = 100;                         // after which streams change their order, on average
constexpr int kDevices = 8;

int number_of(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

// Bytes of memory of the GPU.
std::size_t memory() { return static_cast<std::size_t>(number_of("FP8_DEVICE_MIB", 80 << 10)) << 20; }

// Whether the thread has chosen a device. It has device 0 until then, which is not the one of most ranks.
thread_local bool chose_device = false;

enum class Order : std::uint8_t { first, last, random };

Order order_of(const std::string& text) {
  return text == "first" ? Order::first : text == "last" ? Order::last : Order::random;
}

class Device {
 public:
  static Device& get() {
    static Device* const device = new Device;  // never destroyed: other objects free memory at exit
    return *device;
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  cudaStream_t create() {
    auto made = std::make_unique<CUstream_st>();
    need_device("cudaStreamCreate");
    const std::lock_guard lock(mutex_);
    streams_.push_back(std::move(made));
    streams_.back()->number = ++created_;
    return streams_.back().get();
  }
  void destroy(cudaStream_t stream) {
    (void)wait_for([&] { return stream->operations.empty(); });
    const std::lock_guard lock(mutex_);
    std::erase_if(streams_, [&](const auto& s) { return s.get() == stream; });
  }
  void put(cudaStream_t stream, std::string name, Operation operation) {
    need_device(name);
    {
      const std::lock_guard lock(mutex_);
      if (trace_.is_open()) trace_ << queue_of(stream).number << " " << name << std::endl;
      queue_of(stream).operations.push_back({std::move(name), std::move(operation)});
      ++enqueued_;
    }
    changed_.notify_all();
  }

  // Lets the device work until `over` is true, or it has failed.
  template <class Over>
  cudaError_t wait_for(Over&& over) {
    need_device("a wait");
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    progressed_.wait(lock, [&] { return over() || failed_; });
    --waiting_;
    return failed_ ? cudaErrorLaunchFailure : cudaSuccess;
  }
  cudaError_t finish(cudaStream_t stream) {
    return wait_for([&] { return queue_of(stream).operations.empty(); });
  }
  cudaError_t finish_all() {
    return wait_for([&] {
      return std::all_of(streams_.begin(), streams_.end(), [](const auto& s) { return s->operations.empty(); });
    });
  }

  void record(cudaEvent_t event, cudaStream_t stream) {
    auto reached = std::make_shared<bool>(false);
    {
      const std::lock_guard lock(mutex_);
      event->last = reached;
      event->stream = queue_of(stream).number;
    }
    put(stream, "record of an event", [this, reached] {
      const std::lock_guard lock(mutex_);
      return *reached = true;
    });
  }
  void make_wait(cudaStream_t stream, cudaEvent_t event) {
    std::shared_ptr<bool> reached;
    int other = 0;
    {
      const std::lock_guard lock(mutex_);
      reached = event->last;
      other = event->stream;
    }
    if (reached == nullptr) return;
    put(stream, "wait for " + std::to_string(other), [this, reached] {
      const std::lock_guard lock(mutex_);
      return *reached;
    });
  }
  cudaError_t query(cudaEvent_t event) {
    need_device("cudaEventQuery");
    {
      const std::lock_guard lock(mutex_);
      if (failed_) return cudaErrorLaunchFailure;
      if (event->last == nullptr || *event->last) return cudaSuccess;
      ++questions_;
    }
    changed_.notify_all();
    return cudaErrorNotReady;
  }
  cudaError_t wait(cudaEvent_t event) {
    return wait_for([event] { return event->last == nullptr || *event->last; });
  }

  void* allocate(std::size_t bytes) {
    need_device("cudaMalloc");
    auto* const data = static_cast<std::byte*>(::operator new (std::max<std::size_t>(bytes, 1), std::align_val_t{256}));
    std::memset(data, 0xFF, bytes);
    const std::lock_guard lock(mutex_);
    memory_[data] = bytes;
    return data;
  }
  bool release(void* data) {
    {
      const std::lock_guard lock(mutex_);
      if (memory_.erase(static_cast<std::byte*>(data)) == 0) return false;
    }
    ::operator delete (data, std::align_val_t{256});
    return true;
  }
  bool holds(const void* data, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto* const begin = static_cast<const std::byte*>(data);
    auto after = memory_.upper_bound(const_cast<std::byte*>(begin));
    if (after == memory_.begin()) return false;
    --after;
    return static_cast<std::size_t>(begin - after->first) + bytes <= after->second;
  }

 private:
  Device() {
    std::thread([this] { work(); }).detach();
  }

  CUstream_st& queue_of(cudaStream_t stream) { return stream == cudaStreamLegacy ? legacy_ : *stream; }

  // The thread of the device.
  void work() {
    std::unique_lock lock(mutex_);
    auto moved = std::chrono::steady_clock::now();
    for (;;) {
      if (!has_work() || failed_) {
        changed_.wait(lock);
        moved = std::chrono::steady_clock::now();
        continue;
      }
      if (!asked() && silent_at_ != enqueued_) {
        const std::uint64_t before = enqueued_;
        changed_.wait_for(lock, kSilence, [&] { return asked(); });
        if (!asked()) {
          if (enqueued_ == before) silent_at_ = before;
          continue;
        }
      }
      if (questions_ > 0) --questions_;
      if (step(lock)) {
        moved = std::chrono::steady_clock::now();
        progressed_.notify_all();
      } else if (std::chrono::steady_clock::now() - moved > patience_) {
        fail("no stream gets on: " + first_operations());
      } else {
        lock.unlock();
        std::this_thread::sleep_for(kPause);
        lock.lock();
      }
    }
  }
  // Whether the host waits for something, or has asked for it and not got an operation for the question.
  bool asked() const { return waiting_ > 0 || questions_ > 0; }
  bool has_work() {
    return !legacy_.operations.empty() ||
           std::any_of(streams_.begin(), streams_.end(), [](const auto& s) { return !s->operations.empty(); });
  }

  // Runs one operation, if one can run, of the streams in the order of the moment.
  bool step(std::unique_lock<std::mutex>& lock) {
    std::vector<CUstream_st*> all;
    for (const auto& s : streams_) all.push_back(s.get());
    all.push_back(&legacy_);
    if (order_ == Order::first) std::reverse(all.begin(), all.end());
    if (order_ == Order::random) {
      // The order stays for a while, so that one stream gets far ahead of the others.
      if (random_() % kSteps == 0) seed_ = random_();
      std::mt19937 once(seed_);
      std::shuffle(all.begin(), all.end(), once);
    }
    return std::any_of(all.begin(), all.end(), [&](CUstream_st* s) { return !s->operations.empty() && run(*s, lock); });
  }
  bool run(CUstream_st& stream, std::unique_lock<std::mutex>& lock) {
    // Others add to the end of the queue alone, and do not destroy a stream that has operations.
    const Operation& operation = stream.operations.front().run;
    bool over = false;
    lock.unlock();
    try {
      over = operation();
    } catch (const std::exception& e) {
      lock.lock();
      fail(e.what());
      return true;
    }
    lock.lock();
    if (over) stream.operations.pop_front();
    return over;
  }
  std::string first_operations() const {
    std::string text;
    for (const auto& s : streams_) {
      const auto& all = s->operations;
      text += (text.empty() ? "" : ", ") +
              (all.empty() ? "nothing" : all.front().name + " before " + std::to_string(all.size() - 1) + " more");
    }
    return text;
  }
  // Fails the device unless the calling thread has chosen it.
  void need_device(const std::string& call) {
    if (chose_device) return;
    const std::lock_guard lock(mutex_);
    fail(call + " in a thread that has not called cudaSetDevice");
  }
  void fail(const std::string& why) {
    std::cerr << "stand-in of a GPU: rank " << rank() << ": " << why << "\n";
    failed_ = true;
    progressed_.notify_all();
  }

  const std::string chosen_ = std::getenv("FP8_DEVICE_ORDER") == nullptr ? "1" : std::getenv("FP8_DEVICE_ORDER");
  const Order order_ = order_of(chosen_);
  const std::chrono::seconds patience_{number_of("FP8_DEVICE_PATIENCE", 60)};
  std::mt19937 random_{static_cast<unsigned>(std::atoi(chosen_.c_str()) * 64 + rank())};
  std::mt19937::result_type seed_ = random_();
  std::mutex mutex_;
  std::condition_variable changed_, progressed_;
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  CUstream_st legacy_;
  int created_ = 0;  // streams
  std::ofstream trace_{std::getenv("FP8_DEVICE_TRACE") == nullptr
                           ? std::string()
                           : std::getenv("FP8_DEVICE_TRACE") + ("." + std::to_string(rank()))};
  std::map<std::byte*, std::size_t> memory_;
  std::uint64_t enqueued_ = 0, silent_at_ = 0;  // operations so far; their number when the host became silent
  std::uint64_t questions_ = 0;
  int waiting_ = 0;
  bool failed_ = false;
};

}  // namespace

void launch(cudaStream_t stream, std::string name, Operation operation) {
  Device::get().put(stream, std::move(name), std::move(operation));
}
bool has_device() { return chose_device; }
bool on_device(const void* data, std::size_t bytes) { return Device::get().holds(data, bytes); }
int rank() { return number_of("OMPI_COMM_WORLD_RANK", 0); }

}  // namespace fp8::runtime

using fp8::runtime::Device;

extern "C" {

cudaError_t cudaGetLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess             ? "no error"
         : error == cudaErrorInvalidValue ? "invalid argument"
                                          : "unspecified launch failure";
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = fp8::runtime::kDevices;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  fp8::runtime::chose_device = true;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* to, int device) {
  const int capability = fp8::runtime::number_of("FP8_DEVICE_CAPABILITY", 90);
  *to = {};
  std::strcpy(to->name, "stand-in of a GPU");
  to->uuid.bytes[0] = static_cast<char>(device);
  to->major = capability / 10;
  to->minor = capability % 10;
  to->multiProcessorCount = 3;
  to->totalGlobalMem = fp8::runtime::memory();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* to, unsigned flags) {
  if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;  // others would wait for the legacy stream
  *to = Device::get().create();
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* to, unsigned flags, int) {
  return cudaStreamCreateWithFlags(to, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Device::get().destroy(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return Device::get().finish(stream); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Device::get().make_wait(stream, event);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* to, unsigned) {
  *to = std::make_unique<CUevent_st>().release();
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::unique_ptr<CUevent_st> owned(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Device::get().record(event, stream);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return Device::get().query(event); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return Device::get().wait(event); }

cudaError_t cudaMalloc(void** to, std::size_t bytes) {
  if (bytes > fp8::runtime::memory()) return cudaErrorMemoryAllocation;
  *to = Device::get().allocate(bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  const cudaError_t result = Device::get().finish_all();
  return Device::get().release(data) ? result : cudaErrorInvalidValue;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = fp8::runtime::memory();
  return cudaSuccess;
}
// Pinned memory is memory of the host.
cudaError_t cudaHostAlloc(void** to, std::size_t bytes, unsigned) {
  *to = ::operator new (bytes, std::align_val_t{256});
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  const cudaError_t result = Device::get().finish_all();
  ::operator delete (data, std::align_val_t{256});
  return result;
}
cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  if (!fp8::runtime::on_device(data, bytes)) return cudaErrorInvalidValue;
  fp8::runtime::launch(cudaStreamLegacy, "fill", [data, value, bytes] {
    std::memset(data, value, bytes);
    return true;
  });
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const bool reads_device = kind != cudaMemcpyHostToDevice, writes_device = kind != cudaMemcpyDeviceToHost;
  if (fp8::runtime::on_device(to, bytes) != writes_device || fp8::runtime::on_device(from, bytes) != reads_device)
    return cudaErrorInvalidValue;
  fp8::runtime::launch(stream, "copy", [to, from, bytes] {
    std::memmove(to, from, bytes);
    return true;
  });
  return cudaSuccess;
}
}
