/// Amaxes of results on the host, row by row while a row is in the cache. Private to this crate.
#pragma once

#include <atomic>
#include <bit>

#include "fp8/ops/amax.h"
#include "row_kernels.h"
#include "rows.h"

namespace fp8::ops {

/// Throws Error unless `amax` is empty or has `count` floats on the context's device.
inline void check_amax(const device::Context& ctx, const char* op, const Amax& amax, std::int64_t count) {
  const View& v = amax.value;
  need_device(ctx, op, v);
  need(v.empty() || (v.dtype == DType::f32 && v.size() == count && v.contiguous()), op,
       "amax must be float32, one for each result");
}

/// Element `index` of the amaxes becomes max(itself, largest magnitude of x[0, n)); from any thread.
template <class T>
void record_row(const Amax& amax, int index, const T* x, std::int64_t n) {
  if (amax.value.empty()) return;
  const std::uint32_t largest = row_loops<T>().largest(x, n, amax.skip_nan ? 0x7F800000u : 0x7FFFFFFFu);
  const std::atomic_ref<float> to(amax.value.as<float>()[index]);
  float before = to.load(std::memory_order_relaxed);
  while (std::bit_cast<std::uint32_t>(before) < largest &&
         !to.compare_exchange_weak(before, std::bit_cast<float>(largest), std::memory_order_relaxed)) {
  }
}

}  // namespace fp8::ops
