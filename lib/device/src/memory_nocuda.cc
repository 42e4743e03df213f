// Implementation for builds without CUDA: there is no device, and functions that need one throw Error.
#include "cuda_memory.h"
#include "fp8/base/error.h"

namespace fp8::device {
namespace {

constexpr const char* kNone = "this build has no CUDA: use the host, or build with CUDA=1";

}  // namespace

void no_cuda() { throw Error(kNone); }

namespace cuda {

std::byte* allocate_memory(std::size_t, const char* what) { throw Error(std::string(what) + ": " + kNone); }
void release_memory(std::byte*) noexcept {}
int count(std::string& why) {
  why = "this build has no CUDA";
  return 0;
}
std::string identity(int) { return {}; }
int runtime() { return 0; }
Stream* open(int) { no_cuda(); }
void close(Stream*) noexcept {}
std::string describe(const Stream&) { return {}; }
int capability(const Stream&) { return 0; }
std::size_t memory(const Stream&) { return 0; }
void copy(Stream&, void*, DeviceType, const void*, DeviceType, std::size_t) { no_cuda(); }
void start_download(Stream&, const void*, std::size_t) { no_cuda(); }
void finish_download(Stream&, void*, std::size_t) { no_cuda(); }
void abandon_download(Stream&) noexcept {}
void wait(const Stream&) {}

}  // namespace cuda
}  // namespace fp8::device
