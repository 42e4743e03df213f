// Device memory, streams and copies through the CUDA runtime, which is linked statically: it loads the driver when it
// is first called, and says so when there is none.
#include <cstdio>

#include "cuda_memory.h"
#include "fp8/base/error.h"
#include "fp8/base/text.h"
#include "fp8/device/cuda.h"

namespace fp8::device {

void check_cuda(cudaError_t result, const char* call, const char* file, int line) {
  if (result == cudaSuccess) return;
  std::string where = file;
  if (line > 0) where += ":" + std::to_string(line);
  throw Error(std::string("CUDA: ") + call + ": " + cudaGetErrorString(result) + " (" + where + ")");
}

namespace cuda {
namespace {

cudaMemcpyKind kind(Place to, Place from) {
  if (to == Place::cuda) return from == Place::cuda ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  return cudaMemcpyDeviceToHost;
}

}  // namespace

std::byte* take_memory(std::size_t bytes, const char* what) {
  void* data = nullptr;
  const cudaError_t result = cudaMalloc(&data, bytes);
  if (result == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // the error is told below; later calls must not see it
    std::size_t free = 0, total = 0;
    FP8_CUDA(cudaMemGetInfo(&free, &total));
    throw Error("out of memory: " + std::string(what) + " needs " + human_bytes(bytes) + " on the GPU, where " +
                human_bytes(free) + " of " + human_bytes(total) + " are free");
  }
  FP8_CUDA(result);
  FP8_CUDA(cudaMemset(data, 0, bytes));
  return static_cast<std::byte*>(data);
}

void release_memory(std::byte* data) noexcept { (void)cudaFree(data); }  // at exit the driver may be gone already

int count(std::string& why) {
  int devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  (void)cudaGetLastError();
  if (result == cudaSuccess && devices > 0) return devices;
  why = result == cudaErrorInsufficientDriver
            ? "no NVIDIA driver, or one older than CUDA " + std::to_string(CUDART_VERSION / 1000) + "." +
                  std::to_string(CUDART_VERSION % 1000 / 10)
        : result == cudaErrorNoDevice || result == cudaSuccess ? "no CUDA device"
                                                               : cudaGetErrorString(result);
  return 0;
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
  stream->kept.clear();  // before the stream that it works on
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

void copy(const Stream& stream, void* to, Place to_place, const void* from, Place from_place, std::size_t bytes) {
  FP8_CUDA(cudaMemcpyAsync(to, from, bytes, kind(to_place, from_place), stream.handle));
  if (to_place == Place::host || from_place == Place::host) wait(stream);
}

void wait(const Stream& stream) { FP8_CUDA(cudaStreamSynchronize(stream.handle)); }

}  // namespace cuda
}  // namespace fp8::device
