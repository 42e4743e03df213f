/// The part of this crate that needs CUDA. In builds without CUDA the functions report that no device exists.
#pragma once

#include <cstddef>
#include <string>

#include "fp8/device/device.h"

namespace fp8::device::cuda {

/// Allocates `bytes` of zeroed device memory; throws Error naming `what` when memory is insufficient.
std::byte* allocate_memory(std::size_t bytes, const char* what);
/// Frees memory of allocate_memory().
void release_memory(std::byte* data) noexcept;
/// Number of devices; sets `why` to the reason if it is 0.
int count(std::string& why);
/// UUID of device `index` in hexadecimal digits; empty if unknown.
std::string identity(int index);
/// 13010 for 13.1; 0 without CUDA.
int runtime();
/// Makes device `index` current and creates a stream on it.
Stream* open(int index);
/// Synchronizes and destroys the stream.
void close(Stream* stream) noexcept;
/// Name, compute capability and memory size of the device.
std::string describe(const Stream& stream);
/// Compute capability, 90 for 9.0.
int capability(const Stream& stream);
/// Memory of the device in bytes.
std::size_t memory(const Stream& stream);
/// device::copy_bytes() with at least one side on the device.
void copy(Stream& stream, void* to, DeviceType to_device, const void* from, DeviceType from_device, std::size_t bytes);
/// Starts a copy to pinned memory on the stream for downloads; see download.h.
void start_download(Stream& stream, const void* from, std::size_t bytes);
/// Blocks until the copy that was started last is done, and stores its first `bytes` in `to`.
void finish_download(Stream& stream, void* to, std::size_t bytes);
/// Waits for a copy whose bytes nobody needs; errors are ignored.
void abandon_download(Stream& stream) noexcept;
/// Synchronizes the stream.
void wait(const Stream& stream);

}  // namespace fp8::device::cuda
