// The memory of views, for messages and digests. Private to the crate.
#pragma once

#include <cstddef>
#include <vector>

#include "fp8/base/digest.h"
#include "fp8/device/device.h"
#include "fp8/tensor/tensor.h"

namespace fp8::shard {

// The bytes that are sent from a view.
inline const std::byte* bytes_at(const tensor::View& v) { return static_cast<const std::byte*>(v.data); }

// The memory that receives a view.
inline std::byte* memory_at(const tensor::View& v) { return static_cast<std::byte*>(v.data); }

// The digest of the values of a contiguous view on any device.
inline Digest digest_of_values(const device::Context& ctx, const tensor::View& v) {
  if (v.device == device::DeviceType::host) return digest_of({bytes_at(v), v.bytes()});
  std::vector<std::byte> copy(v.bytes());
  device::copy_bytes(ctx, copy.data(), device::DeviceType::host, v.data, v.device, v.bytes());
  return digest_of(copy);
}

}  // namespace fp8::shard
