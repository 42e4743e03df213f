// Owned memory and the number of threads. Large host buffers are mapped pages: zero on first access, and huge pages if
// available, since matrix multiply is otherwise limited by TLB misses. Small ones are heap memory, where the sanitizers
// check bounds.
#include <omp.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "cuda_memory.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/device/device.h"

namespace fp8::device {
namespace {

constexpr std::size_t kHeapAlignment = 64;
constexpr std::size_t kMapFrom = std::size_t{1} << 20;  // bytes; smaller buffers are heap memory

bool mapped(std::size_t bytes) { return bytes >= kMapFrom; }

std::byte* allocate_host(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max())) return nullptr;
  void* p = nullptr;
  if (mapped(bytes)) {
    p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return nullptr;
    (void)madvise(p, bytes, MADV_HUGEPAGE);  // fails harmlessly on kernels without huge pages
    return static_cast<std::byte*>(p);
  }
  if (posix_memalign(&p, kHeapAlignment, bytes) != 0) return nullptr;
  std::memset(p, 0, bytes);
  return static_cast<std::byte*>(p);
}

void release(std::byte* data, std::size_t bytes, DeviceType device) noexcept {
  if (data == nullptr) return;
  if (device == DeviceType::cuda) {
    cuda::release_memory(data);
  } else if (mapped(bytes)) {
    (void)munmap(data, bytes);  // cannot fail for a range that mmap returned
  } else {
    std::free(data);  // NOLINT(cppcoreguidelines-no-malloc): from posix_memalign
  }
}

}  // namespace

Buffer::Buffer(std::size_t bytes, DeviceType device, const char* what) : size_(bytes), device_type_(device) {
  if (bytes == 0) return;
  if (device == DeviceType::cuda && cuda_device_count() == 0)
    throw Error(std::string(what) + ": no usable GPU: " + why_no_cuda());
  data_ = device == DeviceType::cuda ? cuda::allocate_memory(bytes, what) : allocate_host(bytes);
  if (data_ == nullptr) throw Error("out of memory: " + std::string(what) + " needs " + human_bytes(bytes));
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      device_type_(other.device_type_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this != &other) {
    release(data_, size_, device_type_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    device_type_ = other.device_type_;
  }
  return *this;
}

Buffer::~Buffer() { release(data_, size_, device_type_); }

int host_threads() { return omp_get_max_threads(); }

}  // namespace fp8::device
