/// A stand-in for the CUDA runtime: the functions of cuda_runtime_api.h that this project calls, for streams, events
/// and memory of the host. Streams are queues, which one thread runs; it takes from them in any order that streams and
/// events allow, so that what a missing wait leaves unordered is reordered:
///   - FP8_DEVICE_ORDER=first: before each operation of the stream that was created first (the one of computation),
///     the other streams run as far as they can: an operation that does not wait for its operands finds old ones.
///   - FP8_DEVICE_ORDER=last: the other streams run when the first one cannot: an operation that does not wait for the
///     result of another stream finds none.
///   - FP8_DEVICE_ORDER=<number>: in random orders, by this seed and the rank. The default is 1.
/// The GPU has FP8_DEVICE_MIB MiB of memory (81920). A device on which nothing gets on for FP8_DEVICE_PATIENCE seconds
/// (60) fails, and so does one that a thread uses without having called cudaSetDevice. With FP8_DEVICE_TRACE=<path> the
/// host writes to <path>.<rank> a line "<stream> <operation>" for each operation that it puts on a stream, in the order
/// of its calls; streams count from 1 in the order of their creation, and a wait names the stream of the event. Nothing
/// runs before the host waits for it, unless the host is silent for a while, as it is in MPI. New
/// memory has no zeros. Where CUDA makes no promise, nothing is done: copies and fills of the legacy stream are not
/// ordered with other streams.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <string>

namespace fp8::runtime {

/// An operation of a stream. It is called again and again until it returns true; an exception fails the device.
using Operation = std::function<bool()>;

/// Puts an operation on a stream; `name` appears in errors.
void launch(cudaStream_t stream, std::string name, Operation operation);

/// Whether the calling thread has called cudaSetDevice.
bool has_device();

/// Whether these bytes are in one allocation of cudaMalloc.
bool on_device(const void* data, std::size_t bytes);

/// The rank that mpirun gave this process, else 0.
int rank();

}  // namespace fp8::runtime
