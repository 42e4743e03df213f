/// A call of fused attention for the tests of this crate.
#pragma once

#include <cstdint>

#include "../src/attention_fused.h"

namespace fp8::ops {

using device::DeviceType;
using dtype::DType;
using tensor::make_view;

/// Views of one layer: q, k, v in a fused projection, out and gradients in other buffers; without memory.
struct Layer {
  View q, k, v, out, lse, dout, dq, dk, dv;

  Layer(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t g, std::int64_t d, DType type = DType::bf16) {
    const auto parts = [&](std::uintptr_t at, View& x, View& y, View& z) {
      const View all = make_view(reinterpret_cast<void*>(at), type, DeviceType::cuda, {b, t, h + 2 * g, d});
      const auto heads = [&](std::int64_t first, std::int64_t count) {
        View part = all;
        part.shape[2] = count;
        part.data = static_cast<std::byte*>(all.data) + first * d * static_cast<std::int64_t>(size_of(type));
        return part;
      };
      x = heads(0, h);
      y = heads(h, g);
      z = heads(h + g, g);
    };
    parts(std::uintptr_t{1} << 40, q, k, v);
    parts(std::uintptr_t{1} << 41, dq, dk, dv);
    out = make_view(reinterpret_cast<void*>(std::uintptr_t{1} << 42), type, DeviceType::cuda, {b, t, h, d});
    dout = make_view(reinterpret_cast<void*>(std::uintptr_t{1} << 43), type, DeviceType::cuda, {b, t, h, d});
    lse = make_view(reinterpret_cast<void*>(std::uintptr_t{1} << 44), DType::f32, DeviceType::cuda, {b, h, t});
  }
  FusedAttention forward(const Documents& documents = {}) const {
    return fused_forward_of(q, k, v, 0.125f, documents, out);
  }
  FusedAttention backward(const Documents& documents = {}, bool deterministic = true) const {
    return fused_backward_of({q, k, v, out, lse, dout, 0.125f, documents, dq, dk, dv}, deterministic);
  }
  Documents documents(std::int64_t count, std::int64_t longest) const {
    void* const at = reinterpret_cast<void*>(std::uintptr_t{1} << 45);
    return {make_view(at, DType::i32, DeviceType::cuda, {q.shape[0], q.shape[1]}), count, longest};
  }
};

}  // namespace fp8::ops
