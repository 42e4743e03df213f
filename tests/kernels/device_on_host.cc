// The functions that need a GPU, on the host: memory is the host's. A program that is linked with this object and the
// others of this folder uses them instead of what the libraries have, with and without CUDA.
#include "fp8/device/cuda.h"  // the header of this folder must come before all others
//
#include "../../lib/comm/src/cuda.h"
#include "../../lib/device/src/cuda_memory.h"
#include "fp8/base/error.h"

namespace fp8 {

// This device has memory of its own in name only.
namespace device {

void no_cuda() { throw Error("a stand-in of the GPU lacks this"); }

namespace cuda {

std::byte* allocate_memory(std::size_t bytes, const char*) {
  auto* const data = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{256}));
  std::memset(data, 0, bytes);
  return data;
}
void release_memory(std::byte* data) noexcept { ::operator delete (data, std::align_val_t{256}); }
int count(std::string&) { return 1; }
std::string identity(int) { return "host"; }
int runtime() { return 0; }
Stream* open(int) { return std::make_unique<Stream>().release(); }
void close(Stream* stream) noexcept { const std::unique_ptr<Stream> owned(stream); }
std::string describe(const Stream&) { return "the host"; }
int capability(const Stream& stream) { return stream.compute_capability; }
std::size_t memory(const Stream&) { return std::size_t{80} << 30; }
void copy(Stream&, void* to, DeviceType, const void* from, DeviceType, std::size_t bytes) {
  std::memmove(to, from, bytes);
}
void start_download(Stream& stream, const void* from, std::size_t) { stream.downloaded = from; }
void finish_download(Stream& stream, void* to, std::size_t bytes) { std::memmove(to, stream.downloaded, bytes); }
void abandon_download(Stream&) noexcept {}
void wait(const Stream&) {}

}  // namespace cuda
}  // namespace device

namespace comm::cuda {

std::unique_ptr<Communicator> nccl(Communicator&, const device::Context&, bool) { device::no_cuda(); }
bool orders_groups() { return true; }
std::string version() { device::no_cuda(); }

}  // namespace comm::cuda

}  // namespace fp8
