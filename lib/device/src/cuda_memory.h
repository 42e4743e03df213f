/// The half of this crate that needs CUDA. Builds without it have stand-ins that say so.
#pragma once

#include <cstddef>
#include <string>

#include "fp8/device/device.h"

namespace fp8::device::cuda {

/// `bytes` of zeroed device memory; throws Error naming `what` when there is none.
std::byte* take_memory(std::size_t bytes, const char* what);
/// Gives back what take_memory returned.
void release_memory(std::byte* data) noexcept;
/// Devices; `why` says why there is none.
int count(std::string& why);
/// Which card device `index` is; empty where it is not told.
std::string identity(int index);
/// 13010 for 13.1; 0 without CUDA.
int runtime();
/// A new stream on device `index`, which becomes current.
Stream* open(int index);
/// Waits for the stream and ends it.
void close(Stream* stream) noexcept;
/// Name, capability and memory.
std::string describe(const Stream& stream);
/// 90 for 9.0.
int capability(const Stream& stream);
/// See device::copy_bytes, where a side lies on the device.
void copy(Stream& stream, void* to, Place to_place, const void* from, Place from_place, std::size_t bytes);
/// Waits.
void wait(const Stream& stream);

}  // namespace fp8::device::cuda
