// The memory of views, for messages. Private to the crate.
#pragma once

#include <cstddef>

#include "fp8/tensor/tensor.h"

namespace fp8::shard {

// The bytes that are sent from a view.
inline const std::byte* bytes_at(const tensor::View& v) { return static_cast<const std::byte*>(v.data); }

// The memory that receives a view.
inline std::byte* memory_at(const tensor::View& v) { return static_cast<std::byte*>(v.data); }

}  // namespace fp8::shard
